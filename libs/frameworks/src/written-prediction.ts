import { CostModel } from "@internevo/cost-model";
import type { JobSpec, MemoryLines, Profile } from "@internevo/domain";
import type { PlanOfJob } from "@internevo/plan";
import type { ExportedConfiguration } from "./framework.ts";

/**
 * What the plan that a configuration says needs and takes in our executor, which may be another than the plan
 * that was asked for.
 */
export interface WrittenPrediction {
  readonly plan: PlanOfJob;
  readonly peakMemoryBytes: number;
  readonly memory: MemoryLines;
  readonly memoryLimitBytes: number;
  readonly fits: boolean;
  /** Null without a profile. */
  readonly stepTimeSeconds: number | null;
  /** Bytes beside the arena, from the profile; null without one: then the memory is without them. */
  readonly runtimeBytes: number | null;
}

/**
 * For predictions of memory alone, which need of a profile only the program's own memory: here none. Times of
 * it mean nothing.
 */
export const unmeasuredProfile = (job: JobSpec): Profile => ({
  schemaVersion: 1,
  name: "none",
  cluster: { nodes: job.cluster.nodes, gpusPerNode: job.cluster.gpusPerNode },
  device: {
    name: "unknown",
    peakFlopsPerSecondFp32: 1e12,
    peakFlopsPerSecondBf16: 1e12,
    memoryBandwidthBytesPerSecond: 1e12,
    runtimeBytes: 0,
  },
  executor: { forwardOverlap: "none", backwardOverlap: "none" },
  collectives: [],
  modules: [],
  overlaps: [],
  provenance: { source: "none", measuredAt: null, versions: {}, command: null, notes: [] },
});

/** The job as its configuration says it: in another precision, say, where the framework has no such. */
export function writtenJob(
  job: JobSpec,
  { inexpressible }: Pick<ExportedConfiguration, "inexpressible">,
): JobSpec {
  const nearest = new Map(inexpressible.map((each) => [each.field, each.nearest]));
  const precision = nearest.get("precision") as JobSpec["precision"] | undefined;
  const tiedEmbeddings = nearest.get("model.tiedEmbeddings") as boolean | undefined;
  const { documents: _documents, ...rest } = job;
  // Sequences are whole texts there, whatever documents leave of attention.
  const isWhole = job.data !== null && nearest.get("data.packing") === "none";
  const { packing: _packing, ...data } = job.data ?? {};
  return {
    ...(isWhole ? { ...rest, data: data as JobSpec["data"] } : job),
    ...(precision === undefined ? {} : { precision }),
    ...(tiedEmbeddings === undefined ? {} : { model: { ...job.model, tiedEmbeddings } }),
  };
}

/**
 * Predicts what was written, so that nobody starts a configuration that cannot fit.
 * @param profile what was measured; null: memory alone is predicted, without the runtime's.
 */
export function predictWritten(
  job: JobSpec,
  exported: ExportedConfiguration,
  profile: Profile | null,
): WrittenPrediction {
  const model = new CostModel(writtenJob(job, exported), profile ?? unmeasuredProfile(job));
  const { plan } = exported;
  const { bytes, lines } = model.memory(plan);
  const { memoryPerGpuBytes: memoryLimitBytes } = model.job.cluster;
  return {
    plan,
    peakMemoryBytes: bytes,
    memory: lines,
    memoryLimitBytes,
    fits: bytes <= memoryLimitBytes,
    stepTimeSeconds: profile === null ? null : model.predict(plan).stepTimeSeconds,
    runtimeBytes: profile === null ? null : profile.device.runtimeBytes,
  };
}
