// The trainer beside PyTorch on one rank, in turns, as JSON.
// usage: npm run bench -- peer --python /usr/bin/python3 [--python PATH ...] [--models a,b,c,d] [--precisions fp32,bf16] [--threads 1] [--rounds 3]
//        [--compile] [--memory]
// Each given Python is a peer with its PyTorch; every setting of it is run and its best counts, its default is reported beside it.
// --compile: also with torch.compile, where the version has it. --memory: also the trainer's resident peak by sequence length.
import { execFile } from "node:child_process";
import { existsSync, realpathSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { parseArgs, promisify } from "node:util";
import { PLAIN_PLAN, resolveJob, type Plan } from "@internevo/domain";
import { datasetOf, runPlan, withScratch } from "./src/measure.ts";

const MODELS = {
  a: {
    hiddenSize: 256,
    layers: 4,
    heads: 8,
    vocabularySize: 4096,
    ffnHiddenSize: 704,
    sequence: 512,
    batch: 4,
  },
  b: {
    hiddenSize: 512,
    layers: 8,
    heads: 8,
    vocabularySize: 8192,
    ffnHiddenSize: 1376,
    sequence: 1024,
    batch: 2,
  },
  c: {
    hiddenSize: 256,
    layers: 4,
    heads: 8,
    vocabularySize: 4096,
    ffnHiddenSize: 704,
    sequence: 4096,
    batch: 1,
  },
  d: {
    hiddenSize: 256,
    layers: 4,
    heads: 8,
    vocabularySize: 4096,
    ffnHiddenSize: 704,
    sequence: 8192,
    batch: 1,
  },
} as const;
const WARMUP_STEPS = 2;
const MEASURED_STEPS = 5;
/**
 * One run of a peer measures no further step after so long; a setting this many times slower than the best is
 * not repeated.
 */
const PEER_SECONDS = 60;
const HOPELESS = 2;
const MEMORY_SEQUENCES = [1024, 2048, 4096, 8192, 16384];

const { values } = parseArgs({
  options: {
    python: { type: "string", multiple: true, default: ["/usr/bin/python3"] },
    models: { type: "string", default: "a,b,c,d" },
    precisions: { type: "string", default: "fp32,bf16" },
    threads: { type: "string", default: "1" },
    rounds: { type: "string", default: "3" },
    compile: { type: "boolean", default: false },
    memory: { type: "boolean", default: false },
  },
});
const threads = Number(values.threads);
const rounds = Number(values.rounds);
if (!Number.isInteger(threads) || threads < 1)
  throw new Error(`--threads ${values.threads}: give an integer from 1`);
if (!Number.isInteger(rounds) || rounds < 1)
  throw new Error(`--rounds ${values.rounds}: give an integer from 1`);
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
const BLAS = "/usr/lib/x86_64-linux-gnu/libblas.so.3"; // that of Debian's PyTorch
if (!existsSync(JEMALLOC))
  throw new Error(
    `${JEMALLOC} is missing, with which PyTorch is faster: install the Debian package libjemalloc2`,
  );
if (existsSync(BLAS) && realpathSync(BLAS).includes("/blas/"))
  throw new Error(
    `${BLAS} is the reference BLAS, with which Debian's PyTorch is up to twenty ` +
      "times slower in float32: install the Debian package libopenblas0-pthread",
  );

interface Setting {
  readonly name: string;
  readonly precision: Precision;
  readonly arguments: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
}

/** Settings of a peer: its defaults, what makes it faster here, and what makes it smaller. */
function settings(precision: Precision, canCompile: boolean): Setting[] {
  const jemalloc = {
    LD_PRELOAD: JEMALLOC,
    MALLOC_CONF: "oversize_threshold:1,background_thread:false,dirty_decay_ms:-1,muzzy_decay_ms:-1",
  };
  const tuned = ["--attention", "fused", "--optimizer", "fused"];
  const setting = (name: string, of: Precision, asked: string, more: readonly string[] = []): Setting => ({
    name,
    precision: of,
    arguments: ["--precision", asked, ...tuned, ...more],
    environment: jemalloc,
  });
  const fp32 = [
    setting("float32: jemalloc, fused attention and optimizer", "fp32", "fp32"),
    ...(canCompile ? [setting("float32: the same, compiled", "fp32", "fp32", ["--compile", "default"])] : []),
  ];
  const small = setting("float32: the same, layers recomputed", "fp32", "fp32", ["--checkpointing"]);
  const byDefault: Setting = {
    name: "default",
    precision,
    arguments: ["--precision", precision, "--attention", "plain"],
    environment: {},
  };
  if (precision === "fp32") return [byDefault, ...fp32, small];
  return [
    byDefault,
    ...fp32, // where the processor has no bfloat16 arithmetic, float32 is the faster choice of a user of the peer
    setting("autocast: jemalloc, fused attention and optimizer", "bf16", "bf16"),
    ...(canCompile
      ? [setting("autocast: the same, compiled", "bf16", "bf16", ["--compile", "default"])]
      : []),
    setting("bfloat16 weights: jemalloc, fused attention and optimizer", "bf16", "bf16-weights"),
  ];
}

// Some environments name a kernel for OpenBLAS that halves its speed.
const { OPENBLAS_CORETYPE: _kernel, OPENBLAS_L2_SIZE: _cache, ...environment } = process.env;

async function versionOf(python: string): Promise<string> {
  const { stdout } = await promisify(execFile)(python, ["-c", "import torch; print(torch.__version__)"], {
    env: environment,
  });
  return stdout.trim();
}

async function runPeer(python: string, model: ModelName, setting: Setting): Promise<Run> {
  const m = MODELS[model];
  const options = {
    hidden: m.hiddenSize,
    layers: m.layers,
    heads: m.heads,
    ffn: m.ffnHiddenSize,
    vocabulary: m.vocabularySize,
    sequence: m.sequence,
    batch: m.batch,
    steps: MEASURED_STEPS,
    warmup: WARMUP_STEPS,
    threads,
    seconds: PEER_SECONDS,
  };
  const flags = Object.entries(options).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const { stdout } = await promisify(execFile)(
    python,
    [join(import.meta.dirname, "peer", "torch_llama.py"), ...flags, ...setting.arguments],
    { env: { ...environment, ...setting.environment, OMP_NUM_THREADS: String(threads) } },
  );
  const result = JSON.parse(stdout) as { medianStepSeconds: number; residentPeakBytes: number };
  return { stepSeconds: result.medianStepSeconds, residentPeakBytes: result.residentPeakBytes };
}

const onePlan = (batch: number): Plan => ({ ...PLAIN_PLAN, microBatchSize: batch });

async function runOurs(
  model: ModelName,
  precision: Precision,
  changed: { sequence?: number; warmupSteps?: number; measuredSteps?: number } = {},
): Promise<Run> {
  const { sequence, batch, ...sizes } = {
    ...MODELS[model],
    ...(changed.sequence === undefined ? {} : { sequence: changed.sequence }),
  };
  const { warmupSteps = WARMUP_STEPS, measuredSteps = MEASURED_STEPS } = changed;
  const spec = resolveJob({
    name: `peer-${model}`,
    model: { name: `model-${model}`, ...sizes },
    sequenceLengthTokens: sequence,
    globalBatchTokens: sequence * batch,
    precision,
    steps: warmupSteps + measuredSteps,
    data: {
      format: "text",
      paths: ["/usr/share/common-licenses/GPL-3", "/usr/share/common-licenses/GFDL-1.3"],
    },
    cluster: { name: "one-rank", nodes: 1, gpusPerNode: 1, memoryPerGpu: "16GiB" },
  });
  return withScratch(async (directory) => {
    const dataset = await datasetOf(spec, directory);
    const measured = await runPlan({
      spec,
      plan: onePlan(batch),
      dataset,
      directory,
      warmupSteps,
      measuredSteps,
      threadsPerRank: threads,
    });
    if ("code" in measured) throw new Error(`${spec.name}: ${measured.message}`);
    return { stepSeconds: measured.stepTimeSeconds, residentPeakBytes: measured.residentPeakBytes };
  });
}

const medianOf = (numbers: readonly number[]): number =>
  [...numbers].sort((a, b) => a - b)[numbers.length >> 1] as number;

const rows = [];
for (const model of named(values.models, Object.keys(MODELS), "--models") as ModelName[]) {
  for (const precision of named(values.precisions, ["fp32", "bf16"], "--precisions") as Precision[]) {
    const tokens = MODELS[model].sequence * MODELS[model].batch;
    for (const python of values.python) {
      const version = await versionOf(python);
      const peers = settings(precision, values.compile && Number.parseInt(version, 10) >= 2).map(
        (setting) => ({ setting, runs: [] as Run[], own: [] as Run[] }),
      );
      const secondsOf = (runs: readonly Run[]): number =>
        medianOf(runs.map(({ stepSeconds }) => stepSeconds));
      // In turns, each run of a peer behind one of the trainer, so that what else happens on the machine
      // meets both alike.
      for (let round = 0; round < rounds; round += 1) {
        const least = Math.min(
          ...peers.filter(({ runs }) => runs.length > 0).map(({ runs }) => secondsOf(runs)),
        );
        for (const { setting, runs, own } of peers) {
          if (runs.length > 0 && secondsOf(runs) > HOPELESS * least) continue;
          own.push(await runOurs(model, precision));
          runs.push(await runPeer(python, model, setting));
          console.error(
            `model ${model} ${precision}, PyTorch ${version}, ${setting.name}: ` +
              `${secondsOf(runs).toFixed(3)} s a step; the trainer ${secondsOf(own).toFixed(3)}`,
          );
        }
      }
      const own = peers.flatMap((peer) => peer.own);
      /** How many times as fast the trainer is, in the runs beside a setting's. */
      const ratioOf = (peer: (typeof peers)[number]): number =>
        medianOf(
          peer.runs.map(({ stepSeconds }, index) => stepSeconds / (peer.own[index] as Run).stepSeconds),
        );
      const speedOf = (runs: readonly Run[]): number => tokens / secondsOf(runs);
      const memoryOf = (runs: readonly Run[]): number =>
        medianOf(runs.map(({ residentPeakBytes }) => residentPeakBytes));
      const bestOf = (from: typeof peers): (typeof peers)[number] =>
        from.reduce((a, b) => (ratioOf(b) < ratioOf(a) ? b : a));
      const best = bestOf(peers.filter(({ setting }) => setting.precision === precision));
      const bestOfAny = bestOf(peers);
      const leastMemory = Math.min(...peers.map(({ runs }) => memoryOf(runs)));
      rows.push({
        model,
        precision,
        threads,
        sequenceLengthTokens: MODELS[model].sequence,
        peer: `PyTorch ${version}`,
        tokensPerSecond: speedOf(own),
        residentPeakBytes: memoryOf(own),
        peerSettings: Object.fromEntries(
          peers.map((peer) => [
            peer.setting.name,
            {
              tokensPerSecond: speedOf(peer.runs),
              residentPeakBytes: memoryOf(peer.runs),
              rounds: peer.runs.length,
              trainerTimesAsFast: ratioOf(peer),
            },
          ]),
        ),
        peerBestSetting: best.setting.name,
        ratioToBest: ratioOf(best),
        peerBestSettingOfAnyPrecision: bestOfAny.setting.name,
        ratioToBestOfAnyPrecision: ratioOf(bestOfAny),
        ratioToDefault: ratioOf(peers[0] as (typeof peers)[number]),
        residentPeakShareOfPeersBest: memoryOf(own) / memoryOf(best.runs),
        residentPeakShareOfPeersLeast: memoryOf(own) / leastMemory,
      });
    }
  }
}

const memory = [];
for (const sequence of values.memory ? MEMORY_SEQUENCES : []) {
  for (const precision of ["fp32", "bf16"] as const) {
    const { residentPeakBytes } = await runOurs("c", precision, {
      sequence,
      warmupSteps: 1,
      measuredSteps: 1,
    });
    memory.push({ model: "c", precision, sequenceLengthTokens: sequence, residentPeakBytes });
  }
}
console.log(
  JSON.stringify(
    {
      benchmark: "peer",
      cpu: cpus()[0]?.model,
      rounds,
      warmupSteps: WARMUP_STEPS,
      measuredSteps: MEASURED_STEPS,
      rows,
      memory,
    },
    null,
    2,
  ),
);
