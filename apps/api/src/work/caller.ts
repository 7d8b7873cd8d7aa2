import { AsyncLocalStorage } from "node:async_hooks";
import type { TokenOwner } from "@internevo/store";

/**
 * Who is counted for a request: a person, whatever number of sessions it has, or a token that an admin made.
 */
export const countedAs = ({ id, userId }: Pick<TokenOwner, "id" | "userId">): string =>
  userId === null ? id : `person ${userId}`;

/** Whose request is being answered. */
export interface Caller {
  readonly token: string;
  /** Its project, whose tokens take turns together; of the installation's tokens and persons each by itself. */
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

/** Who takes turns for a request: a person's sessions in one place take them as one. */
export const callerOfOwner = (
  owner: Pick<TokenOwner, "id" | "userId" | "project">,
  giveUpTurn?: () => void,
): Caller => {
  const { userId, project } = owner;
  const place = userId === null || project === null ? "" : ` in ${project}`;
  return callerOf(`${countedAs(owner)}${place}`, project, giveUpTurn);
};

const NOBODY: Caller = { ...callerOf("nobody"), group: "nobody" };

/** Runs what answers a request in the name of its token, for {@link callerNow}. */
export const inNameOf = (
  token: string,
  work: () => void,
  project: string | null = null,
  giveUpTurn?: () => void,
): void => callers.run(callerOf(token, project, giveUpTurn), work);

/** {@link inNameOf} of who shows a token. */
export const inNameOfOwner = (
  owner: Parameters<typeof callerOfOwner>[0],
  work: () => void,
  giveUpTurn: () => void,
): void => callers.run(callerOfOwner(owner, giveUpTurn), work);

/**
 * The token whose request is being answered, so that searches take turns by token without every question
 * carrying it. Outside of requests: nobody's.
 */
export const callerNow = (): Caller => callers.getStore() ?? NOBODY;
