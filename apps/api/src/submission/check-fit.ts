import { MOST_LISTED_RANKS, shippedProfile } from "@internevo/cost-model";
import {
  DEFAULT_PROJECT,
  ProblemError,
  writeBytes,
  type JobSpec,
  type PlanningResult,
  type Profile,
  tooLittleMemory,
} from "@internevo/domain";
import { clusterRanks, pinnedFault, pinnedPlan } from "@internevo/plan";
import { exceedsHosts, freshProfile, namedProfile, noFeasiblePlan, type Measuring } from "@internevo/stages";
import type { Database } from "@internevo/store";
import type { PlanTask } from "../work/tasks.ts";
import type { Workers } from "../work/workers.ts";

/** What the program itself takes of a rank's memory, beside what plans need. */
export interface RuntimeMemory {
  readonly bytes: number;
  /** What is not counted, as a clause; undefined where the job will be planned with just this. */
  readonly uncounted: () => Promise<string | undefined>;
}

const UNKNOWN: RuntimeMemory = {
  bytes: 0,
  uncounted: () =>
    Promise.resolve(
      "what the trainer's program itself takes is not counted: it is measured before the job is planned",
    ),
};

/** Who counts what a job measures first, and until when somebody waits. */
export interface Asking {
  readonly workers: Pick<Workers, "firstCounts">;
  readonly gone: AbortSignal;
}

/** Whether a job measures something before it is planned; of a very large cluster that is taken for likely. */
async function measuresFirst(spec: JobSpec, fresh: Profile, { workers, gone }: Asking): Promise<boolean> {
  if (clusterRanks(spec) > MOST_LISTED_RANKS) return true;
  const { missing, noisy } = await workers.firstCounts(spec, fresh, gone);
  return missing + noisy > 0;
}

/**
 * What the profile says that the job will be planned with, as far as it is known now: of the one that it
 * names, else of the fresh one of its cluster.
 * @param measuring undefined where it is not known here with how many threads a rank computes.
 */
export async function runtimeMemory(
  database: Database,
  spec: JobSpec,
  measuring: Measuring | undefined,
  asking: Asking,
): Promise<RuntimeMemory> {
  const { profile: name, launcher } = spec.cluster;
  if (name !== null) {
    const { project = DEFAULT_PROJECT } = spec;
    const { profile } = await namedProfile(database.db, name, "cluster.profile", { project, launcher });
    const threads = measuring === undefined ? "scratch of a rank's threads is not counted" : undefined;
    return { bytes: profile.device.runtimeBytes, uncounted: () => Promise.resolve(threads) };
  }
  if (measuring === undefined || spec.measureAgain === true) return UNKNOWN;
  const fresh = await freshProfile(database, spec, measuring).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return undefined;
  });
  if (!fresh) return UNKNOWN;
  return {
    bytes: fresh.profile.device.runtimeBytes,
    uncounted: async () =>
      (await measuresFirst(spec, fresh.profile, asking))
        ? "what the trainer's program itself takes is measured again before the job is planned, and may come out larger"
        : undefined,
  };
}

/**
 * Of whose figures memory takes the program's own alone: plans need no less on any cluster. The search wants
 * rates of copies to the host before it looks at plans that copy. The shipped profile has none, and any do:
 * nothing is said of times.
 */
const ANY_PROFILE = shippedProfile("a800-128");
const ANY_RATE = 1e10;

const withRuntime = new Map<number, Profile>();
const MOST_KEPT = 16;
function leastMemoryProfile(runtimeBytes: number): Profile {
  const known = withRuntime.get(runtimeBytes);
  if (known) return known;
  const { device } = ANY_PROFILE;
  const rates = { toHostBytesPerSecond: ANY_RATE, toDeviceBytesPerSecond: ANY_RATE };
  const made = { ...ANY_PROFILE, device: { ...device, ...rates, runtimeBytes } };
  if (withRuntime.size >= MOST_KEPT) withRuntime.clear();
  withRuntime.set(runtimeBytes, made);
  return made;
}

/**
 * What is asked to know whether any plan fits. Memory alone decides that, so the job is asked without its time
 * model: the published one leaves out plans whose time was not measured.
 */
export function fitTask(spec: JobSpec, runtime: RuntimeMemory, threadsPerRank: number | undefined): PlanTask {
  const { timeModel: _timeModel, ...timeless } = spec;
  return {
    spec: timeless,
    profile: leastMemoryProfile(runtime.bytes),
    top: 1,
    ...(threadsPerRank === undefined ? {} : { threadsPerRank }),
  };
}

/** The field of a job that lets no plan fit, with its value. */
function tooSmall(spec: JobSpec, { closest }: PlanningResult) {
  const { cluster, headroom } = spec;
  if (closest === null) return { field: "cluster.gpusPerNode", value: cluster.gpusPerNode };
  const field = tooLittleMemory(spec, closest.peakMemoryBytes);
  return { field, value: field === "headroom" ? headroom : writeBytes(cluster.memoryPerGpuBytes) };
}

/**
 * Refuses a job that no plan fits, which needs no measurement to be known.
 * @param result of {@link fitTask}; null where it would have taken long.
 * @throws ProblemError `no-feasible-plan`
 */
export async function assertFits(
  spec: JobSpec,
  result: PlanningResult | null,
  runtime: RuntimeMemory,
): Promise<void> {
  if (result === null || result.counts.feasible > 0) return;
  const fault = pinnedFault(spec);
  if (fault !== null) {
    const { field, message, remedy } = fault;
    throw new ProblemError("no-feasible-plan", "the job's plan does not divide the job", [
      { field: `plan.${field}`, value: pinnedPlan(spec)?.[field], message, remedy },
    ]);
  }
  const { message, remedy = "change the job" } = noFeasiblePlan(spec, result, await runtime.uncounted());
  if (result.unmet !== undefined)
    throw new ProblemError("no-feasible-plan", "no plan is as the job's plan asks", [
      { field: "plan", message, remedy },
    ]);
  const { hostMemoryBytes } = spec.cluster;
  if (exceedsHosts(result) && hostMemoryBytes !== undefined)
    throw new ProblemError("no-feasible-plan", message, [
      { field: "cluster.hostMemory", value: writeBytes(hostMemoryBytes), message, remedy },
    ]);
  throw new ProblemError("no-feasible-plan", message, [{ ...tooSmall(spec, result), message, remedy }]);
}
