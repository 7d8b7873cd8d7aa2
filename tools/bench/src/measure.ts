import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { buildMesh, requiredMeasurements } from "@internevo/cost-model";
import type { TrainerEvent } from "@internevo/contracts";
import { resolveJob, worldSize, type Failure, type JobSpec, type Measurement, type Plan, type Profile } from "@internevo/domain";
import { launchRanks, measureProfile, prepareDataset, probeIn, trainerConfig, trainerIn, type Dataset } from "@internevo/launcher";
import { parse } from "yaml";
import { measurementOf } from "../../../apps/trial-runner/src/measurement.ts";

/** What the benchmarks of this folder share: real ranks of this machine, without services. */
export const repository = resolve(import.meta.dirname, "../../..");
const native = join(repository, "native", "dist");
const THREADS_PER_RANK = 1;

export async function readJob(path: string): Promise<JobSpec> {
  return resolveJob(parse(await readFile(path, "utf8")));
}

/** Runs `work` with a folder of its own, which is gone afterwards. */
export async function withScratch<T>(work: (directory: string) => Promise<T>): Promise<T> {
  const directory = await mkdtemp(join(tmpdir(), "internevo-bench-"));
  try {
    return await work(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

export async function datasetOf(spec: JobSpec, directory: string): Promise<Dataset> {
  if (!spec.data) throw new Error(`the job ${spec.name} has no data`);
  return prepareDataset(spec.data, directory, { vocabularySize: spec.model.vocabularySize, sequenceLengthTokens: spec.sequenceLengthTokens });
}

/** Measures this machine with the probe, for one job. */
export async function profileFor(spec: JobSpec, directory: string): Promise<Profile> {
  const outcome = await measureProfile({
    probe: probeIn(native),
    cluster: spec.cluster,
    needed: requiredMeasurements(spec),
    threadsPerRank: THREADS_PER_RANK,
    effort: { minimumSamples: 7, maximumSecondsPerPoint: 0.5, targetRelativeSpread: 0.05 },
    runDirectory: join(directory, "probe"),
    signal: new AbortController().signal,
    timeoutSeconds: 600,
    onProgress: (done, total, message) => {
      if (done % 25 === 0) console.error(`profile ${done}/${total}: ${message}`);
    },
  });
  if (outcome.status !== "measured") throw new Error(`the probe did not finish: ${JSON.stringify(outcome)}`);
  return outcome.profile;
}

/** Trains `warmupSteps + measuredSteps` steps of a plan, from the first. */
export async function runPlan(options: { spec: JobSpec; plan: Plan; dataset: Dataset; directory: string; warmupSteps: number; measuredSteps: number; threadsPerRank?: number }): Promise<Measurement | Failure> {
  const { spec, plan, dataset, directory, warmupSteps, measuredSteps, threadsPerRank = THREADS_PER_RANK } = options;
  const events: TrainerEvent[] = [];
  const outcome = await launchRanks({
    program: trainerIn(native),
    config: trainerConfig({ spec, plan, mesh: buildMesh(plan), dataset, steps: warmupSteps + measuredSteps, checkpoint: null, threadsPerRank }),
    ranks: worldSize(plan),
    threadsPerRank,
    launcher: "local",
    runDirectory: join(directory, "run"),
    timeoutSeconds: 600,
    onEvent: (event) => events.push(event),
  });
  if (outcome.status === "failed") return outcome.failure;
  return measurementOf({
    started: events.find((event) => event.event === "started"),
    steps: events.filter((event) => event.event === "step"),
    warmupSteps,
    measuredSteps,
  });
}
