import { validate, type Failure } from "@internevo/domain";
import type { TSchema } from "typebox";
import type { NativeError } from "./failure.ts";
import type { NativeProgram } from "./programs.ts";

/**
 * One line of a native program's standard output. @returns the failure that a line which is no event means.
 */
export function eventOf(
  program: NativeProgram<TSchema, TSchema>,
  line: string,
  lineNumber: number,
): { readonly event: string } | { readonly failure: Failure } {
  try {
    return validate(program.eventSchema, JSON.parse(line), "internal", "the event") as { event: string };
  } catch (error) {
    return {
      failure: {
        code: "internal",
        message:
          `line ${lineNumber} that ${program.name} wrote is no event of ` +
          `the protocol: ${(error as Error).message}: ${line.slice(0, 200)}`,
      },
    };
  }
}

/** Behind what is left of a line of a rank that was killed while it wrote. */
const SUMMARY =
  /\d+ total process(es)? (aborted|failed to start|killed \(some possibly by .+ during cleanup\))$/;

/**
 * Whether mpirun wrote a line itself, to standard output between the events of its ranks: it counts them there when
 * more than one was lost.
 */
export const isSummaryOfMpirun = (line: string): boolean => SUMMARY.test(line);

/** An error that the run does not survive. */
export const isFatal = (event: { readonly event: string }): event is NativeError =>
  event.event === "error" && (event as NativeError).continues !== true;
