import { TRAINER_EXIT } from "@internevo/contracts";
import type { NativeError } from "../failure.ts";

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
