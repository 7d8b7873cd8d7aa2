// The trainer beside PyTorch on one rank, in turns, as JSON.
// usage: npm run bench -- peer --python /usr/bin/python3 [--python PATH ...] [--models a,b,c] [--threads 1] [--rounds 3] [--compile]
// Each given Python is a peer with its PyTorch; every setting of it is run and its best counts, its default is reported beside it.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { parseArgs, promisify } from "node:util";
import { resolveJob, type Plan } from "@internevo/domain";
import { datasetOf, runPlan, withScratch } from "./src/measure.ts";

const MODELS = {
  a: { hiddenSize: 256, layers: 4, heads: 8, vocabularySize: 4096, ffnHiddenSize: 704, sequence: 512, batch: 4 },
  b: { hiddenSize: 512, layers: 8, heads: 8, vocabularySize: 8192, ffnHiddenSize: 1376, sequence: 1024, batch: 2 },
  c: { hiddenSize: 256, layers: 4, heads: 8, vocabularySize: 4096, ffnHiddenSize: 704, sequence: 4096, batch: 1 },
} as const;
const WARMUP_STEPS = 2;
const MEASURED_STEPS = 5;

const { values } = parseArgs({
  options: {
    python: { type: "string", multiple: true, default: ["/usr/bin/python3"] },
    models: { type: "string", default: "a,b,c" },
    precisions: { type: "string", default: "fp32,bf16" },
    threads: { type: "string", default: "1" },
    rounds: { type: "string", default: "3" },
    compile: { type: "boolean", default: false },
  },
});
const threads = Number(values.threads);
const rounds = Number(values.rounds);
if (!Number.isInteger(threads) || threads < 1) throw new Error(`--threads ${values.threads}: give an integer from 1`);
if (!Number.isInteger(rounds) || rounds < 1) throw new Error(`--rounds ${values.rounds}: give an integer from 1`);
const named = (list: string, known: readonly string[], option: string): string[] =>
  list.split(",").map((name) => {
    if (!known.includes(name)) throw new Error(`${option} ${name}: give some of ${known.join(",")}`);
    return name;
  });

type ModelName = keyof typeof MODELS;
type Precision = "fp32" | "bf16";
interface Run {
  readonly stepSeconds: number;
  readonly residentPeakBytes: number;
}

const JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";

/** Settings of a peer: its defaults, and what makes it faster here. */
function settings(): { name: string; arguments: string[]; environment: Record<string, string> }[] {
  const allocator: Record<string, string> = existsSync(JEMALLOC)
    ? { LD_PRELOAD: JEMALLOC, MALLOC_CONF: "oversize_threshold:1,background_thread:false,dirty_decay_ms:-1,muzzy_decay_ms:-1" }
    : {};
  return [
    { name: "default", arguments: ["--attention", "plain"], environment: {} },
    { name: "allocator", arguments: ["--attention", "plain"], environment: allocator },
    { name: "allocator, fused attention", arguments: ["--attention", "fused"], environment: allocator },
    ...(values.compile ? [{ name: "allocator, fused attention, compiled", arguments: ["--attention", "fused", "--compile"], environment: allocator }] : []),
  ];
}

async function runPeer(python: string, model: ModelName, precision: Precision, setting: ReturnType<typeof settings>[number]): Promise<Run & { version: string }> {
  const m = MODELS[model];
  // Some environments name a kernel for OpenBLAS that halves its speed.
  const { OPENBLAS_CORETYPE: _kernel, OPENBLAS_L2_SIZE: _cache, ...environment } = process.env;
  const options = { hidden: m.hiddenSize, layers: m.layers, heads: m.heads, ffn: m.ffnHiddenSize, vocabulary: m.vocabularySize, sequence: m.sequence, batch: m.batch, steps: MEASURED_STEPS, warmup: WARMUP_STEPS, threads };
  const flags = Object.entries(options).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const { stdout } = await promisify(execFile)(python, [join(import.meta.dirname, "peer", "torch_llama.py"), ...flags, "--precision", precision, ...setting.arguments], {
    env: { ...environment, ...setting.environment, OMP_NUM_THREADS: String(threads) },
  });
  const result = JSON.parse(stdout) as { torch: string; medianStepSeconds: number; residentPeakBytes: number };
  return { version: result.torch, stepSeconds: result.medianStepSeconds, residentPeakBytes: result.residentPeakBytes };
}

