import { createHash } from "node:crypto";
import { validate } from "@internevo/domain";
import type { TSchema } from "typebox";
import type { LaunchOptions, LaunchOutcome } from "../launch-options.ts";
import type { LeftLaunch } from "../launcher.ts";
import type { NativeProgram } from "../programs.ts";

type Program = NativeProgram<TSchema, TSchema>;

export interface Size {
  readonly nodes: number;
  readonly ranksPerNode: number;
}

/** @throws RangeError where the ranks do not fill whole nodes. */
export function sizeOf({ ranks, ranksPerNode = ranks }: LaunchOptions<Program>): Size {
  const perNode = Math.min(ranks, ranksPerNode);
  if (ranks < 1 || perNode < 1 || ranks % perNode !== 0)
    throw new RangeError(`ranks ${ranks} do not fill nodes of ${perNode}: give a multiple`);
  return { nodes: ranks / perNode, ranksPerNode: perNode };
}

/** The configuration of a launch as its ranks read it. @throws ProblemError `internal` where it is not valid. */
export const configTextOf = <P extends Program>({ program, config }: LaunchOptions<P>): string =>
  JSON.stringify(
    validate(program.configSchema, config, "internal", `the configuration of ${program.name}`),
    null,
    2,
  );

/** Of program, configuration and size: equal digests, equal work. */
export const digestOf = (options: LaunchOptions<Program>, size: Size, configText: string): string =>
  createHash("sha256")
    .update(JSON.stringify([options.program.path, size, options.threadsPerRank, options.environment ?? {}]))
    .update(configText)
    .digest("hex");

/** The ranks were not asked to end in order, or go on without a supervisor. */
export const stoppedOutcome = (seconds: number, more: { readonly detached?: true } = {}): LaunchOutcome => ({
  status: "stopped",
  graceful: false,
  seconds,
  exitCode: null,
  ...more,
});

/** A launch that nobody has concluded, as a scheduler's launcher keeps it. */
export interface LeftRecord extends LeftLaunch {
  readonly digest: string;
}

export interface Beginning<R extends LeftRecord> {
  readonly left: R | undefined;
  readonly digest: string;
  readonly seconds: () => number;
  /** @returns whether nothing of what is left runs any more. */
  readonly endLeft: () => Promise<boolean>;
  /** What people are told while what is left cannot be ended. */
  readonly away: string;
}

/**
 * Finds the launch to go on with, and ends one of other work that ran here before. @returns its record;
 * undefined: begin anew; or the outcome, where the caller wants no launch any more.
 */
export async function goOnOrEnd<R extends LeftRecord>(
  options: LaunchOptions<Program>,
  { left: found, digest, seconds, endLeft, away }: Beginning<R>,
): Promise<{ readonly left: R | undefined } | LaunchOutcome> {
  let left = found;
  const isOurs = left?.label === (options.label ?? "") && left.digest === digest && !left.cancelled;
  while (left && (!isOurs || options.killSignal?.aborted === true)) {
    if (options.detachSignal?.aborted) return stoppedOutcome(seconds(), { detached: true });
    if (await endLeft()) left = undefined;
    else if (options.killSignal?.aborted) return stoppedOutcome(seconds());
    else options.onQueue?.(away, false);
  }
  if (options.signal?.aborted || options.killSignal?.aborted) return stoppedOutcome(seconds());
  if (options.detachSignal?.aborted) return stoppedOutcome(seconds(), { detached: true });
  return { left };
}
