// Speed of the search, and of the API's threads under load, as JSON: `npm run bench -- search [--repetitions 30] [--seconds 10] [--rate 50]`.
import { cpus, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { shippedProfile } from "@internevo/cost-model";
import { resolveJob, type JobSpec } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { createWorkers, type Workers } from "../../apps/api/src/work/workers.ts";

const { values } = parseArgs({ options: { repetitions: { type: "string", default: "30" }, seconds: { type: "string", default: "10" }, rate: { type: "string", default: "50" } } });
function positive(name: keyof typeof values): number {
  const value = Number(values[name]);
  if (!Number.isInteger(value) || value < 1) throw new Error(`--${name} ${values[name]}: give an integer from 1`);
  return value;
}
const [repetitions, seconds, rate] = [positive("repetitions"), positive("seconds"), positive("rate")];

interface Case {
  readonly name: string;
  readonly model: string;
  readonly sequenceLengthTokens: number;
  readonly nodes: number;
  readonly sequences: number;
}
/** 100,000 GPUs share 100,000 sequences, so that every divisor is a choice. */
const CASES: readonly Case[] = [
  { name: "7B 4k on 128 GPUs", model: "llama-7b", sequenceLengthTokens: 4096, nodes: 16, sequences: 1024 },
  { name: "7B 256k on 128 GPUs", model: "llama-7b", sequenceLengthTokens: 262_144, nodes: 16, sequences: 16 },
  { name: "65B 4k on 1024 GPUs", model: "llama-65b", sequenceLengthTokens: 4096, nodes: 128, sequences: 1024 },
  { name: "65B 4k on 100,000 GPUs", model: "llama-65b", sequenceLengthTokens: 4096, nodes: 12_500, sequences: 100_000 },
];
const profile = shippedProfile("a800-128");
const jobOf = ({ name, model, sequenceLengthTokens, nodes, sequences }: Case): JobSpec =>
  resolveJob({ name, model, sequenceLengthTokens, globalBatchTokens: sequences * sequenceLengthTokens, precision: "bf16-grad16", cluster: { nodes, gpusPerNode: 8, memoryPerGpu: "80GB" } });

const ascending = (list: readonly number[]): number[] => [...list].sort((a, b) => a - b);
const quantile = (list: readonly number[], q: number): number => ascending(list)[Math.min(list.length - 1, Math.floor(q * list.length))] as number;

const loadBefore = loadavg();
const searches = CASES.map((one) => {
  const job = jobOf(one);
  const times: number[] = [];
  const cpuTimes: number[] = [];
  let counts: Pick<ReturnType<typeof planJob>["counts"], "evaluated" | "feasible" | "pruned"> = { evaluated: 0, feasible: 0 };
  const heapBefore = process.memoryUsage().heapUsed;
  for (let i = 0; i < repetitions; i += 1) {
    const start = performance.now();
    const before = process.threadCpuUsage();
    ({ counts } = planJob(job, profile));
    times.push((performance.now() - start) / 1000);
    const { user, system } = process.threadCpuUsage(before);
    cpuTimes.push((user + system) / 1e6);
  }
  // The first run of a fresh process is what one `internevo plan` takes, before anything is compiled; the later half is that of a warm thread.
  const warm = times.slice(times.length >> 1);
  return {
    name: one.name, plans: counts.evaluated, firstSeconds: times[0], medianSeconds: quantile(warm, 0.5), bestSeconds: Math.min(...times),
    // What it takes of a core, whatever else runs on it.
    medianCpuSeconds: quantile(cpuTimes.slice(cpuTimes.length >> 1), 0.5),
    plansPerSecond: Math.round(counts.evaluated / quantile(warm, 0.5)), heapGrownBytes: Math.max(0, process.memoryUsage().heapUsed - heapBefore),
  };
});

/** Requests at a fixed rate, whether or not those before are answered: none is like another, so nothing could be remembered. */
async function load(workers: Workers, slowEverySeconds: number | null) {
  const small = (k: number): JobSpec => jobOf({ name: `job ${k}`, model: "llama-7b", sequenceLengthTokens: 4096 * (1 + (k % 4)), nodes: 16, sequences: 512 + 128 * (k % 5) + 4 * Math.floor(k / 20) });
  const latencies: number[] = [];
  const slow: number[] = [];
  let refused = 0;
  const ask = async (spec: JobSpec, into: number[]) => {
    const start = performance.now();
    try {
      await workers.plan({ spec, profile, top: 10 });
      into.push((performance.now() - start) / 1000);
    } catch {
      refused += 1;
    }
  };
  const under: Promise<void>[] = [];
  const start = performance.now();
  for (let k = 0; k < rate * seconds; k += 1) {
    const due = start + (k * 1000) / rate;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())));
    under.push(ask(small(k), latencies));
    if (slowEverySeconds !== null && k % (rate * slowEverySeconds) === 0) under.push(ask({ ...jobOf(CASES[3] as Case), name: `slow ${k}` }, slow));
  }
  await Promise.all(under);
  return {
    requestsPerSecond: rate, seconds, answered: latencies.length, refused, medianSeconds: quantile(latencies, 0.5), p99Seconds: quantile(latencies, 0.99),
    ...(slow.length === 0 ? {} : { slow: slow.length, slowMedianSeconds: quantile(slow, 0.5) }),
  };
}

const workers = createWorkers();
// Threads start and compile before anything is measured, as in a service that has run for a while.
for (let i = 0; i < 10; i += 1) await Promise.all(CASES.slice(0, 2).flatMap((one) => cpus().map(() => workers.plan({ spec: jobOf(one), profile, top: 10 }))));
const plain = await load(workers, null);
const besideSlow = await load(workers, 2);
await workers.close();

console.log(JSON.stringify({ benchmark: "search", cpu: cpus()[0]?.model, cores: cpus().length, node: process.version, loadBefore, repetitions, searches, service: { plain, besideSlow } }, null, 2));
