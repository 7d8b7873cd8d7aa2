// Speed of the search, and of the API's threads under load, as JSON: `npm run bench -- search [--repetitions
// 30] [--seconds 10] [--rate 50]`. With `--api http://127.0.0.1:8080` and a token in INTERNEVO_TOKEN the load
// is put on a running service, over HTTP.
import { cpus, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { shippedProfile } from "@internevo/cost-model";
import { resolveJob, type JobSpec } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { createWorkers, type Workers } from "@internevo/api/workers";
import { observeStolen } from "./src/report.ts";

const { values } = parseArgs({
  options: {
    repetitions: { type: "string", default: "30" },
    seconds: { type: "string", default: "10" },
    rate: { type: "string", default: "50" },
    api: { type: "string" },
  },
});
function positive(name: "repetitions" | "seconds" | "rate"): number {
  const value = Number(values[name]);
  if (!Number.isInteger(value) || value < 1)
    throw new Error(`--${name} ${values[name]}: give an integer from 1`);
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
  {
    name: "65B 4k on 1024 GPUs",
    model: "llama-65b",
    sequenceLengthTokens: 4096,
    nodes: 128,
    sequences: 1024,
  },
  {
    name: "65B 4k on 100,000 GPUs",
    model: "llama-65b",
    sequenceLengthTokens: 4096,
    nodes: 12_500,
    sequences: 100_000,
  },
];
const profile = shippedProfile("a800-128");
const jobFileOf = ({ name, model, sequenceLengthTokens, nodes, sequences }: Case) => ({
  name,
  model,
  sequenceLengthTokens,
  globalBatchTokens: sequences * sequenceLengthTokens,
  precision: "bf16-grad16",
  cluster: { nodes, gpusPerNode: 8, memoryPerGpu: "80GB" },
});
const jobOf = (one: Case): JobSpec => resolveJob(jobFileOf(one));

const ascending = (list: readonly number[]): number[] => [...list].sort((a, b) => a - b);
const quantile = (list: readonly number[], q: number): number =>
  ascending(list)[Math.min(list.length - 1, Math.floor(q * list.length))] as number;

const loadBefore = loadavg();
const searches = CASES.map((one) => {
  const job = jobOf(one);
  const times: number[] = [];
  const cpuTimes: number[] = [];
  const aloneCpuTimes: number[] = [];
  let counts: Pick<ReturnType<typeof planJob>["counts"], "evaluated" | "feasible" | "pruned"> = {
    evaluated: 0,
    feasible: 0,
  };
  const heapBefore = process.memoryUsage().heapUsed;
  const cpuSeconds = (work: () => void): number => {
    const before = process.threadCpuUsage();
    work();
    const { user, system } = process.threadCpuUsage(before);
    return (user + system) / 1e6;
  };
  for (let i = 0; i < repetitions; i += 1) {
    const start = performance.now();
    cpuTimes.push(cpuSeconds(() => ({ counts } = planJob(job, profile))));
    times.push((performance.now() - start) / 1000);
  }
  // With a profile that nothing was planned with before, no times are shared with former jobs.
  for (let i = 0; i < repetitions; i += 1) {
    const own = structuredClone(profile);
    aloneCpuTimes.push(cpuSeconds(() => planJob(job, own)));
  }
  // The first run of a fresh process is what one `internevo plan` takes, before anything is compiled; the
  // later half is that of a warm thread.
  const warm = times.slice(times.length >> 1);
  return {
    name: one.name,
    plans: counts.evaluated,
    firstSeconds: times[0],
    medianSeconds: quantile(warm, 0.5),
    bestSeconds: Math.min(...times),
    // What it takes of a core, whatever else runs on it.
    medianCpuSeconds: quantile(cpuTimes.slice(cpuTimes.length >> 1), 0.5),
    // The same of a thread that has planned no such job before.
    aloneMedianCpuSeconds: quantile(aloneCpuTimes.slice(aloneCpuTimes.length >> 1), 0.5),
    plansPerSecond: Math.round(counts.evaluated / quantile(warm, 0.5)),
    heapGrownBytes: Math.max(0, process.memoryUsage().heapUsed - heapBefore),
  };
});

/** Asks for the ten best plans; rejects when it is refused. */
type Ask = (one: Case) => Promise<unknown>;

const overHttp =
  (url: string, token: string): Ask =>
  async (one) => {
    const reply = await fetch(`${url.replace(/\/+$/, "")}/api/v1/plans`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({ job: jobFileOf(one), profile: "a800-128" }),
    });
    const answer = await reply.json();
    if (!reply.ok) throw new Error(`${reply.status}: ${JSON.stringify(answer)}`);
  };
