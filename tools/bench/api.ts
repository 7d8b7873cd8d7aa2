// The API under load, as JSON: `npm run bench -- api [--rates 25,50,100] [--rate 500] [--seconds 600] [--followers 1000]
// [--jobs 100000] [--steps 10000000] [--seed 1] [--write docs/benchmarks]`. A stack of its own with a job that trains,
// many stored jobs and steps, followers of event streams, and requests at a given rate. `--write` puts the figures into
// the page.
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { InternEvoClient } from "@internevo/client";
import { API_PREFIX } from "@internevo/contracts";
import type { JobState } from "@internevo/domain";
import { productServices, SERVICE_NAMES, startLocalStack } from "@internevo/local-stack";
import { openDatabase } from "@internevo/store";
import { parse } from "yaml";
import {
  quantilesOf,
  type FollowOrder,
  type FollowResult,
  type LoadOrder,
  type LoadResult,
} from "./src/api-load/messages.ts";
import { writeApiPage, type ApiResult, type MemoryLook, type Phase } from "./src/api-load/page.ts";
import { takenBy } from "./src/api-load/processes.ts";
import { storeCopies, type StoredIds } from "./src/api-load/stored.ts";
import { observeCircumstances } from "./src/report.ts";

const { values } = parseArgs({
  options: {
    rates: { type: "string", default: "25,50,100" },
    rate: { type: "string", default: "500" },
    seconds: { type: "string", default: "600" },
    followers: { type: "string", default: "1000" },
    jobs: { type: "string", default: "100000" },
    steps: { type: "string", default: "10000000" },
    seed: { type: "string", default: "1" },
    write: { type: "string" },
  },
});
function positive(name: Exclude<keyof typeof values, "write">, text = values[name]): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new Error(`--${name} ${text}: give an integer from 1`);
  return value;
}
const STEPS_OF_A_JOB = 5000;
const options = {
  jobs: positive("jobs"),
  steps: positive("steps"),
  followers: positive("followers"),
  seconds: positive("seconds"),
  seed: positive("seed"),
  rates: [...values.rates.split(",").filter(Boolean), values.rate].map((text) => positive("rate", text)),
};
const trained = Math.ceil(options.steps / STEPS_OF_A_JOB);
if (trained > options.jobs)
  throw new Error(
    `--jobs ${options.jobs}: give at least ${trained}, each with ${STEPS_OF_A_JOB} of the ${options.steps} steps`,
  );

/** Seconds of the rates before the last, and of training without load before and after. */
const SHORT_SECONDS = 60;
const LOOK_SECONDS = 10;
/** A token may have a hundred streams, and ask a hundred times a second. */
const TOKENS = Math.max(Math.ceil(options.followers / 100), Math.ceil(Math.max(...options.rates) / 50));

const say = (text: string): void => console.error(`▸ ${text}`);

async function benchmarkJob(name: string, steps: number): Promise<object> {
  const file = resolve(import.meta.dirname, "../../examples/quickstart.yaml");
  const job = parse(await readFile(file, "utf8")) as Record<string, Record<string, unknown>>;
  return {
    ...job,
    name,
    steps,
    checkpointing: { everySteps: 1000, keepLast: 1 },
    trials: { count: 1, warmupSteps: 1, steps: 2 },
    cluster: { ...job["cluster"], gpusPerNode: 1 },
  };
}

const circumstances = observeCircumstances(
  `npm run --silent bench -- api ${process.argv.slice(2).join(" ")}`.trim(),
);
const dataDirectory = await mkdtemp(join(tmpdir(), "internevo-bench-api-"));
const child = (name: string): ChildProcess => fork(join(import.meta.dirname, "src/api-load", `${name}.ts`));
const answer = async <T>(process: ChildProcess, message: object | string): Promise<T> => {
  const said = once(process, "message");
  process.send(message);
  return (await said)[0] as T;
};

say("starting a stack");
const stack = await startLocalStack({
  dataDirectory,
  services: productServices().map((service) => ({
    ...service,
    // The other core is for everything else.
    env: { ...service.env, INTERNEVO_THREADS_PER_RANK: "1", INTERNEVO_PROBE_POINT_SECONDS: "0.05" },
  })),
  onRestart: (name, end) => say(`${name} ended (${end.signal ?? end.code}) and is started again`),
});
const { apiUrl, apiToken, databaseUrl } = stack.info();
if (apiUrl === null) throw new Error("the stack has no API");
const client = new InternEvoClient({ baseUrl: apiUrl, token: apiToken });
const database = openDatabase({ url: databaseUrl, applicationName: "bench", statementSeconds: null });

async function until(id: string, isThere: (state: JobState, lastStep: number) => boolean): Promise<void> {
  for (;;) {
    const { state, lastStep, failure } = await client.getJob(id);
    if (isThere(state, lastStep)) return;
    if (state === "failed" || state === "held")
      throw new Error(`the job is ${state}: ${failure?.message ?? ""}`);
    await sleep(250);
  }
}

const roots = (asking?: ChildProcess, following?: ChildProcess): Record<string, number | undefined> => ({
  ...Object.fromEntries(["postgres", "nats", ...SERVICE_NAMES].map((name) => [name, stack.pidOf(name)])),
  ...(asking === undefined ? {} : { asking: asking.pid }),
  ...(following === undefined ? {} : { following: following.pid }),
});

