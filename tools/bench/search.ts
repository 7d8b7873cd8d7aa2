// Speed of the search as JSON: `npm run bench -- search [--repetitions 9]`.
import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { shippedProfile } from "@internevo/cost-model";
import { resolveJob } from "@internevo/domain";
import { planJob } from "@internevo/search";

const { values } = parseArgs({ options: { repetitions: { type: "string", default: "9" } } });
const repetitions = Number(values.repetitions);
if (!Number.isInteger(repetitions) || repetitions < 1) throw new Error(`--repetitions ${values.repetitions}: give an integer from 1`);

const CASES = [
  { name: "7B 4k on 128 GPUs", model: "llama-7b", sequenceLengthTokens: 4096, nodes: 16 },
  { name: "7B 256k on 128 GPUs", model: "llama-7b", sequenceLengthTokens: 262_144, nodes: 16 },
  { name: "65B 4k on 1024 GPUs", model: "llama-65b", sequenceLengthTokens: 4096, nodes: 128 },
];
const profile = shippedProfile("a800-128");

const results = CASES.map(({ name, model, sequenceLengthTokens, nodes }) => {
  const job = resolveJob({ name, model, sequenceLengthTokens, globalBatchTokens: 4 * 1024 * 1024, precision: "bf16-grad16", cluster: { nodes, gpusPerNode: 8, memoryPerGpu: "80GB" } });
  const seconds: number[] = [];
  let evaluated = 0;
  let feasible = 0;
  for (let i = 0; i < repetitions; i += 1) {
    const start = performance.now();
    const { counts } = planJob(job, profile);
    seconds.push((performance.now() - start) / 1000);
    ({ evaluated, feasible } = counts);
  }
  // The first run of a fresh process is what one `internevo plan` takes, before anything is compiled.
  const [firstSeconds] = seconds as [number, ...number[]];
  const sorted = [...seconds].sort((a, b) => a - b);
  const medianSeconds = sorted[sorted.length >> 1] as number;
  return { name, evaluated, feasible, firstSeconds, medianSeconds, bestSeconds: sorted[0], candidatesPerSecond: Math.round(evaluated / medianSeconds) };
});

console.log(JSON.stringify({ benchmark: "search", cpu: cpus()[0]?.model, node: process.version, repetitions, results }, null, 2));
