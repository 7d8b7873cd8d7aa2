import { TRAINER_EXIT } from "@internevo/contracts";
import type { Failure } from "@internevo/domain";
import type { NativeError } from "../failure.ts";
import type { Cause, GivenUp } from "./followed-ranks.ts";

/** How ranks ended, by what their script left and by what they said. */
export interface RanksEnd {
  /** `told`: by whom the script was told to end; empty: nobody. */
  readonly end: { readonly exitCode: number | null; readonly told: string } | undefined;
  /** The ranks have said that they are done. */
  readonly done: boolean;
  readonly firstError: NativeError | undefined;
}

/**
 * Whether ranks ended one after the other in order, the last of them perhaps by their launcher: all said that
 * they are done first.
 */
export const isOrderly = ({ end, done, firstError }: RanksEnd): boolean =>
  done && firstError === undefined && (end?.exitCode === TRAINER_EXIT.terminated || (end?.told ?? "") !== "");

/** What a launch came to; `thrown`: what the caller's own code threw. */
export type Outcome =
  | { readonly status: "completed" }
  | { readonly status: "stopped"; readonly graceful: boolean }
  | ({ readonly status: "failed" } & GivenUp)
  | { readonly thrown: unknown };

export const failed = (failure: Failure): Outcome => ({ status: "failed", failure });

/** What to do where somebody has ended ranks by hand, past InternEvo. */
export const RESUME = "let the job go on with what it has: internevo resume, or its page in the console";

/** The outcome that a cause decides, whatever the ranks did; undefined: what they did counts. */
export function decidedBy(cause: Cause | undefined): Outcome | undefined {
  if (cause?.kind === "thrown") return { thrown: cause.error };
  if (cause?.kind !== "failure") return undefined;
  const { failure, nodesLeft } = cause;
  return { ...failed(failure), ...(nodesLeft === undefined ? {} : { nodesLeft }) };
}