/** Looks at every process until the returned function is called. */
function watchMemory(begin: number): () => MemoryLook[] {
  const looks: MemoryLook[] = [];
  const lookNow = (): void => {
    const bytes = Object.entries(takenBy(roots())).map(
      ([name, { memoryBytes }]) => [name, memoryBytes] as const,
    );
    looks.push({ seconds: (performance.now() - begin) / 1000, bytes: Object.fromEntries(bytes) });
  };
  lookNow();
  const timer = setInterval(lookNow, 1000 * LOOK_SECONDS);
  return () => {
    clearInterval(timer);
    lookNow();
    return looks;
  };
}

/** What each process took of the processor while `work` went on. */
async function phase(
  requestsPerSecond: number,
  seconds: number,
  about: Omit<LoadOrder, "requestsPerSecond" | "seconds">,
  following: ChildProcess,
): Promise<Phase> {
  say(`${requestsPerSecond} requests a second for ${seconds} s`);
  await answer<FollowResult>(following, "reset");
  const asking = child("ask");
  const begin = performance.now();
  const from = new Date();
  const before = takenBy(roots(asking, following));
  const stopWatching = watchMemory(begin);
  const said = once(asking, "message");
  let after = before;
  // What it took must be read while it is there: it goes after its answer.
  const watching = setInterval(() => void (after = takenBy(roots(asking, following))), 1000);
  asking.send({ ...about, requestsPerSecond, seconds } satisfies LoadOrder);
  const load = (await said)[0] as LoadResult;
  clearInterval(watching);
  after = {
    ...takenBy(roots(asking, following)),
    asking: after["asking"] ?? { processorSeconds: 0, memoryBytes: 0 },
  };
  const took = (performance.now() - begin) / 1000;
  return {
    requestsPerSecond,
    seconds: took,
    from: from.toISOString(),
    to: new Date().toISOString(),
    load,
    processorSeconds: Object.fromEntries(
      Object.entries(after).map(([name, { processorSeconds }]) => [
        name,
        processorSeconds - (before[name]?.processorSeconds ?? 0),
      ]),
    ),
    memory: stopWatching(),
  };
}

/** Step times of a run between two instants. */
async function stepTimes(id: string, from: string, to: string): Promise<number[]> {
  const { rows } = await database.db.execute<{ seconds: number }>(
    `select m.step_time_seconds as seconds from step_metrics m join runs r on r.id = m.run_id
     where r.job_id = '${id}' and m.at between '${from}' and '${to}' order by m.step`,
  );
  return rows.map(({ seconds }) => seconds);
}

async function trainAlone(id: string): Promise<number[]> {
  say(`training alone for ${SHORT_SECONDS} s`);
  const from = new Date().toISOString();
  await sleep(1000 * SHORT_SECONDS);
  return stepTimes(id, from, new Date().toISOString());
}

async function measure(stored: StoredIds): Promise<Omit<ApiResult, "circumstances" | "options">> {
  const tokens: string[] = [];
  for (let index = 0; index < TOKENS; index += 1)
    tokens.push((await client.createToken({ name: `reader ${index}`, role: "viewer" })).token);
  const { id } = await client.submitJob(await benchmarkJob("trains", 1_000_000));
  await until(id, (state, lastStep) => state === "running" && lastStep > 20);
  const aloneBefore = await trainAlone(id);
  say(`opening ${options.followers} event streams`);
  const following = child("follow");
  const order: FollowOrder = {
    url: `${apiUrl}${API_PREFIX}/jobs/${id}/events`,
    tokens,
    followers: options.followers,
  };
  const opened = await answer<FollowResult>(following, order);
  if (opened.lost > 0) throw new Error(`${opened.lost} of ${options.followers} event streams were refused`);
  const about = {
    ...stored,
    apiUrl: `${apiUrl}${API_PREFIX}`,
    tokens,
    stepsOfAJob: STEPS_OF_A_JOB,
    seed: options.seed,
  };
  const phases: Phase[] = [];
  for (const [index, rate] of options.rates.entries()) {
    const isLast = index === options.rates.length - 1;
    phases.push(await phase(rate, isLast ? options.seconds : SHORT_SECONDS, about, following));
  }
  const followed = await answer<FollowResult>(following, "count");
  const last = phases.at(-1) as Phase;
  const underLoad = await stepTimes(id, last.from, last.to);
  const aloneAfter = await trainAlone(id);
  await client.cancelJob(id, {});
  await until(id, (state) => state === "cancelled");
  return {
    phases,
    followed,
    expectedEvents: underLoad.length * options.followers,
    stepSeconds: {
      aloneBefore: quantilesOf(aloneBefore),
      underLoad: quantilesOf(underLoad),
      aloneAfter: quantilesOf(aloneAfter),
    },
  };
}

try {
  const { id: original } = await client.submitJob(await benchmarkJob("original", 20));
  await until(original, (state) => state === "succeeded");
  say(`storing ${options.jobs} jobs and ${trained * STEPS_OF_A_JOB} steps`);
  const stored = await storeCopies(database, original, {
    jobs: options.jobs,
    trained,
    stepsOfAJob: STEPS_OF_A_JOB,
  });
  const measured = await measure(stored);
  const result: ApiResult = { options, ...measured, circumstances: circumstances() };
  if (values.write !== undefined) await writeApiPage(values.write, result);
  console.log(JSON.stringify({ schemaVersion: 1, benchmark: "api", ...result }, null, 2));
} finally {
  await database.close();
  await stack.stop();
  await rm(dataDirectory, { recursive: true, force: true });
}
