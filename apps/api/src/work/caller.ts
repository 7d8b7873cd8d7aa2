import { AsyncLocalStorage } from "node:async_hooks";

const callers = new AsyncLocalStorage<string>();

/** Runs what answers a request in the name of its token, for {@link callerNow}. */
export const inNameOf = (tokenId: string, work: () => void): void => callers.run(tokenId, work);

/**
 * The token whose request is being answered, so that searches take turns by token without every question
 * carrying it. Outside of requests: nobody's.
 */
export const callerNow = (): string => callers.getStore() ?? "nobody";
