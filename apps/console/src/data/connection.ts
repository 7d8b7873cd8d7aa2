import { useSyncExternalStore } from "react";

/** Whether the API was reached by the last request; `since` is the first failure after a success. */
export interface ConnectionState {
  readonly reachable: boolean;
  readonly since: number;
}

let state: ConnectionState = { reachable: true, since: 0 };
const listeners = new Set<() => void>();

function set(reachable: boolean): void {
  if (state.reachable === reachable) return;
  state = { reachable, since: Date.now() };
  for (const listener of listeners) listener();
}

export const reportReachable = (): void => set(true);
export const reportUnreachable = (): void => set(false);

export const connectionState = (): ConnectionState => state;
export function onConnectionChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const useConnection = (): ConnectionState => useSyncExternalStore(onConnectionChange, connectionState);

/** `fetch` that tells whether the server answered at all. A gateway's 502 to 504 is no answer of ours. */
export const watchedFetch: typeof fetch = async (input, init) => {
  try {
    const response = await globalThis.fetch(input, init);
    if (response.status >= 502 && response.status <= 504) reportUnreachable();
    else reportReachable();
    return response;
  } catch (error) {
    if (!(init?.signal?.aborted ?? false)) reportUnreachable();
    throw error;
  }
};
