// What a precision does to the loss: one job trained in several precisions, under several plans; JSON on stdout.
// usage: npm run --silent bench -- precision [JOB.yaml] [--steps 200] [--precisions bf16,bf16-grad16] [--plans 'PLAN;PLAN']
import { join } from "node:path";
import { parseArgs } from "node:util";
import { parsePlanLabel, PRECISIONS, worldSize, type JobSpec, type Precision } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { datasetOf, observePlan, readJob, repository, withScratch } from "./src/measure.ts";
import { observeCircumstances } from "./src/report.ts";
import { numberFrom } from "./src/small-jobs.ts";

/** One micro-batch; as many as there are; and two ranks that share gradients and optimizer states. */
const PLANS = [
  "b4 n1 a0 pp1 dp1 tp1 sp1 ps1 gs1 oss1",
  "b1 n4 a0 pp1 dp1 tp1 sp1 ps1 gs1 oss1",
  "b1 n2 a0 pp1 dp2 tp1 sp1 ps1 gs2 oss2",
];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    steps: { type: "string", default: "200" },
    precisions: { type: "string", default: "bf16,bf16-grad16" },
    plans: { type: "string", default: PLANS.join(";") },
  },
});
const steps = numberFrom("--steps", values.steps);
/** Steps at the end of a run whose losses are averaged: one step's batch alone moves a loss more. */
const LAST = Math.max(1, Math.min(20, Math.floor(steps / 5)));

const precisions = values.precisions.split(",").map((name): Precision => {
  const found = PRECISIONS.find((precision) => precision === name);
  if (found === undefined) throw new Error(`--precisions has ${name}: give some of ${PRECISIONS.join(",")}`);
  return found;
});

interface Run {
  readonly precision: Precision;
  readonly plan: string;
  /** Of a step. */
  readonly sequences: number;
  /** Of every step, in nats a token. */
  readonly losses: readonly number[];
  readonly lastLoss: number;
  readonly stepTimeSeconds: number;
}

const mean = (list: readonly number[]): number => list.reduce((sum, one) => sum + one, 0) / list.length;
const median = (list: readonly number[]): number =>
  list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)] ?? NaN;

async function train(job: JobSpec, precision: Precision, plan: string): Promise<Run> {
  const parsed = parsePlanLabel(plan);
  const cluster = { ...job.cluster, nodes: 1, gpusPerNode: worldSize(parsed) };
  // A plan says how many sequences a step has: what is accumulated over many micro-batches is rounded often.
  const sequences = parsed.microBatchSize * parsed.microBatches * parsed.dataParallel;
  const globalBatchTokens = sequences * job.sequenceLengthTokens;
  const spec: JobSpec = { ...job, precision, steps, cluster, globalBatchTokens };
  return withScratch(async (directory) => {
    const dataset = await datasetOf(spec, directory);
    const observed = await observePlan({ spec, plan: planOfJob(parsed, spec), dataset, directory, steps });
    if ("code" in observed) throw new Error(`${precision}, ${plan}: ${observed.message}`);
    const losses = observed.steps.map(({ loss }) => loss);
    return {
      precision,
      plan,
      sequences,
      losses,
      lastLoss: mean(losses.slice(-LAST)),
      stepTimeSeconds: median(observed.steps.map(({ stepTimeSeconds }) => stepTimeSeconds)),
    };
  });
}

/** How far the losses of two runs are apart, as shares of the first. */
function compared(one: Run, other: Run) {
  const shares = one.losses.map((loss, step) => Math.abs((other.losses[step] as number) / loss - 1));
  return {
    of: [one.precision, one.plan],
    with: [other.precision, other.plan],
    meanDifference: mean(shares),
    largestDifference: Math.max(...shares),
    lastLossDifference: other.lastLoss / one.lastLoss - 1,
  };
}

const path = positionals[0] ?? join(repository, "tools/bench/jobs/model-a-bf16.yaml");
const job = await readJob(path);
const circumstances = observeCircumstances(
  `npm run --silent bench -- ${["precision", ...process.argv.slice(2)].join(" ")}`.trim(),
);
const runs: Run[] = [];
for (const plan of values.plans.split(";"))
  for (const precision of precisions) {
    console.error(`${precision}, ${plan}`);
    runs.push(await train(job, precision, plan));
  }
console.log(
  JSON.stringify(
    {
      benchmark: "precision",
      job: job.name,
      steps,
      lastSteps: LAST,
      // Each run beside the first precision under the same plan; and beside the first plan of its precision with as many sequences.
      comparisons: runs.flatMap((run) => {
        const ofPlan = runs.find(({ plan }) => plan === run.plan) as Run;
        const ofPrecision = runs.find(
          ({ precision, sequences }) => precision === run.precision && sequences === run.sequences,
        ) as Run;
        return [ofPlan, ofPrecision].filter((one) => one !== run).map((one) => compared(one, run));
      }),
      runs: runs.map(({ losses, ...run }) => ({ ...run, firstLoss: losses[0], losses })),
      circumstances: circumstances(),
    },
    null,
    2,
  ),
);