const overThreads =
  (workers: Workers): Ask =>
  (one) =>
    workers.plan({ spec: jobOf(one), profile, top: 10 });

/**
 * The k-th of jobs that are all different: none is like another, so nothing can be remembered. `from`: jobs
 * of another measurement are others.
 */
const different =
  (from: number) =>
  (k: number): Case => ({
    name: `job ${from + k}`,
    model: "llama-7b",
    sequenceLengthTokens: 4096 * (1 + (k % 4)),
    nodes: 16,
    sequences: 512 + 128 * (k % 5) + 4 * Math.floor(k / 20),
  });
/** Of those only so many, again and again. */
const REPEATED = 20;

/** Requests at a fixed rate, whether or not those before are answered. */
async function load(ask: Ask, jobOfRequest: (k: number) => Case, slowEverySeconds: number | null = null) {
  const latencies: number[] = [];
  const slow: number[] = [];
  let refused = 0;
  const timed = async (one: Case, into: number[]) => {
    const start = performance.now();
    try {
      await ask(one);
      into.push((performance.now() - start) / 1000);
    } catch {
      refused += 1;
    }
  };
  const under: Promise<void>[] = [];
  const loadAtStart = loadavg()[0];
  const stolen = observeStolen();
  const start = performance.now();
  for (let k = 0; k < rate * seconds; k += 1) {
    const due = start + (k * 1000) / rate;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())));
    under.push(timed(jobOfRequest(k), latencies));
    if (slowEverySeconds !== null && k % (rate * slowEverySeconds) === 0)
      under.push(timed({ ...(CASES[3] as Case), name: `slow ${k}` }, slow));
  }
  await Promise.all(under);
  return {
    requestsPerSecond: rate,
    seconds,
    load: loadAtStart,
    stolen: stolen(),
    answered: latencies.length,
    refused,
    medianSeconds: quantile(latencies, 0.5),
    p99Seconds: quantile(latencies, 0.99),
    ...(slow.length === 0 ? {} : { slow: slow.length, slowMedianSeconds: quantile(slow, 0.5) }),
  };
}

const token = process.env["INTERNEVO_TOKEN"];
if (values.api !== undefined && token === undefined)
  throw new Error("--api needs a token in INTERNEVO_TOKEN");
const workers = values.api === undefined ? createWorkers() : undefined;
const ask = workers ? overThreads(workers) : overHttp(values.api as string, token as string);
// Threads start and compile before anything is measured, as in a service that has run for a while.
for (let i = 0; i < 10; i += 1)
  await Promise.all(
    CASES.slice(0, 2).flatMap((one) => cpus().map((_, core) => ask({ ...one, name: `warm ${i} ${core}` }))),
  );
for (let k = 0; k < 40; k += 2) await Promise.all([ask(different(3e6)(k)), ask(different(3e6)(k + 1))]);
const distinct = await load(ask, different(0));
const repeated = await load(ask, (k) => different(1e6)(k % REPEATED));
const besideSlow = await load(ask, different(2e6), 2);
await workers?.close();

console.log(
  JSON.stringify(
    {
      benchmark: "search",
      cpu: cpus()[0]?.model,
      cores: cpus().length,
      node: process.version,
      loadBefore,
      repetitions,
      searches,
      service: { over: values.api === undefined ? "threads" : "HTTP", distinct, repeated, besideSlow },
    },
    null,
    2,
  ),
);
