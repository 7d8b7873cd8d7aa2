import { requiredMeasurements } from "@internevo/cost-model";
import {
  choiceOf,
  clusterKey,
  differencesOf,
  resolveJob,
  tokensPerRankPerSecond,
  worldSize,
  type Candidate,
  type Failure,
  type JobSpec,
  type Measurement,
  type ModuleShape,
  type PlanningResult,
  type Profile,
  type Report,
  type StepMetric,
  type Trial,
} from "@internevo/domain";
import { planJob } from "@internevo/search";
import {
  appendJobEvents,
  createProposal,
  createTrials,
  createWorkload,
  ensureRun,
  finishAttempt,
  finishFiring,
  finishTrial,
  fireWorkloadNow,
  recordSteps,
  recordValidations,
  startAttempt,
  startTrial,
  storeDeadLetter,
  storePlanning,
  storeProfile,
  submitJob,
  transitionJob,
  updateJob,
  type Database,
  type NewDeadLetter,
} from "@internevo/store";

/** A job as people write it; four ranks, so that its plans differ in more than one dimension. */
export const jobFile = (name: string, changes: Record<string, unknown> = {}): Record<string, unknown> => ({
  name,
  model: {
    name: "llama-1m",
    hiddenSize: 128,
    layers: 4,
    heads: 8,
    kvHeads: 4,
    ffnHiddenSize: 384,
    vocabularySize: 256,
  },
  sequenceLengthTokens: 256,
  globalBatchTokens: 4096,
  precision: "fp32",
  steps: 200,
  data: { format: "text", paths: ["/usr/share/common-licenses/GPL-3"] },
  cluster: { name: "this-machine", nodes: 1, gpusPerNode: 4, memoryPerGpu: "512MiB" },
  ...changes,
});

/** A tight cluster with slow links and a head count that four ranks don't divide: it rejects plans. */
export const TIGHT = {
  model: {
    name: "llama-tight",
    hiddenSize: 96,
    layers: 4,
    heads: 6,
    kvHeads: 6,
    ffnHiddenSize: 256,
    vocabularySize: 256,
  },
  cluster: { name: "tight", nodes: 1, gpusPerNode: 4, memoryPerGpu: "46MiB" },
} as const;

/** The ten best plans as a release stored them whose trainer did not run the best of them. */
function planWithBarredBest(spec: JobSpec, profile: Profile): PlanningResult {
  const planning = planJob(spec, profile, { top: 11 });
  const [best, ...others] = planning.candidates.slice(0, 10);
  const barred =
    best === undefined
      ? []
      : [{ ...best, runnable: false, notRunnableReason: "the trainer of this release does not run it" }];
  return {
    ...planning,
    candidates: [...barred, ...others],
    runnableCandidates: planning.runnableCandidates.slice(1),
  };
}

function flopsOf(shape: ModuleShape): number {
  if ("inputs" in shape) return 2 * shape.rows * shape.inputs * shape.outputs;
  if ("batch" in shape) return 4 * shape.batch * shape.heads * shape.sequence ** 2 * shape.headSize;
  if ("vocabulary" in shape)
    return 6 * shape.rows * shape.width * (shape.module === "embedding" ? 1 : shape.vocabulary);
  if ("elements" in shape) return 12 * shape.elements;
  return 20 * shape.rows * ("width" in shape ? shape.width : shape.heads * shape.headSize);
}

