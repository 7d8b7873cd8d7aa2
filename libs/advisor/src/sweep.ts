import {
  formatBytes,
  MAXIMUM_BYTES,
  MAXIMUM_RANKS,
  plannedMemoryBytes,
  ProblemError,
  withoutDocuments,
  type Candidate,
  type JobSpec,
  type PlanningResult,
  type Profile,
} from "@internevo/domain";
import { planJob, SearchLimitError } from "@internevo/search";
import { withComputeSpeed } from "./compute-speed.ts";

/** What a sweep can vary. Bandwidths and the speed of computation are factors of the measured ones. */
export const SWEEP_AXES = [
  "sequence",
  "nodes",
  "batch",
  "memory",
  "intra-node-bandwidth",
  "inter-node-bandwidth",
  "compute-speed",
] as const;
export type SweepAxis = (typeof SWEEP_AXES)[number];

export interface SweepRow {
  readonly value: number;
  /** The best plan; null where there is none. */
  readonly best: Candidate | null;
  /** Tokens of the whole cluster a second; 0 where there is no plan. */
  readonly tokensPerSecond: number;
  /** Plans that the search looked at and found to fit; it looks at fewer where many fit. */
  readonly feasible: number;
  /** Why there is no plan. */
  readonly reason: string | null;
}

/**
 * Of each axis the field that it varies, and from where to where: as far as a job may go; links beyond a
 * million times are no links.
 */
function boundsOf(
  axis: SweepAxis,
  job: JobSpec,
): { readonly field: string; readonly integer: boolean; readonly least: number; readonly most: number } {
  const whole = { integer: true, least: 1 } as const;
  switch (axis) {
    case "sequence":
      return { field: "sequenceLengthTokens", ...whole, most: 2 ** 40 };
    case "nodes":
      return { field: "cluster.nodes", ...whole, most: Math.floor(MAXIMUM_RANKS / job.cluster.gpusPerNode) };
    case "batch":
      return { field: "globalBatchTokens", ...whole, most: 2 ** 50 };
    case "memory":
      return { field: "cluster.memoryPerGpu", ...whole, most: MAXIMUM_BYTES };
    case "intra-node-bandwidth":
    case "inter-node-bandwidth":
      return { field: "profile.collectives", integer: false, least: 1e-6, most: 1e6 };
    case "compute-speed":
      return { field: "profile.modules", integer: false, least: 1e-3, most: 1e3 };
  }
}

/** Why nothing fits, in people's units. */
export function memoryReason(leastBytes: number, limitBytes: number): string {
  return (
    `every plan needs at least ${formatBytes(leastBytes)} a GPU, ` +
    `${formatBytes(leastBytes - limitBytes)} more than the ${formatBytes(limitBytes)} it has`
  );
}

/**
 * A profile whose links of one kind are `factor` times as fast. What a curve takes at its smallest size is
 * latency and stays; the rest of each time is divided by the factor. Curves that use both kinds of links
 * count as inter-node: the slower link decides.
 */
export function withBandwidth(profile: Profile, kind: "intra-node" | "inter-node", factor: number): Profile {
  const collectives = profile.collectives.map((curve) => {
    if ((curve.placement === "intra-node") !== (kind === "intra-node")) return curve;
    const latency = Math.min(...curve.points.map(({ medianSeconds }) => medianSeconds));
    const scaled = (seconds: number): number =>
      Math.min(seconds, latency) + Math.max(0, seconds - latency) / factor;
    return {
      ...curve,
      points: curve.points.map(({ p10Seconds, p90Seconds, ...point }) => ({
        ...point,
        medianSeconds: scaled(point.medianSeconds),
        ...(p10Seconds === undefined ? {} : { p10Seconds: scaled(p10Seconds) }),
        ...(p90Seconds === undefined ? {} : { p90Seconds: scaled(p90Seconds) }),
      })),
    };
  });
  return { ...profile, name: `${profile.name} (${kind} links x ${factor})`, collectives };
}

