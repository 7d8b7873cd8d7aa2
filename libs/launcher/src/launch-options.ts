import type { Cluster, Failure, HostCluster, SlurmSettings } from "@internevo/domain";
import type { TSchema } from "typebox";
import type { ConfigOf, EventOf, NativeProgram } from "./programs.ts";

export interface LaunchOptions<P extends NativeProgram<TSchema, TSchema>> {
  readonly program: P;
  readonly config: ConfigOf<P>;
  readonly ranks: number;
  readonly threadsPerRank: number;
  readonly launcher: Cluster["launcher"];
  /** Ranks that one node takes; not for `local`. Default: all of them. */
  readonly ranksPerNode?: number;
  /** `ssh` only, and needed there: the hosts and how they are reached. */
  readonly hosts?: HostCluster;
  /** `slurm` only, and needed there. */
  readonly slurm?: SlurmSettings;
  /** `slurm` only: what is launched. A launch of the same label and configuration that its supervisor has left is gone on with. Default: empty. */
  readonly label?: string;
  /** Holds the configuration and the record of the run; one run at a time, and the caller owns it by a lease. */
  readonly runDirectory: string;
  /** Asked before anything is ended or started: throws where the caller may own the run directory no more. Default: it does. */
  readonly confirm?: () => Promise<void>;
  /** Added to the ranks' environment. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Asks for an orderly end: the trainer finishes its step and writes a checkpoint. */
  readonly signal?: AbortSignal;
  /** Ends the ranks at once, for example when the lease was lost. */
  readonly killSignal?: AbortSignal;
  /** `slurm` only: leaves the ranks to themselves, so that the next launch of the same run directory finds them again. */
  readonly detachSignal?: AbortSignal;
  /** How long an orderly end may take before the ranks are killed. Default 30. */
  readonly graceSeconds?: number;
  /** Bound on the whole run. Default: none. */
  readonly timeoutSeconds?: number;
  /** Bound on the time between two events, so that ranks that wait for each other forever are noticed. Default: none. */
  readonly silenceSeconds?: number;
  /** @param isRepeated an earlier supervisor of the same launch was told of it as well. */
  readonly onEvent: (event: EventOf<P>, isRepeated: boolean) => void;
  /** A line of standard error. */
  readonly onLog?: (line: string) => void;
  /** `slurm` only: where the job is on its way to its nodes, for people. */
  readonly onQueue?: (message: string) => void;
}

export type LaunchOutcome = { readonly seconds: number; readonly exitCode: number | null } & (
  | { readonly status: "completed" }
  /** The ranks ended in order when asked (`graceful`), or were killed because the caller asked for it, or go on without a supervisor (`detached`). */
  | { readonly status: "stopped"; readonly graceful: boolean; readonly detached?: true }
  /** `nodesLeft`, `slurm` only: it was given up because it needs more nodes than these, which can take jobs. */
  | { readonly status: "failed"; readonly failure: Failure; readonly nodesLeft?: number }
);

/** What a rank ends with after an orderly end that it was asked for. */
export const EXIT_TERMINATED = 75;
/** How long ranks and launcher may take to end after they have said that the run is over. */
export const LAST_WORD_SECONDS = 60;
