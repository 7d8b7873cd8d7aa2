import type { Failure, LauncherKind } from "@internevo/domain";
import type { TSchema } from "typebox";
import type { ConfigOf, EventOf, NativeProgram } from "./programs.ts";

/** @param waits the job waits for others; else something is done for it. */
export type OnQueue = (message: string, waits: boolean) => void;

export interface LaunchOptions<P extends NativeProgram<TSchema, TSchema>> {
  readonly program: P;
  readonly config: ConfigOf<P>;
  readonly ranks: number;
  readonly threadsPerRank: number;
  readonly launcher: LauncherKind;
  /** Ranks that one node takes, where the launcher knows nodes. Default: all of them. */
  readonly ranksPerNode?: number;
  /** What the launcher needs to reach the cluster, as `launchTarget` gives it. */
  readonly settings?: unknown;
  /**
   * What is launched, where ranks outlive their supervisor. A launch of the same label and configuration that
   * its supervisor has left is gone on with. Default: empty.
   */
  readonly label?: string;
  /**
   * Holds the configuration and the record of the run; one run at a time, and the caller owns it by a lease.
   */
  readonly runDirectory: string;
  /**
   * Asked before anything is ended or started: throws where the caller may own the run directory no more.
   * Default: it does.
   */
  readonly confirm?: () => Promise<void>;
  /** Added to the ranks' environment. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Asks for an orderly end: the trainer finishes its step and writes a checkpoint. */
  readonly signal?: AbortSignal;
  /** Ends the ranks at once, for example when the lease was lost. */
  readonly killSignal?: AbortSignal;
  /**
   * Where ranks outlive their supervisor: leaves the ranks to themselves, so that the next launch of the same
   * run directory finds them again.
   */
  readonly detachSignal?: AbortSignal;
  /** How long an orderly end may take before the ranks are killed. Default 30. */
  readonly graceSeconds?: number;
  /** Bound on the whole run. Default: none. */
  readonly timeoutSeconds?: number;
  /**
   * Bound on the time between two events, so that ranks that wait for each other forever are noticed.
   * Default: none.
   */
  readonly silenceSeconds?: number;
  /** @param isRepeated an earlier supervisor of the same launch was told of it as well. */
  readonly onEvent: (event: EventOf<P>, isRepeated: boolean) => void;
  /** A line of standard error. */
  readonly onLog?: (line: string) => void;
  /** Where a scheduler starts the ranks: where the job is on its way to its nodes, for people. */
  readonly onQueue?: OnQueue;
}

export type LaunchOutcome = { readonly seconds: number; readonly exitCode: number | null } & (
  | { readonly status: "completed" }
  /**
   * The ranks ended in order when asked (`graceful`), or were killed because the caller asked for it, or go
   * on without a supervisor (`detached`).
   */
  | { readonly status: "stopped"; readonly graceful: boolean; readonly detached?: true }
  /**
   * `nodesLeft`, where a scheduler counts nodes: it was given up because it needs more nodes than these,
   * which can take jobs.
   */
  | { readonly status: "failed"; readonly failure: Failure; readonly nodesLeft?: number }
);

/** How long ranks and launcher may take to end after they have said that the run is over. */
export const LAST_WORD_SECONDS = 60;
