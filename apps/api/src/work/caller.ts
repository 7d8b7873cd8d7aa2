import { AsyncLocalStorage } from "node:async_hooks";

/** Whose request is being answered. */
export interface Caller {
  readonly token: string;
  /** Its project, whose tokens take turns together; of the installation's tokens each by itself. */
  readonly group: string;
  /** Gives the request's turn to others, since it waits now. */
  readonly giveUpTurn: () => void;
}

const callers = new AsyncLocalStorage<Caller>();

/** Who takes turns for a token. */
export const callerOf = (
  token: string,
  project: string | null = null,
  giveUpTurn: () => void = () => undefined,
): Caller => ({ token, group: project === null ? `token ${token}` : `project ${project}`, giveUpTurn });

const NOBODY: Caller = { ...callerOf("nobody"), group: "nobody" };

/** Runs what answers a request in the name of its token, for {@link callerNow}. */
export const inNameOf = (
  token: string,
  work: () => void,
  project: string | null = null,
  giveUpTurn?: () => void,
): void => callers.run(callerOf(token, project, giveUpTurn), work);

/**
 * The token whose request is being answered, so that searches take turns by token without every question
 * carrying it. Outside of requests: nobody's.
 */
export const callerNow = (): Caller => callers.getStore() ?? NOBODY;