/** The job with one thing changed; bandwidths are not the job's. */
export function jobAt(job: JobSpec, axis: SweepAxis, value: number): JobSpec {
  switch (axis) {
    case "sequence":
      return { ...withoutDocuments(job), sequenceLengthTokens: value };
    case "nodes":
      return { ...job, cluster: { ...job.cluster, nodes: value } };
    case "batch":
      return { ...job, globalBatchTokens: value };
    case "memory":
      return { ...job, cluster: { ...job.cluster, memoryPerGpuBytes: value } };
    case "intra-node-bandwidth":
    case "inter-node-bandwidth":
    case "compute-speed":
      return job;
  }
}

/** The job and the profile with one thing changed. */
export function varied(
  job: JobSpec,
  profile: Profile,
  axis: SweepAxis,
  value: number,
): { job: JobSpec; profile: Profile } {
  const changed = jobAt(job, axis, value);
  if (axis === "intra-node-bandwidth")
    return { job: changed, profile: withBandwidth(profile, "intra-node", value) };
  if (axis === "inter-node-bandwidth")
    return { job: changed, profile: withBandwidth(profile, "inter-node", value) };
  if (axis === "compute-speed") return { job: changed, profile: withComputeSpeed(profile, value) };
  return { job: changed, profile };
}

function checkValues(axis: SweepAxis, values: readonly number[], job: JobSpec): void {
  const { field, integer, least, most } = boundsOf(axis, job);
  for (const value of values) {
    if (value >= least && value <= most && (!integer || Number.isSafeInteger(value))) continue;
    const what = `${integer ? "a whole number" : "a number"} from ${least} to ${most}`;
    throw new ProblemError("job-invalid", `a sweep over ${axis} cannot take ${value}`, [
      { field, value, message: `is not ${what}`, remedy: `give ${what}` },
    ]);
  }
}

/** The search of one point; a space that is too large to be searched is a reason, as memory is. */
function searched(job: JobSpec, profile: Profile): PlanningResult | string {
  try {
    return planJob(job, profile, { top: 1 });
  } catch (error) {
    if (error instanceof SearchLimitError) return error.message;
    throw error;
  }
}

/**
 * The best plan of a job; where nothing fits or divides, why. @returns a row without its value
 */
export function pointOf(job: JobSpec, profile: Profile): Omit<SweepRow, "value"> {
  const { globalBatchTokens, sequenceLengthTokens, cluster } = job;
  const none = (reason: string): Omit<SweepRow, "value"> => ({
    best: null,
    tokensPerSecond: 0,
    feasible: 0,
    reason,
  });
  if (globalBatchTokens % sequenceLengthTokens !== 0)
    return none(
      `globalBatchTokens ${globalBatchTokens} is not a ` +
        `multiple of sequenceLengthTokens ${sequenceLengthTokens}`,
    );
  const result = searched(job, profile);
  if (typeof result === "string") return none(result);
  const { candidates, counts, closest } = result;
  const best = candidates[0] ?? null;
  if (best === null)
    return none(
      closest === null
        ? "no plan divides the job over the cluster"
        : memoryReason(closest.peakMemoryBytes, plannedMemoryBytes(job)),
    );
  return {
    best,
    tokensPerSecond: best.predicted.tokensPerGpuPerSecond * cluster.nodes * cluster.gpusPerNode,
    feasible: counts.feasible,
    reason: null,
  };
}

/**
 * The best plan at each value of one axis, everything else as in the job. A value at which nothing fits or
 * divides is a row with its reason, not an error.
 * @throws ProblemError `job-invalid` for values that no job can have.
 */
export function sweep(
  job: JobSpec,
  profile: Profile,
  axis: SweepAxis,
  values: readonly number[],
  signal?: AbortSignal,
): SweepRow[] {
  checkValues(axis, values, job);
  return values.map((value) => {
    signal?.throwIfAborted();
    const changed = varied(job, profile, axis, value);
    return { value, ...pointOf(changed.job, changed.profile) };
  });
}
