// Holds the trainer against PyTorch's transformers on small random models: `npm run models -- --help`. The packages
// take some gigabytes, so this is no part of `npm test`.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { encodeHeader } from "../../libs/data/src/index.ts";
import {
  DECODER_PROGRAM,
  parsePlanLabel,
  resolveJob,
  worldSize,
  type JobSpec,
} from "../../libs/domain/src/index.ts";
import { launchRanks, trainerConfig, trainerIn } from "../../libs/launcher/src/index.ts";
import { buildMesh } from "../../libs/plan/src/index.ts";
import { EnvironmentError, packageVersion, pythonEnvironment } from "./environment.ts";

const SEQUENCE_TOKENS = 24;
const SEQUENCES = 8;
const VOCABULARY = 97;
/** Relative: of a loss, and of a gradient's norm. The trainer computes in float32, the other side in float64. */
const LOSS_TOLERANCE = 2e-6;
const GRADIENT_TOLERANCE = 5e-6;
/** One of every kind: alone, heads by all-to-all, tensor parallel, a ring, stages, shards. */
const PLANS = [
  "b8 n1 a0 pp1 dp1 tp1 sp1 ps1 gs1 oss1",
  "b2 n4 a1 pp1 dp1 tp1 sp2 ps1 gs1 oss1",
  "b4 n2 a0 pp1 dp1 tp2 sp2 ps1 gs1 oss1",
  "b4 n2 a0 pp1 dp1 tp1 sp2 cp2 ps2 gs1 oss1",
  "b2 n4 a0 pp2 dp1 tp1 sp1 ps1 gs1 oss1",
  "b2 n2 a1 pp1 dp2 tp1 sp1 ps2 gs1 oss1",
];

const { values: options } = parseArgs({
  options: {
    python: { type: "string" },
    only: { type: "string" },
    help: { type: "boolean", default: false },
  },
});
if (options.help) {
  console.log(`npm run models -- [--only FAMILY] [--python PYTHON]

Makes small random models with transformers, and has the trainer begin with their folders under ${PLANS.length} plans. Losses and the gradient of
every tensor must be those of transformers in float64. Then each is trained for a step and exported; transformers must read the export,
and give the loss with which the trainer goes on from it.
--only    the families whose names begin so
--python  an interpreter with torch and transformers; default: .tools/frameworks, made where it lacks (about 6 GB)`);
  process.exit(0);
}

const here = fileURLToPath(new URL(".", import.meta.url));
const native = join(here, "..", "..", "native", "dist");
const trainer = trainerIn(native);

interface Comparison {
  readonly loss: number;
  readonly exact: number;
  readonly difference: number;
  readonly tensor: string;
}

/** The last line of a JSON program's output. */
const lastLine = (text: string): unknown => JSON.parse(text.trimEnd().split("\n").at(-1) as string);
const relative = (one: number, other: number): number => Math.abs(one - other) / Math.abs(other);

/** The tokens of every sequence and the one behind it, as both sides read them. */
function writeTokens(folder: string): { readonly own: string; readonly lists: string } {
  const count = SEQUENCES * SEQUENCE_TOKENS + 1;
  const tokens = Array.from(
    { length: count },
    (_, index) => (index * index * 7 + (index >> 3) * 11) % VOCABULARY,
  );
  const own = join(folder, "data.tokens");
  const bytes = Buffer.alloc(2 * count);
  tokens.forEach((token, index) => bytes.writeUInt16LE(token, 2 * index));
  writeFileSync(
    own,
    Buffer.concat([encodeHeader({ bytesPerToken: 2, tokenCount: count, vocabularySize: VOCABULARY }), bytes]),
  );
  const lists = join(folder, "tokens.json");
  const sequences = Array.from({ length: SEQUENCES }, (_, index) =>
    tokens.slice(index * SEQUENCE_TOKENS, (index + 1) * SEQUENCE_TOKENS + 1),
  );
  writeFileSync(lists, JSON.stringify(sequences));
  return { own, lists };
}

/** The model of a folder, as the checkpoint tool reads it. */
function modelOf(folder: string): Record<string, unknown> {
  const tool = join(native, "bin", "internevo-checkpoint");
  const result = lastLine(execFileSync(tool, ["inspect", folder], { encoding: "utf8" }));
  return (result as { model: Record<string, unknown> }).model;
}

/** Names of the tensors of a model of so many layers, ours to theirs. */
function tensorNames(layers: number): Record<string, string> {
  const { tensors, ends } = DECODER_PROGRAM;
  const names: Record<string, string> = {};
  for (const { name, huggingFace } of ends.tensors) names[name] = huggingFace;
  for (let layer = 0; layer < layers; layer += 1)
    for (const { name, huggingFace } of tensors)
      names[`layers.${layer}.${name}`] = `model.layers.${layer}.${huggingFace}`;
  return names;
}

interface Run {
  readonly initialWeights: string;
  readonly plan: string;
  readonly directory: string;
  readonly tokens: string;
  readonly saves: boolean;
}

