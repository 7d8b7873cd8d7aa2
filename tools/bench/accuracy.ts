// Predicted against measured: profiles this machine, plans a job, runs a sample of its runnable plans in random order, each
// `--repeat` times, and compares. usage: npm run bench -- accuracy [--job JOB.yaml] [--plans 20] [--repeat 2] [--seed 1]   prints JSON
import { join } from "node:path";
import { parseArgs } from "node:util";
import { planLabel, type Measurement } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { kendallTau } from "../../apps/executor-supervisor/src/report.ts";
import { quantile } from "../../apps/trial-runner/src/measurement.ts";
import { datasetOf, profileFor, readJob, repository, runPlan, withScratch } from "./src/measure.ts";

const { values } = parseArgs({
  options: { job: { type: "string", default: join(repository, "examples/quickstart.yaml") }, plans: { type: "string", default: "20" }, repeat: { type: "string", default: "2" }, seed: { type: "string", default: "1" } },
});

/** A small generator with a seed (mulberry32), so that a run can be repeated in the same order. */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function shuffled<T>(items: readonly T[], random: () => number): T[] {
  const list = [...items];
  for (let last = list.length - 1; last > 0; last -= 1) {
    const other = Math.floor(random() * (last + 1));
    [list[last], list[other]] = [list[other] as T, list[last] as T];
  }
  return list;
}

const spec = await readJob(values.job);
const random = generator(Number(values.seed));
const report = await withScratch(async (directory) => {
  const profile = await profileFor(spec, directory);
  const dataset = await datasetOf(spec, directory);
  const runnable = planJob(spec, profile, { top: 1000 }).runnableCandidates;
  // The ten that would be tried, and others from the whole range.
  const chosen = [...runnable.slice(0, 10), ...shuffled(runnable.slice(10), random).slice(0, Math.max(0, Number(values.plans) - 10))];
  const runs = shuffled(chosen.flatMap((candidate) => Array.from({ length: Number(values.repeat) }, () => candidate)), random);
  const measurements = new Map<string, Measurement[]>();
  for (const [index, { plan }] of runs.entries()) {
    const label = planLabel(plan);
    console.error(`run ${index + 1}/${runs.length}: ${label}`);
    const measured = await runPlan({ spec, plan, dataset, directory, warmupSteps: 2, measuredSteps: 5 });
    if ("code" in measured) throw new Error(`${label}: ${measured.message}`);
    measurements.set(label, [...(measurements.get(label) ?? []), measured]);
  }
  const rows = chosen.map(({ plan, rank, predicted }) => {
    const list = measurements.get(planLabel(plan)) ?? [];
    const seconds = quantile(list.map((each) => each.stepTimeSeconds), 0.5);
    const bytes = Math.max(...list.map((each) => each.peakMemoryBytes));
    return {
      rank,
      plan: planLabel(plan),
      predictedSeconds: predicted.stepTimeSeconds,
      measuredSeconds: seconds,
      timeError: predicted.stepTimeSeconds / seconds - 1,
      predictedBytes: predicted.peakMemoryBytes,
      measuredBytes: bytes,
      memoryError: predicted.peakMemoryBytes / bytes - 1,
    };
  });
  const absolute = (list: readonly number[]) => ({ mean: list.reduce((sum, each) => sum + Math.abs(each), 0) / list.length, worst: Math.max(...list.map(Math.abs)) });
  const fastest = rows.reduce((best, row) => (row.measuredSeconds < best.measuredSeconds ? row : best));
  const first = rows[0];
  return {
    benchmark: "accuracy",
    job: spec.name,
    device: profile.device.name,
    plans: rows.length,
    repeat: Number(values.repeat),
    timeError: absolute(rows.map((row) => row.timeError)),
    memoryError: absolute(rows.map((row) => row.memoryError)),
    kendallTau: kendallTau(rows.map((row) => [row.predictedSeconds, row.measuredSeconds] as const)),
    fastestMeasuredIsPredictedRank: fastest.rank,
    firstPredictedIsSlowerThanFastestBy: first ? first.measuredSeconds / fastest.measuredSeconds - 1 : null,
    warnings: planJob(spec, profile).warnings,
    rows,
  };
});
console.log(JSON.stringify(report, null, 2));
