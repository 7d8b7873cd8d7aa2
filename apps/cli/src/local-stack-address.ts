import { resolve } from "node:path";

export interface StackAddress {
  readonly apiUrl: string;
  readonly token: string;
}

/**
 * The API of the local stack that runs in a data directory now; undefined when none does, or it is still
 * starting.
 */
export async function findStack(dataDirectory: string): Promise<StackAddress | undefined> {
  // Loaded when it is needed: most commands talk to an API elsewhere.
  const { readStackInfo } = await import("@internevo/local-stack");
  const info = readStackInfo(resolve(dataDirectory));
  return info !== undefined && info.apiUrl !== null && info.readyAt !== null
    ? { apiUrl: info.apiUrl, token: info.apiToken }
    : undefined;
}
