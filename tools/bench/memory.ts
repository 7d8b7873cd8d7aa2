// Planned memory against a caching allocator, and the longest sequences that fit, for three kinds of systems; JSON on stdout.
// usage: npm run --silent bench -- memory [--write docs/benchmarks] [--from RESULT.json]   more options below
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { requiredMeasurements, shippedProfile } from "@internevo/cost-model";
import { planLabel, type JobSpec } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import { mlpForwardTrace } from "@internevo/simulator";
import { planMemory } from "@internevo/cli/plan-memory";
import { DEFAULT_SLICE_ROUNDS } from "@internevo/profiles";
import { cachingMemory } from "./src/caching-memory.ts";
import { longestOf, measureLongest, type Longest, type MeasuredLongest } from "./src/longest.ts";
import { native, profileOf, readJob, repository, Stopped, withScratch } from "./src/measure.ts";
import { writeMemoryPage, type MemoryResult, type PlannedRow } from "./src/memory-page.ts";
import { interruptible } from "./src/on-testbed.ts";
import { observeCircumstances } from "./src/report.ts";
import { modelsFrom, numberFrom, smallJob } from "./src/small-jobs.ts";
import { SYSTEMS } from "./src/systems.ts";

const { values } = parseArgs({
  options: {
    models: { type: "string", default: "7b,65b" },
    sequences: { type: "string", default: "4,8,16,32,64,128,256" },
    unit: { type: "string", default: "8192" },
    "small-model": { type: "string", default: "llama-0.8m" },
    ranks: { type: "string", default: "4" },
    memory: { type: "string", default: "64MiB" },
    "small-unit": { type: "string", default: "128" },
    write: { type: "string" },
    from: { type: "string" },
  },
});

/** Passes of a step that are replayed one by one; memory does not depend on how many micro-batches follow. */
const MOST_MICRO_BATCHES = 8;
const PROFILE = "a800-128";

const paperJob = async (model: string, thousands: string): Promise<JobSpec> => ({
  ...(await readJob(join(repository, `examples/paper/${model}-${thousands}k.yaml`))),
  precision: "bf16",
  checkpointing: null,
});

/**
 * InternEvo's best plan of a job of the paper: the trainer's planned memory, and what a caching allocator
 * makes of it.
 */
async function plannedRow(model: string, thousands: string, signal: AbortSignal): Promise<PlannedRow | null> {
  const job = await paperJob(model, thousands);
  const best = planJob(job, shippedProfile(PROFILE), { top: 1 }).runnableCandidates[0];
  if (!best) return null;
  const plan = { ...best.plan, microBatches: Math.min(best.plan.microBatches, MOST_MICRO_BATCHES) };
  const spec = {
    ...job,
    globalBatchTokens: plan.microBatches * plan.microBatchSize * plan.dataParallel * job.sequenceLengthTokens,
  };
  const { memoryMap } = await planMemory({
    spec,
    plan: planOfJob(plan, spec),
    stage: null,
    program: join(native, "bin", "internevo-trainer"),
    signal,
  });
  return {
    model: job.model.name,
    sequenceLengthTokens: job.sequenceLengthTokens,
    plan: planLabel(best.plan),
    plannedBytes: memoryMap.arenaBytes,
    ...cachingMemory(memoryMap),
  };
}

/** The paper's figure: outputs of 80 layers of MLP, of 16384 rows on a rank, among freed segments. */
const PAPER_MLP = { layers: 80, rows: 16_384, hiddenSize: 8192, ffnHiddenSize: 22_016, elementBytes: 2 };

/** Memory is compared here, and no time. */
const QUICK = {
  minimumSamples: 1,
  maximumSecondsPerPoint: 0.01,
  targetRelativeSpread: 1,
  sliceRounds: DEFAULT_SLICE_ROUNDS,
};

async function measured(signal: AbortSignal): Promise<MemoryResult> {
  const circumstances = observeCircumstances(
    `npm run --silent bench -- memory ${process.argv.slice(2).join(" ")}`.trim(),
  );
  const rows: PlannedRow[] = [];
  for (const model of values.models.split(",")) {
    for (const thousands of values.sequences.split(","))
      rows.push(...[await plannedRow(model, thousands, signal)].flatMap((row) => row ?? []));
  }
  const paper = await paperJob("7b", "4");
  const paperLongest = SYSTEMS.map((system): Longest => {
    console.error(`the longest sequence of ${system.name} plans for ${paper.model.name}`);
    return longestOf(system, paper, shippedProfile(PROFILE), {
      unitTokens: numberFrom("--unit", values.unit),
      sequences: paper.cluster.nodes * paper.cluster.gpusPerNode,
      signal,
    });
  });
  const ranks = numberFrom("--ranks", values.ranks);
  const [model] = modelsFrom(values["small-model"]);
  if (!model) throw new Error("--small-model: give one");
  const unitTokens = numberFrom("--small-unit", values["small-unit"]);
  const small = {
    ...smallJob({
      model,
      sequenceLengthTokens: unitTokens,
      globalBatchTokens: unitTokens * ranks,
      cluster: {
        name: "bench-memory",
        nodes: 1,
        gpusPerNode: ranks,
        memoryPerGpu: values.memory,
        launcher: "local",
      },
    }),
    checkpointing: null,
  };
  const smallLongest = await withScratch(async (directory) => {
    // Times only decide between plans of one length: they need not be exact.
    const profile = await profileOf({
      cluster: small.cluster,
      needed: requiredMeasurements(small),
      directory,
      effort: QUICK,
      signal,
    });
    console.error(`a rank begins with ${profile.device.runtimeBytes} bytes`);
    const list: MeasuredLongest[] = [];
    for (const system of SYSTEMS)
      list.push(
        await measureLongest(
          longestOf(system, small, profile, { unitTokens, sequences: ranks, signal }),
          small,
          { unitTokens, sequences: ranks, directory, signal },
        ),
      );
    return list;
  });
  return {
    benchmark: "memory",
    circumstances: circumstances(),
    rows,
    mlp: {
      shape: PAPER_MLP,
      separate: mlpForwardTrace(PAPER_MLP),
      consolidated: mlpForwardTrace(PAPER_MLP, 3),
    },
    paper: {
      model: paper.model.name,
      ranks: paper.cluster.nodes * paper.cluster.gpusPerNode,
      limitBytes: paper.cluster.memoryPerGpuBytes,
      longest: paperLongest,
    },
    small: { model, ranks, limitBytes: small.cluster.memoryPerGpuBytes, unitTokens, longest: smallLongest },
  };
}

try {
  const result =
    values.from === undefined
      ? await interruptible(measured)
      : (JSON.parse(await readFile(values.from, "utf8")) as MemoryResult);
  if (values.write !== undefined) await writeMemoryPage(values.write, result);
  console.log(JSON.stringify(result, null, 2));
} catch (error) {
  if (!(error instanceof Stopped)) throw error;
  process.exitCode = 130;
}
