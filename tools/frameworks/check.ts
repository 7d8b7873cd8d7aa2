// Holds exported configurations against the frameworks' own parsers: `npm run frameworks -- --help`. The packages take some gigabytes, so
// this is no part of `npm test`.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { planOfJob } from "../../libs/cost-model/src/index.ts";
import { parsePlanLabel, planLabel, resolveJob } from "../../libs/domain/src/index.ts";
import { exportConfiguration, type Framework } from "../../libs/frameworks/src/index.ts";

const repository = fileURLToPath(new URL("../../", import.meta.url));
/** Torchtitan's last release that reads TOML, and what has DeepSpeed's parser; Megatron-LM's and Megatron-DeepSpeed's are in no package. */
const PACKAGES = ["torch==2.15.0", "torchtitan==0.2.2", "deepspeed==0.19.8", "transformers==5.23.0", "numpy", "einops", "tensorboard", "six"];

const { values: options } = parseArgs({
  options: {
    python: { type: "string" },
    megatron: { type: "string" },
    "megatron-deepspeed": { type: "string" },
    help: { type: "boolean", default: false },
  },
});
if (options.help) {
  console.log(`npm run frameworks -- [--python PYTHON] [--megatron CHECKOUT] [--megatron-deepspeed CHECKOUT]

Exports plans, and has the frameworks' own parsers read them.
--python              an interpreter with the packages; default: .tools/frameworks, made anew where it lacks
--megatron            a checkout of NVIDIA/Megatron-LM; without it, its parser is left out
--megatron-deepspeed  a checkout of deepspeedai/Megatron-DeepSpeed; its parser imports NVIDIA apex, which has to be installed beside`);
  process.exit(0);
}

function environment(): string {
  const folder = join(repository, ".tools", "frameworks");
  const python = join(folder, "bin", "python");
  if (existsSync(join(folder, "complete"))) return python;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  execFileSync("python3", ["-m", "venv", folder], { stdio: "inherit" });
  const install = (...args: string[]): void => void execFileSync(python, ["-m", "pip", "install", "--quiet", ...args], { stdio: "inherit", env: { ...process.env, DS_BUILD_OPS: "0" } });
  install("setuptools", "wheel", "packaging", "ninja", PACKAGES[0] as string);
  // DeepSpeed looks for torch while it is installed.
  install("--no-build-isolation", ...PACKAGES);
  writeFileSync(join(folder, "complete"), "");
  return python;
}

interface Parser {
  readonly name: string;
  readonly framework: Framework;
  readonly checkout?: string;
}

const parsers: Parser[] = [
  ...(options.megatron === undefined ? [] : [{ name: "megatron", framework: "megatron" as const, checkout: options.megatron }]),
  ...(options["megatron-deepspeed"] === undefined ? [] : [{ name: "megatron-deepspeed", framework: "deepspeed" as const, checkout: options["megatron-deepspeed"] }]),
  { name: "torchtitan", framework: "torchtitan" },
  { name: "deepspeed", framework: "deepspeed" },
];

const JOB = { name: "seven", model: "llama-7b", sequenceLengthTokens: 32_768, globalBatchTokens: 4_194_304, steps: 1000, cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" } };
const CASES = [
  [JOB, "b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss128"],
  [JOB, "b1 n4 a0 pp1 dp32 tp1 sp4 ps8 gs1 oss16 ovinter-layer/intra-layer"],
  [JOB, "b1 n2 a1 pp1 dp64 tp2 sp2 ps1 gs1 oss64"],
  [JOB, "b1 n8 a1 pp4 dp16 tp2 sp2 ps1 gs1 oss16 v2"],
  [JOB, "b1 n8 a0 pp2 dp16 tp1 sp4 ps1 gs1 oss64 cp4 k8"],
  [JOB, "b2 n2 a1 pp1 dp32 tp1 sp4 ps128 gs1 oss1"],
  [{ ...JOB, seed: 7, model: { base: "llama-7b", kvHeads: 8, tiedEmbeddings: true }, precision: "fp32" }, "b1 n4 a1 pp1 dp32 tp4 sp4 ps1 gs1 oss32"],
  [{ ...JOB, model: { base: "llama-7b", layers: 30 } }, "b1 n16 a1 pp4 dp8 tp4 sp4 ps1 gs1 oss8"],
] as const;

interface Read {
  readonly ok: boolean;
  readonly error?: string;
  readonly globalBatch?: number;
}

const python = options.python ?? environment();
const scratch = mkdtempSync(join(tmpdir(), "internevo-frameworks-"));
let failed = 0;
try {
  for (const { name, framework, checkout } of parsers) for (const [index, [written, label]] of CASES.entries()) {
    const job = resolveJob(written);
    const { files, plan } = exportConfiguration(framework, job, planOfJob(parsePlanLabel(label), job));
    const folder = join(scratch, `${name}-${index}`);
    mkdirSync(folder);
    for (const file of files) writeFileSync(join(folder, file.name), file.text);
    const ranks = job.cluster.nodes * job.cluster.gpusPerNode;
    const out = execFileSync(python, [join(repository, "tools", "frameworks", "check.py"), name, folder, String(ranks), ...(checkout === undefined ? [] : [checkout])], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
    const read = JSON.parse(out.trim().split("\n").at(-1) ?? "") as Read;
    const sequences = job.globalBatchTokens / job.sequenceLengthTokens;
    const fault = !read.ok ? (read.error ?? "failed") : read.globalBatch === sequences ? null : `reads a batch of ${read.globalBatch ?? "?"}, the job's is ${sequences}`;
    if (fault !== null) failed += 1;
    console.log(`${fault === null ? "ok    " : "FAILED"}  ${name}  ${planLabel(plan)}${fault === null ? "" : `  ${fault}`}`);
  }
} finally {
  rmSync(scratch, { recursive: true });
}
console.log(failed === 0 ? "every configuration is one that its framework's parser takes" : `${failed} configurations are refused`);
process.exit(failed === 0 ? 0 : 1);
