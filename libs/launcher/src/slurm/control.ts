import type { SlurmSettings } from "./settings.ts";

/** Slurm's controller, or what stands before it, gives no answer: it may have heard the question. */
export class SlurmAwayError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "SlurmAwayError";
  }
}

/** Slurm has answered, and refuses. */
export class SlurmRefusalError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "SlurmRefusalError";
  }
}

/** What a batch job asks for. */
export interface SlurmRequest {
  /** Finds the job again: no other job has it. */
  readonly name: string;
  readonly comment: string;
  readonly nodes: number;
  readonly ranksPerNode: number;
  readonly threadsPerRank: number;
  readonly timeLimitSeconds?: number;
  readonly settings: SlurmSettings;
  readonly directory: string;
  readonly scriptPath: string;
  /** Standard output and error of the script itself. */
  readonly logPath: string;
  readonly environment: Readonly<Record<string, string>>;
}

/** A job as Slurm tells it. */
export interface SlurmJob {
  readonly id: number;
  readonly name: string;
  /** PENDING, RUNNING, COMPLETED, … */
  readonly state: string;
  /** Why it is in that state; `None` where there is nothing to say. */
  readonly reason: string;
  readonly partition: string;
  readonly nodes: string;
  /** When it began, or is expected to; undefined when unknown. */
  readonly startsAt: Date | undefined;
}

export interface SlurmNode {
  readonly name: string;
  readonly usable: boolean;
  readonly state: string;
  readonly reason: string;
  readonly partitions: readonly string[];
}

/** What is asked of Slurm; every call may throw {@link SlurmAwayError}. */
export interface SlurmControl {
  /** @returns the job's id. @throws SlurmRefusalError */
  submit(request: SlurmRequest): Promise<number>;
  /** Jobs of a name that the controller still knows, ended ones too. */
  jobsNamed(name: string): Promise<SlurmJob[]>;
  /** Ends a job, wherever it is; one that is gone is no error. */
  cancel(id: number): Promise<void>;
  /** Asks a job's ranks for an orderly end. */
  askToEnd(id: number): Promise<void>;
  nodes(): Promise<SlurmNode[]>;
  /**
   * What the site's accounting says of a job that the controller has forgotten. @returns in words why it says
   * nothing, where it does not.
   */
  accounted(id: number, name: string): Promise<SlurmJob | string>;
}

const LIVE = new Set([
  "PENDING",
  "RUNNING",
  "SUSPENDED",
  "COMPLETING",
  "CONFIGURING",
  "REQUEUED",
  "REQUEUE_HOLD",
  "REQUEUE_FED",
  "RESIZING",
  "RESV_DEL_HOLD",
  "SIGNALING",
  "SPECIAL_EXIT",
  "STAGE_OUT",
  "STOPPED",
]);
/** Whether a job of this state has not ended. */
export const isLive = ({ state }: Pick<SlurmJob, "state">): boolean => LIVE.has(state);
const WAITING = new Set([
  "PENDING",
  "CONFIGURING",
  "REQUEUED",
  "REQUEUE_HOLD",
  "REQUEUE_FED",
  "RESV_DEL_HOLD",
  "SPECIAL_EXIT",
]);
export const isWaiting = ({ state }: Pick<SlurmJob, "state">): boolean => WAITING.has(state);

const NODE_OUT =
  /^(down|drain|draining|drained|fail|failing|future|unknown|error|inval|powered_down|powering_down|power_down|reboot|not_responding|no_respond|maintenance|maint|planned_down|reserved_down|invalid|invalid_reg)$/i;

type Json = Readonly<Record<string, unknown>>;

/** A number of Slurm's JSON: plain up to 22.05, with `set` and `infinite` beside it since. */
function numberOf(value: unknown): number | undefined {
  if (typeof value === "number") return value;
  if (typeof value !== "object" || value === null) return undefined;
  const { set, infinite, number } = value as Json;
  return set === false || infinite === true || typeof number !== "number" ? undefined : number;
}

const textOf = (value: unknown): string => (typeof value === "string" ? value : "");
/** A list, or a single word of it (22.05). */
const wordsOf = (value: unknown): string[] =>
  [value].flat().filter((each): each is string => typeof each === "string");

const listIn = (answer: unknown, field: string): Json[] => {
  const list = (answer as Json | null)?.[field];
  if (!Array.isArray(list)) throw new SlurmAwayError(`Slurm's answer has no list of ${field}`);
  return list.filter((each): each is Json => typeof each === "object" && each !== null);
};

/** The jobs of Slurm's JSON, as `squeue --json` and slurmrestd write it from 22.05 on. */
export function jobsOf(answer: unknown): SlurmJob[] {
  return listIn(answer, "jobs").map((job) => {
    const startsAt = numberOf(job["start_time"]);
    // The base state comes first, flags such as COMPLETING behind it.
    const [state = "UNKNOWN"] = wordsOf(job["job_state"]);
    return {
      id: numberOf(job["job_id"]) ?? 0,
      name: textOf(job["name"]),
      state: state.toUpperCase(),
      reason: textOf(job["state_description"]) || textOf(job["state_reason"]) || "None",
      partition: textOf(job["partition"]),
      nodes: textOf(job["nodes"]),
      startsAt: startsAt === undefined || startsAt === 0 ? undefined : new Date(startsAt * 1000),
    };
  });
}

/**
 * The jobs of `sacct --json` and of slurmrestd's database interface: a state is `{current, reason}` there,
 * and `current` a list since 23.02.
 * @throws SlurmAwayError when it is no such answer.
 */
export function accountedJobsOf(answer: unknown): SlurmJob[] {
  return listIn(answer, "jobs").map((job) => {
    const { current, reason } = (job["state"] ?? {}) as Json;
    const [state = "UNKNOWN"] = wordsOf(current);
    const startsAt = numberOf(((job["time"] ?? {}) as Json)["start"]);
    return {
      id: numberOf(job["job_id"]) ?? 0,
      name: textOf(job["name"]),
      state: state.toUpperCase(),
      reason: textOf(reason) || "None",
      partition: textOf(job["partition"]),
      nodes: textOf(job["nodes"]).replace(/^None assigned$/, ""),
      startsAt: startsAt === undefined || startsAt === 0 ? undefined : new Date(startsAt * 1000),
    };
  });
}

/**
 * The one of a number and name, or why there is none: numbers begin anew where a controller was set up anew.
 */
export const accountedJob = (answer: unknown, id: number, name: string): SlurmJob | string =>
  accountedJobsOf(answer).find((job) => job.id === id && job.name === name) ??
  `Slurm's accounting does not know job ${id}`;

/** The nodes of Slurm's JSON. */
export function nodesOf(answer: unknown): SlurmNode[] {
  return listIn(answer, "nodes").map((node) => {
    const states = [...wordsOf(node["state"]), ...wordsOf(node["state_flags"])];
    return {
      name: textOf(node["name"]),
      usable: states.length > 0 && !states.some((state) => NODE_OUT.test(state)),
      state: states.join("+").toLowerCase(),
      reason: textOf(node["reason"]),
      partitions: wordsOf(node["partitions"]),
    };
  });
}
