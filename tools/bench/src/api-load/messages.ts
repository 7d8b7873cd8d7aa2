/** Questions that the load asks, with how often of a hundred. */
export const QUESTIONS = [
  { name: "one job", weight: 30 },
  { name: "page of jobs", weight: 15 },
  { name: "page of an owner's jobs", weight: 10 },
  { name: "page of queued jobs", weight: 5 },
  { name: "page of a job's steps", weight: 20 },
  { name: "page of a job's log", weight: 5 },
  { name: "who am I", weight: 5 },
  { name: "clusters", weight: 5 },
  { name: "profiles", weight: 3 },
  { name: "usage of a month", weight: 2 },
] as const;
export type Question = (typeof QUESTIONS)[number]["name"];

/** What the process that asks is told. */
export interface LoadOrder {
  readonly apiUrl: string;
  readonly tokens: readonly string[];
  readonly jobs: readonly string[];
  /** Of `jobs`, those with steps. */
  readonly trained: readonly string[];
  readonly owners: readonly string[];
  /** Steps that each of `trained` has. */
  readonly stepsOfAJob: number;
  readonly requestsPerSecond: number;
  readonly seconds: number;
  readonly seed: number;
}

export interface Quantiles {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
  readonly most: number;
}

/** What it answers; times in milliseconds, from the moment at which the request was due. */
export interface LoadResult {
  readonly answered: number;
  /** Requests that were not answered with 200, by status or error. */
  readonly refused: Readonly<Record<string, number>>;
  readonly milliseconds: Quantiles;
  readonly ofQuestions: Readonly<Record<string, Quantiles>>;
  readonly ofMinutes: readonly Quantiles[];
  /** How late the generator itself sent: part of the times above. */
  readonly sentLateMilliseconds: Quantiles;
}

export interface FollowOrder {
  readonly url: string;
  readonly tokens: readonly string[];
  readonly followers: number;
}

export interface FollowResult {
  readonly open: number;
  /** Streams that ended or were refused before they were told to. */
  readonly lost: number;
  readonly events: number;
  /** From the instant that an event carries to its arrival, of one follower in twenty. */
  readonly delayMilliseconds: Quantiles;
  /** Events that such a follower got twice or out of order. */
  readonly outOfOrder: number;
}

export function quantilesOf(values: readonly number[]): Quantiles {
  const sorted = Float64Array.from(values).sort();
  const at = (q: number): number => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? NaN;
  return { count: sorted.length, p50: at(0.5), p99: at(0.99), most: at(1) };
}