const onePlan = (batch: number): Plan => ({
  microBatchSize: batch, microBatches: 1, recompute: false, pipelineParallel: 1, dataParallel: 1, tensorParallel: 1, sequenceParallel: 1,
  parameterSharding: 1, gradientSharding: 1, optimizerStateSharding: 1, forwardOverlap: "none", backwardOverlap: "none",
});

async function runOurs(model: ModelName, precision: Precision): Promise<Run> {
  const { sequence, batch, ...sizes } = MODELS[model];
  const spec = resolveJob({
    name: `peer-${model}`, model: { name: `model-${model}`, ...sizes }, sequenceLengthTokens: sequence, globalBatchTokens: sequence * batch, precision,
    steps: WARMUP_STEPS + MEASURED_STEPS, data: { format: "text", paths: ["/usr/share/common-licenses/GPL-3", "/usr/share/common-licenses/GFDL-1.3"] },
    cluster: { name: "one-rank", nodes: 1, gpusPerNode: 1, memoryPerGpu: "16GiB" },
  });
  return withScratch(async (directory) => {
    const dataset = await datasetOf(spec, directory);
    const measured = await runPlan({ spec, plan: onePlan(batch), dataset, directory, warmupSteps: WARMUP_STEPS, measuredSteps: MEASURED_STEPS, threadsPerRank: threads });
    if ("code" in measured) throw new Error(`${spec.name}: ${measured.message}`);
    return { stepSeconds: measured.stepTimeSeconds, residentPeakBytes: measured.residentPeakBytes };
  });
}

const medianOf = (numbers: readonly number[]): number => [...numbers].sort((a, b) => a - b)[numbers.length >> 1] as number;

const rows = [];
for (const model of named(values.models, Object.keys(MODELS), "--models") as ModelName[]) {
  for (const precision of named(values.precisions, ["fp32", "bf16"], "--precisions") as Precision[]) {
    const tokens = MODELS[model].sequence * MODELS[model].batch;
    for (const python of values.python) {
      const own: Run[] = [];
      const peers = settings().map((setting) => ({ setting, runs: [] as Run[], version: "" }));
      // In turns, so that what else happens on the machine meets all alike.
      for (let round = 0; round < rounds; round += 1) {
        own.push(await runOurs(model, precision));
        for (const peer of peers) {
          const { version, ...run } = await runPeer(python, model, precision, peer.setting);
          peer.runs.push(run);
          peer.version = version;
        }
        console.error(`model ${model} ${precision} ${python}: round ${round + 1} of ${rounds}`);
      }
      const speedOf = (runs: readonly Run[]): number => tokens / medianOf(runs.map(({ stepSeconds }) => stepSeconds));
      const ours = speedOf(own);
      const best = peers.reduce((a, b) => (speedOf(b.runs) > speedOf(a.runs) ? b : a));
      const [byDefault] = peers;
      rows.push({
        model, precision, threads, sequenceLengthTokens: MODELS[model].sequence, peer: `PyTorch ${best.version}`,
        tokensPerSecond: ours, residentPeakBytes: medianOf(own.map(({ residentPeakBytes }) => residentPeakBytes)),
        peerSettings: Object.fromEntries(peers.map(({ setting, runs }) => [setting.name, { tokensPerSecond: speedOf(runs), residentPeakBytes: medianOf(runs.map(({ residentPeakBytes }) => residentPeakBytes)) }])),
        peerBestSetting: best.setting.name,
        ratioToBest: ours / speedOf(best.runs),
        ratioToDefault: ours / speedOf((byDefault as (typeof peers)[number]).runs),
      });
    }
  }
}
console.log(JSON.stringify({ benchmark: "peer", cpu: cpus()[0]?.model, rounds, warmupSteps: WARMUP_STEPS, measuredSteps: MEASURED_STEPS, rows }, null, 2));