/** One step: the loss, and the file of its gradients. @throws Error with what the trainer said. */
async function train(run: Run): Promise<{ readonly loss: number; readonly gradients: string }> {
  const plan = parsePlanLabel(run.plan);
  const job: JobSpec = resolveJob({
    name: "models",
    model: { name: "model", ...modelOf(run.initialWeights) },
    sequenceLengthTokens: SEQUENCE_TOKENS,
    globalBatchTokens: SEQUENCES * SEQUENCE_TOKENS,
    precision: "fp32",
    steps: 1,
    optimizer: { peakLearningRate: 0.01, minLearningRate: 0.001, warmupSteps: 1 },
    initialWeights: run.initialWeights,
    cluster: { name: "here", nodes: 1, gpusPerNode: worldSize(plan), memoryPerGpu: "512MiB" },
  });
  const gradients = join(run.directory, "gradients.safetensors");
  let loss = Number.NaN;
  const outcome = await launchRanks({
    program: trainer,
    config: {
      ...trainerConfig({
        spec: job,
        plan,
        mesh: buildMesh(plan),
        dataset: { path: run.tokens },
        steps: 1,
        checkpoint: run.saves
          ? { directory: join(run.directory, "checkpoints"), everySteps: 1, keepLast: 1, resume: "none" }
          : null,
        threadsPerRank: 1,
        loadWeights: true,
      }),
      gradientDumpPath: gradients,
    },
    ranks: worldSize(plan),
    threadsPerRank: 1,
    launcher: "local",
    runDirectory: join(run.directory, "run"),
    onEvent: (event) => {
      if (event.event === "step") loss = event.loss;
    },
  });
  if (outcome.status !== "completed") throw new Error(JSON.stringify(outcome));
  return { loss, gradients };
}

/** What is wrong with a family, in sentences; none where all is well. */
async function check(family: string, folder: string, python: string, tokens: { own: string; lists: string }) {
  const faults: string[] = [];
  const script = join(here, "models.py");
  const names = JSON.stringify(tensorNames(Number(modelOf(folder)["layers"])));
  let worst = 0;
  for (const plan of PLANS) {
    const directory = mkdtempSync(join(tmpdir(), "internevo-models-"));
    try {
      const run = { initialWeights: folder, plan, directory, tokens: tokens.own, saves: plan === PLANS[0] };
      const { gradients } = await train(run);
      const found = lastLine(
        execFileSync(python, [script, "compare", folder, gradients], { input: names, encoding: "utf8" }),
      ) as Comparison;
      worst = Math.max(worst, found.difference);
      if (relative(found.loss, found.exact) > LOSS_TOLERANCE)
        faults.push(`${plan}: loss ${found.loss}, transformers ${found.exact}`);
      if (found.difference > GRADIENT_TOLERANCE)
        faults.push(
          `${plan}: the gradient of ${found.tensor} differs by ${found.difference.toExponential(2)}`,
        );
      if (run.saves) faults.push(...(await checkExport(directory, python, tokens)));
    } finally {
      rmSync(directory, { recursive: true });
    }
  }
  console.log(
    `${family.padEnd(16)} ${PLANS.length} plans, gradients at most ${worst.toExponential(2)} from transformers' in float64` +
      (faults.length === 0 ? "" : `\n  ${faults.join("\n  ")}`),
  );
  return faults;
}

/** Of the checkpoint of a run: transformers must read its export, and see the loss that the trainer sees from it. */
async function checkExport(directory: string, python: string, tokens: { own: string; lists: string }) {
  const exported = join(directory, "exported");
  const checkpoints = join(directory, "checkpoints");
  const [checkpoint] = readdirSync(checkpoints).filter((name) => name.startsWith("step-"));
  execFileSync(join(native, "bin", "internevo-checkpoint"), [
    "export",
    join(checkpoints, checkpoint as string),
    exported,
  ]);
  const script = join(here, "models.py");
  const theirs = lastLine(
    execFileSync(python, [script, "loss", exported, tokens.lists], { encoding: "utf8" }),
  ) as { readonly loss: number };
  const next = {
    initialWeights: exported,
    plan: PLANS[0] as string,
    directory,
    tokens: tokens.own,
    saves: false,
  };
  const { loss } = await train(next);
  return relative(loss, theirs.loss) > LOSS_TOLERANCE
    ? [`after a step, the export has loss ${theirs.loss} in transformers, and ${loss} here`]
    : [];
}

async function main(): Promise<number> {
  const python = options.python ?? pythonEnvironment();
  const folder = mkdtempSync(join(tmpdir(), "internevo-families-"));
  try {
    const tokens = writeTokens(folder);
    execFileSync(python, [join(here, "models.py"), "make", folder, tokens.lists], {
      stdio: ["ignore", "ignore", 2],
    });
    const families = readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && entry.name.startsWith(options.only ?? ""))
      .map(({ name }) => name)
      .sort();
    if (families.length === 0) throw new EnvironmentError(`--only ${options.only} names no family`);
    const faults: string[] = [];
    for (const family of families)
      faults.push(...(await check(family, join(folder, family), python, tokens)));
    const versions = ["torch", "transformers"]
      .map((name) => `${name} ${packageVersion(python, name)}`)
      .join(", ");
    console.log(`${families.length} families, ${faults.length} faults (${versions})`);
    return faults.length === 0 ? 0 : 1;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  if (!(error instanceof EnvironmentError)) throw error;
  console.error(error.message);
  process.exitCode = 2;
}