/** A profile with every measurement that a job needs, of ranks of 25 GFLOP/s. */
export function profileFor(spec: JobSpec, linkBytesPerSecond = 4e9): Profile {
  const { modules, collectives } = requiredMeasurements(spec);
  const curves = new Map<string, Profile["collectives"][number]>();
  for (const { op, bytes, groups, placement } of collectives) {
    const groupSize = groups[0]?.length ?? 1;
    const key = `${op} ${groupSize} ${placement}`;
    const curve = curves.get(key) ?? { op, groupSize, placement, points: [] };
    const medianSeconds =
      6e-6 * groupSize +
      ((op === "all-reduce" ? 2 : 1) * bytes * (groupSize - 1)) / groupSize / linkBytesPerSecond;
    curve.points.push({
      bytes,
      medianSeconds,
      p10Seconds: medianSeconds * 0.93,
      p90Seconds: medianSeconds * 1.18,
      samples: 30,
    });
    curves.set(key, curve);
  }
  for (const curve of curves.values()) curve.points.sort((a, b) => a.bytes - b.bytes);
  return {
    schemaVersion: 1,
    name: spec.cluster.name,
    cluster: { nodes: spec.cluster.nodes, gpusPerNode: spec.cluster.gpusPerNode },
    device: {
      name: "a test's CPU",
      peakFlopsPerSecondFp32: 3.2e10,
      peakFlopsPerSecondBf16: 3.2e10,
      memoryBandwidthBytesPerSecond: 1.2e10,
      runtimeBytes: 24 * 2 ** 20,
    },
    executor: { forwardOverlap: "none", backwardOverlap: "none" },
    collectives: [...curves.values()],
    modules: modules.map((shape) => {
      const medianSeconds = 4e-6 + (flopsOf(shape) * (shape.pass === "backward" ? 2 : 1)) / 2.5e10;
      return {
        shape,
        medianSeconds,
        p10Seconds: medianSeconds * 0.97,
        p90Seconds: medianSeconds * 1.06,
        samples: 20,
      };
    }),
    overlaps: [{ op: "all-gather", groupSize: 2, bytes: 1 << 20, slowdown: 1.31 }],
    provenance: {
      source: "written down for a test",
      measuredAt: "2026-01-02T03:04:05.000Z",
      versions: { probe: "0.1.0" },
      command: "internevo profile job.yaml",
      notes: ["Times follow a formula, so that plans can be told apart."],
    },
  };
}

/**
 * What a trial of a candidate measures: near the prediction, off by a little that depends on the rank only.
 */
export function measurementOf({ rank, predicted }: Candidate): Measurement {
  const stepTimeSeconds = predicted.stepTimeSeconds * (1 + 0.05 * Math.sin(rank * 2.3) + 0.03);
  const memory = Object.fromEntries(
    Object.entries(predicted.memory).map(([line, bytes]) => [line, Math.round(bytes * 0.995)]),
  );
  return {
    stepTimeSeconds,
    stepTimeSecondsP10: stepTimeSeconds * 0.98,
    stepTimeSecondsP90: stepTimeSeconds * 1.05,
    steps: 5,
    tokensPerGpuPerSecond: (predicted.tokensPerGpuPerSecond * predicted.stepTimeSeconds) / stepTimeSeconds,
    peakMemoryBytes: Math.round(predicted.peakMemoryBytes * 0.995),
    residentPeakBytes: Math.round(predicted.peakMemoryBytes * 1.1),
    memory,
    loss: 5.4 - rank * 0.001,
    communicationSeconds: stepTimeSeconds * 0.2,
  };
}

export const OUT_OF_MEMORY: Failure = {
  code: "out-of-memory",
  message: "the memory plan needs 512.4 MiB, the limit is 512.0 MiB",
  rank: 1,
  remedy: "shard parameters over more ranks",
};
export const UNIGRAM_ENTROPY_NATS = 3.12;

export const stepMetric = (step: number, attempt = 1): StepMetric => ({
  step,
  attempt,
  loss: 1.9 + 3.6 * Math.exp(-step / 40) + 0.05 * Math.sin(step * 1.7),
  gradientNorm: 1 + 1 / step,
  learningRate: 3e-4 * Math.min(1, step / 10),
  stepTimeSeconds: 0.11 + 0.006 * Math.sin(step),
  tokensPerSecond: 4096 / (0.11 + 0.006 * Math.sin(step)),
  exposedCommunicationSeconds: 0.012,
  at: new Date().toISOString(),
});

export interface SeededJob {
  readonly id: string;
  readonly spec: JobSpec;
  readonly profileId: string;
  readonly planning: PlanningResult;
}

