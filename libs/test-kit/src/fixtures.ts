import {
  REJECTION_REASONS,
  resolveJob,
  type Candidate,
  type JobSpec,
  type Measurement,
  type PlanningResult,
  type ProfileQuality,
  type StepMetric,
} from "@internevo/domain";
import { aJob } from "./a-job.ts";
import { aPlan } from "./a-plan.ts";

/**
 * Documents for the tests of this package and of those above it: shapes as the schemas want them, figures
 * without a meaning.
 */
export const exampleSpec = (name = "example"): JobSpec => resolveJob(aJob({ name }));

/** A job of 16 GPUs that the shipped profile `a800-128` plans, and that writes checkpoints. */
export const shippedProfileSpec = (): JobSpec =>
  resolveJob({
    name: "changing",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 4 * 1024 * 1024,
    cluster: { nodes: 2, gpusPerNode: 8, memoryPerGpu: "80GB", profile: "a800-128" },
    checkpointing: { everySteps: 100, keepLast: 2 },
  });

/** How quiet a profile of one point was measured. */
export const exampleQuality = (over: Partial<ProfileQuality> = {}): ProfileQuality => ({
  verdict: "quiet",
  points: 1,
  noisyPoints: 0,
  mostSpreadPercent: 100,
  mostOthersPercent: 10,
  measuredAgain: 0,
  worstSpreadPercent: 0,
  disturbances: [],
  hosts: [],
  ...over,
});

export const exampleCandidate = (rank = 1): Candidate => ({
  rank,
  plan: aPlan({ microBatches: rank, dataParallel: 2 }),
  placement: { rankOrder: ["dataParallel"], nodesPerGroup: { dataParallel: 1 } },
  predicted: {
    stepTimeSeconds: rank,
    tokensPerGpuPerSecond: 512 / rank,
    peakMemoryBytes: 1000 * rank,
    memory: { parameters: 1000 * rank },
    time: {
      computeSeconds: rank,
      recomputeSeconds: 0,
      sequenceCommunicationSeconds: 0,
      parameterCommunicationSeconds: 0,
      gradientCommunicationSeconds: 0,
      pipelineBubbleSeconds: 0,
      pipelineCommunicationSeconds: 0,
      updateSeconds: 0,
    },
    mfu: 0.5,
    mfuFullAttention: 0.5,
    hfu: 0.5,
    speedOfLight: 0.5,
  },
  runnable: true,
  notRunnableReason: null,
});

export const examplePlanning = (candidates: number): PlanningResult => ({
  schemaVersion: 1,
  job: "example",
  profile: "example",
  memoryModel: "executor",
  memoryLimitBytes: 2 ** 30,
  candidates: Array.from({ length: candidates }, (_, index) => exampleCandidate(index + 1)),
  runnableCandidates: [exampleCandidate(2)],
  counts: {
    evaluated: 10,
    feasible: candidates,
    rejected: {
      ...(Object.fromEntries(
        REJECTION_REASONS.map((reason) => [reason, 0]),
      ) as PlanningResult["counts"]["rejected"]),
      "memory-exceeded": 10 - candidates,
    },
  },
  closest: null,
  warnings: ["one"],
});

export const exampleMeasurement = (): Measurement => ({
  stepTimeSeconds: 1,
  stepTimeSecondsP10: 0.9,
  stepTimeSecondsP90: 1.1,
  steps: 5,
  tokensPerGpuPerSecond: 512,
  peakMemoryBytes: 900,
  residentPeakBytes: 950,
  memory: { parameters: 900 },
  loss: 5.5,
  communicationSeconds: 0.1,
});

export const exampleStep = (step: number, attempt: number, loss = 5): StepMetric => ({
  step,
  attempt,
  loss,
  gradientNorm: 1,
  learningRate: 1e-4,
  stepTimeSeconds: 1,
  tokensPerSecond: 1024,
  exposedCommunicationSeconds: 0.1,
  at: new Date(1_700_000_000_000 + step).toISOString(),
});
