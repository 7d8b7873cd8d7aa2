// Ranking quality as the paper shows it, on processor ranks: trains the first 50 plans of small jobs and
// compares their order with the predicted one. JSON on stdout. usage: npm run --silent bench -- ranking
// [--workloads llama-0.8m:256,llama-1.9m:256] [--write docs/benchmarks] more options below
import { parseArgs } from "node:util";
import { measureAccuracy } from "./src/measure-accuracy.ts";
import { Stopped, withScratch } from "./src/measure.ts";
import { interruptible } from "./src/on-testbed.ts";
import { writeRankingPage, type RankedJob, type RankingResult } from "./src/ranking-page.ts";
import { observeCircumstances } from "./src/report.ts";
import { RANKED } from "./src/reproduce/ranking.ts";
import { modelsFrom, numberFrom, smallJob } from "./src/small-jobs.ts";

const { values } = parseArgs({
  options: {
    /** MODEL:SEQUENCE, of jobs that have as many families of plans as are ranked. */
    workloads: { type: "string", default: "llama-0.8m:256,llama-1.9m:256" },
    tokens: { type: "string", default: "2048" },
    ranks: { type: "string", default: "2" },
    repeat: { type: "string", default: "3" },
    steps: { type: "string", default: "5" },
    seed: { type: "string", default: "1" },
    write: { type: "string" },
  },
});
const ranks = numberFrom("--ranks", values.ranks);
const globalBatchTokens = numberFrom("--tokens", values.tokens);
const settings = {
  repeat: numberFrom("--repeat", values.repeat),
  steps: numberFrom("--steps", values.steps),
  seed: numberFrom("--seed", values.seed),
};
const specs = values.workloads.split(",").map((text) => {
  const [name = "", sequence = ""] = text.split(":");
  const [model] = modelsFrom(name);
  if (!model) throw new Error(`--workloads: ${text} has no model`);
  return smallJob({
    model,
    sequenceLengthTokens: numberFrom("--workloads", sequence),
    globalBatchTokens,
    cluster: { name: "this-machine", nodes: 1, gpusPerNode: ranks, memoryPerGpu: "1GiB", launcher: "local" },
  });
});

async function measured(signal: AbortSignal): Promise<RankingResult> {
  const circumstances = observeCircumstances(
    `npm run --silent bench -- ranking ${process.argv.slice(2).join(" ")}`.trim(),
  );
  const { profile, rows } = await withScratch((directory) =>
    measureAccuracy(specs, {
      ...settings,
      plans: RANKED.plans,
      choose: "first",
      place: "this machine",
      directory,
      signal,
    }),
  );
  return {
    benchmark: "ranking",
    device: profile.device.name,
    settings,
    circumstances: circumstances(),
    notes: profile.provenance.notes,
    jobs: rows.map(({ job, runnable, compared }): RankedJob => ({
      job,
      runnable,
      ranks,
      globalBatchTokens,
      plans: compared.toSorted((a, b) => a.rank - b.rank),
    })),
  };
}

try {
  const result = await interruptible(measured);
  if (values.write !== undefined) await writeRankingPage(values.write, result);
  console.log(JSON.stringify(result, null, 2));
} catch (error) {
  if (!(error instanceof Stopped)) throw error;
  process.exitCode = 130;
}