/** Stores jobs as the services would, stage by stage, through the same repositories. */
export function seeder(database: Database) {
  const submit = (
    name: string,
    changes: Record<string, unknown> = {},
  ): Promise<{ id: string; spec: JobSpec }> => {
    const spec = resolveJob(jobFile(name, changes));
    return database.transaction(async (tx) => ({ id: await submitJob(tx, spec), spec }));
  };
  const progress = (
    jobId: string,
    stage: string,
    message: string,
    done: number,
    total: number,
  ): Promise<void> =>
    database.transaction((tx) =>
      appendJobEvents(tx, jobId, [{ type: "progress", data: { stage, message, done, total } }]),
    );
  const log = (jobId: string, source: string, message: string, level = "info"): Promise<void> =>
    database.transaction((tx) =>
      appendJobEvents(tx, jobId, [{ type: "log", data: { level, source, message } }]),
    );

  /** Brings a new job to `planning`, with a stored profile. */
  const profiled = async (
    name: string,
    kind: "roomy" | "tight",
  ): Promise<Omit<SeededJob, "planning"> & { profile: Profile }> => {
    const { id, spec } = await submit(name, kind === "tight" ? TIGHT : {});
    const profile = profileFor(spec, kind === "tight" ? 5e7 : 4e9);
    const profileId = await database.transaction(async (tx) => {
      const stored = await storeProfile(tx, {
        clusterKey: clusterKey(spec.cluster),
        profile,
        freshForSeconds: 86_400,
      });
      await updateJob(tx, id, { profileId: stored });
      await transitionJob(tx, { jobId: id, from: "profiling", to: "planning" });
      return stored;
    });
    return { id, spec, profileId, profile };
  };

  /** Brings a new job to `trialling`: planned by the real planner, its trials waiting. */
  const trialling = async (
    name: string,
    kind: "roomy" | "tight" = "roomy",
  ): Promise<SeededJob & { trials: Trial[] }> => {
    const { id, spec, profileId, profile } = await profiled(name, kind);
    const planning = planWithBarredBest(spec, profile);
    const trials = await database.transaction(async (tx) => {
      const planningId = await storePlanning(tx, planning, { jobId: id, profileId });
      await updateJob(tx, id, { planningId });
      const made = await createTrials(tx, id, planning.runnableCandidates);
      await transitionJob(tx, { jobId: id, from: "planning", to: "trialling" });
      return made;
    });
    return { id, spec, profileId, planning, trials };
  };

  const runTrial = async (
    trial: Trial,
    outcome: { measured: Measurement } | { failure: Failure } = { measured: measurementOf(trial.candidate) },
  ): Promise<Trial | undefined> => {
    await database.transaction((tx) => startTrial(tx, trial.id));
    return database.transaction((tx) => finishTrial(tx, trial.id, outcome));
  };

  /**
   * Brings a new job to `running`: every trial has ended, number four out of memory; a plan is chosen as
   * services do.
   */
  const running = async (
    name: string,
    kind: "roomy" | "tight" = "roomy",
  ): Promise<SeededJob & { chosen: Candidate; runId: string }> => {
    const job = await trialling(name, kind);
    for (const trial of job.trials)
      await runTrial(trial, trial.candidate.rank === 4 ? { failure: OUT_OF_MEMORY } : undefined);
    const chosen = choiceOf(
      job.trials.map(({ candidate }) => ({
        candidate,
        measured: candidate.rank === 4 ? null : measurementOf(candidate),
      })),
    )?.chosen;
    if (!chosen) throw new Error("no trial was measured");
    const runId = await database.transaction(async (tx) => {
      await updateJob(tx, job.id, { chosen });
      await transitionJob(tx, { jobId: job.id, from: "trialling", to: "running" });
      return (await ensureRun(tx, job.id, chosen)).id;
    });
    return { ...job, chosen, runId };
  };

  const steps = (jobId: string, runId: string, from: number, to: number, attempt = 1): Promise<void> =>
    database.transaction((tx) =>
      recordSteps(
        tx,
        { jobId, runId },
        Array.from({ length: to - from + 1 }, (_, index) => stepMetric(from + index, attempt)),
      ),
    );

  /** A job that ended well, after one restart. */
  const succeeded = async (
    name: string,
    kind: "roomy" | "tight" = "roomy",
  ): Promise<SeededJob & { report: Report }> => {
    const job = await running(name, kind);
    const { id, runId, chosen } = job;
    await database.transaction((tx) => startAttempt(tx, runId));
    await log(id, "trainer", "training starts");
    await steps(id, runId, 1, 87);
    await database.transaction((tx) =>
      finishAttempt(tx, runId, 1, {
        state: "failed",
        failure: { code: "rank-lost", message: "rank 1 was ended by signal 9", rank: 1 },
      }),
    );
    await log(
      id,
      "supervisor",
      "rank 1 was ended by signal 9; restarting from the checkpoint of step 80",
      "warn",
    );
    await database.transaction((tx) => startAttempt(tx, runId, 80));
    await steps(id, runId, 81, 200, 2);
    const validations = [0, 50, 100, 150, 200].map((step) => ({
      step,
      loss: 5.6 - step / 56,
      tokens: 65_536,
      seconds: 0.4,
      attempt: step > 80 ? 2 : 1,
      at: new Date().toISOString(),
    }));
    await database.transaction((tx) => recordValidations(tx, { jobId: id, runId }, validations));
    await database.transaction((tx) => finishAttempt(tx, runId, 2, { state: "succeeded" }));
    const meanStepTimeSeconds =
      Array.from({ length: 200 }, (_, index) => stepMetric(index + 1).stepTimeSeconds).reduce(
        (sum, seconds) => sum + seconds,
        0,
      ) / 200;
    const report: Report = {
      plan: chosen.plan,
      steps: 200,
      finalLossNats: 1.934,
      unigramEntropyNats: UNIGRAM_ENTROPY_NATS,
      validation: {
        lossNats: 5.6 - 200 / 56,
        best: { step: 200, lossNats: 5.6 - 200 / 56 },
        evaluations: 5,
        seconds: 2,
      },
      meanStepTimeSeconds,
      tokensPerGpuPerSecond: tokensPerRankPerSecond(job.spec, [
        { steps: 200, seconds: 200 * meanStepTimeSeconds, ranks: worldSize(chosen.plan) },
      ]),
      attempts: 2,
      timeErrorOverTrials: 0.0432,
      memoryErrorOverTrials: 0.005,
      kendallTauOverTrials: 0.78,
    };
    await database.transaction((tx) =>
      transitionJob(tx, { jobId: id, from: "running", to: "succeeded", report }),
    );
    return { ...job, report };
  };

  const failed = async (name: string, failure: Failure): Promise<string> => {
    const { id } = await submit(name);
    await database.transaction((tx) =>
      transitionJob(tx, { jobId: id, from: "profiling", to: "failed", failure }),
    );
    return id;
  };

  const register = (name: string, over: object = {}) =>
    createWorkload(database.db, {
      name,
      spec: resolveJob({ ...jobFile(name), ...over }),
      cron: "0 3 * * *",
      timeZone: "Europe/Berlin",
      catchUpWindowSeconds: 3600,
      gainThreshold: 0.02,
      nextRunAt: new Date(Date.now() + 6 * 3_600_000),
    });

  /** A workload whose last run proposed its second-best plan's successor. */
  const workload = async (
    name: string,
    planning: PlanningResult,
    { first = false, ...over }: { first?: boolean; headroom?: string } = {},
  ): Promise<string> => {
    const [proposed, second] = planning.runnableCandidates;
    if (!proposed || !second) throw new Error("the planning has fewer than two plans");
    const current = first ? null : second;
    const { id } = await register(name, over);
    await database.transaction(async (tx) => {
      const firing = await fireWorkloadNow(tx, id);
      await createProposal(tx, {
        workloadId: id,
        firingId: firing.id,
        planningId: null,
        current,
        proposed,
        predictedGain: current
          ? 1 - proposed.predicted.stepTimeSeconds / current.predicted.stepTimeSeconds
          : 0,
        differences: differencesOf(current?.plan ?? null, proposed.plan),
      });
      await finishFiring(tx, firing.id, { state: "succeeded", outcome: "proposed a plan" });
    });
    return id;
  };

  const deadLetter = (letter: Partial<NewDeadLetter> = {}): Promise<string> =>
    storeDeadLetter(database.db, {
      consumer: "planner",
      messageId: crypto.randomUUID(),
      messageType: "job.plan",
      subject: "internevo.command.job.plan",
      payload: { data: { jobId: "not-a-job" } },
      error: "data.jobId: is not a uuid",
      deliveries: 5,
      ...letter,
    });

  return {
    submit,
    progress,
    log,
    profiled,
    trialling,
    runTrial,
    running,
    steps,
    succeeded,
    failed,
    register,
    workload,
    deadLetter,
  };
}
