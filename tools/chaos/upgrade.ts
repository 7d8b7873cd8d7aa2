// Upgrades a stack of the last release while a job trains: each process of each service is stopped and started as
// this checkout's version, one at a time. Meanwhile users ask, submit, cancel and follow. Then it checks that no step
// was lost, that losses are those of a run that nothing disturbed, bit by bit, and that every request was answered
// when it was repeated. usage: npm run chaos -- upgrade [--from REVISION] [--seed 1] [--instances 2] [--steps 250]
// prints JSON
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import type { InternEvoClient } from "@internevo/client";
import { constraintsOf, isAtRest, type JobState } from "@internevo/domain";
import { productServices, SERVICE_NAMES, startLocalStack, type LocalStack } from "@internevo/local-stack";
import pg from "pg";
import { chaosJob, insist, rankPids, until } from "./src/harness.ts";
import { storedOf, type Stored } from "./src/random/judge.ts";
import { follow, type Heard } from "./src/upgrade/followers.ts";
import { brokenByFollower, brokenByWebhook, brokenPromises } from "./src/upgrade/judge.ts";
import { oldRevision, prepareOldVersion, type OldVersion } from "./src/upgrade/old-version.ts";
import { drawOrder, type Replacement } from "./src/upgrade/order.ts";
import { makePlaces, Troubles, type Places } from "./src/upgrade/processes.ts";
import { startReceiver, transitionWords, type Receiver } from "./src/upgrade/receiver.ts";
import { clientOf, Users } from "./src/upgrade/users.ts";
import { wholeNumber } from "./src/whole-number.ts";

const { values } = parseArgs({
  options: {
    from: { type: "string" },
    seed: { type: "string", default: "1" },
    instances: { type: "string", default: "2" },
    steps: { type: "string", default: "250" },
    "keep-logs": { type: "boolean", default: false },
  },
});
const seed = wholeNumber("--seed", values.seed, 0);
const instances = wholeNumber("--instances", values.instances, 1);
const steps = wholeNumber("--steps", values.steps, 20);

const TRIALS = 1;
const WAITING_STEPS = 30;
/** The upgrade begins when so many steps were trained. */
const FIRST_STEPS = 10;
/** Between two replacements, at most. */
const MOST_PAUSE_SECONDS = 1;
const HOP_SECONDS = 1.7;
/** How long a job may take. */
const PATIENCE_SECONDS = 600;

/** The figures of a profile are not what is tested. The webhook's receiver is on this machine. */
const SETTINGS = {
  INTERNEVO_PROBE_SAMPLES: "1",
  INTERNEVO_PROBE_POINT_SECONDS: "0.002",
  INTERNEVO_PROBE_SPREAD: "1",
  INTERNEVO_PROFILE_SLICE_ROUNDS: "1",
  INTERNEVO_PROFILE_AGAIN_SECONDS: "0",
  INTERNEVO_PROFILE_MOST_SPREAD_PERCENT: "1000000",
  INTERNEVO_WEBHOOK_PRIVATE_ADDRESSES: "true",
};

const file = (await chaosJob("upgrade")) as Record<string, Record<string, unknown>>;
const jobFile = (name: string, jobSteps: number): Record<string, unknown> => ({
  ...file,
  name,
  steps: jobSteps,
  checkpointing: { everySteps: 20, keepLast: 2 },
  trials: { count: TRIALS, warmupSteps: 1, steps: 2, repeats: 0 },
  seed: 7,
});

/** What trains, waits and is told while the versions change. */
interface Work {
  readonly jobId: string;
  readonly waitingId: string;
  readonly workloadId: string;
  readonly webhookId: string;
}

async function beginWork(client: InternEvoClient, receiver: Receiver): Promise<Work> {
  const webhook = await client.createWebhook({ name: "upgrade", url: receiver.url });
  const job = await client.submitJob(jobFile("long", steps));
  const waiting = await client.submitJob(jobFile("waiting", WAITING_STEPS));
  const workload = await client.createWorkload({
    name: "nightly",
    job: jobFile("nightly", WAITING_STEPS),
    cron: "0 3 1 1 *",
  });
  return { jobId: job.id, waitingId: waiting.id, workloadId: workload.id, webhookId: webhook.id };
}

const lastStepOf = async (client: InternEvoClient, id: string): Promise<number> =>
  (await insist(() => client.getJob(id))).lastStep;
const stateOf = async (client: InternEvoClient, id: string): Promise<JobState> =>
  (await insist(() => client.getJob(id))).state;

async function untilAtRest(client: InternEvoClient, id: string, what: string): Promise<void> {
  const isOver = async (): Promise<boolean> => {
    // Seldom: the answers take their time of the ranks.
    await sleep(500);
    return isAtRest(await stateOf(client, id));
  };
  await until(`the end of ${what}`, isOver, PATIENCE_SECONDS);
}

interface Step {
  readonly process: string;
  readonly stopSeconds: number;
  readonly readySeconds: number;
  readonly jobAtStep: number;
}

/** Replaces every process, one at a time. */
async function upgrade(
  places: Places,
  order: readonly Replacement[],
  client: InternEvoClient,
  jobId: string,
): Promise<readonly Step[]> {
  const services = new Map(productServices().map((service) => [service.name, service]));
  const done: Step[] = [];
  for (const { name, instance, afterSeconds } of order) {
    await sleep(afterSeconds * 1000);
    const place = places.of(name, instance);
    const service = services.get(name);
    if (service === undefined) throw new Error(`${name} is no service of this checkout`);
    const begin = performance.now();
    await place.stop();
    const stopped = performance.now();
    await place.start(service, "new");
    const ready = performance.now();
    const jobAtStep = await lastStepOf(client, jobId);
    const step = {
      process: place.label,
      stopSeconds: (stopped - begin) / 1000,
      readySeconds: (ready - stopped) / 1000,
      jobAtStep,
    };
    console.error(
      `  ${step.process}: ended in ${step.stopSeconds.toFixed(1)} s, ready in ${step.readySeconds.toFixed(1)} s, the job at step ${jobAtStep}`,
    );
    done.push(step);
  }
  return done;
}

/** Losses of the same run under the same plan, undisturbed, by the new version alone. */
async function undisturbed(
  client: InternEvoClient,
  databaseUrl: string,
  jobId: string,
): Promise<readonly number[]> {
  const { chosen } = await client.getJob(jobId);
  if (chosen === null) throw new Error(`job ${jobId} has no plan`);
  const job = jobFile("undisturbed", steps);
  const { id } = await client.submitJob({ ...job, plan: constraintsOf(chosen.plan) });
  await untilAtRest(client, id, "the undisturbed run");
  const stored = await storedOf(databaseUrl, id);
  if (stored.state !== "succeeded")
    throw new Error(`the undisturbed run ended as ${stored.state}: ${stored.reason}`);
  return stored.steps.map(({ loss }) => loss);
}

interface Facts {
  /** Transitions of the jobs that a webhook has to be told of. */
  readonly transitions: readonly string[];
  /** Names of jobs that are stored, each as often as it is. */
  readonly names: readonly string[];
  /** States of the jobs that were cancelled, other than cancelled. */
  readonly notCancelled: readonly string[];
  readonly deadLetters: number;
  readonly undelivered: number;
}

async function factsOf(databaseUrl: string, work: Work, cancelled: readonly string[]): Promise<Facts> {
  const db = new pg.Client({ connectionString: databaseUrl });
  await db.connect();
  try {
    const ask = async <T>(text: string, parameters: readonly unknown[] = []): Promise<T[]> =>
      (await db.query(text, [...parameters])).rows as T[];
    const moves = await ask<{ job_id: string; from_state: string | null; to_state: string }>(
      "select job_id, from_state, to_state from job_transitions where job_id = any($1)",
      [[work.jobId, work.waitingId, ...cancelled]],
    );
    const names = await ask<{ name: string }>("select name from jobs order by created_at");
    const others = await ask<{ name: string; state: string }>(
      "select name, state from jobs where id = any($1) and state <> 'cancelled'",
      [cancelled],
    );
    const [counts] = await ask<{ dead: string; undelivered: string }>(
      `select (select count(*) from dead_letters) as dead,
        (select count(*) from webhook_deliveries where state <> 'succeeded') as undelivered`,
    );
    return {
      transitions: moves.map((move) => transitionWords(move.job_id, move.from_state, move.to_state)),
      names: names.map(({ name }) => name),
      notCancelled: others.map(({ name, state }) => `${name} is ${state}`),
      deadLetters: Number(counts?.dead),
      undelivered: Number(counts?.undelivered),
    };
  } finally {
    await db.end();
  }
}

interface Outcome {
  readonly client: InternEvoClient;
  readonly work: Work;
  readonly replaced: readonly Step[];
  /** Whether the job trained until the last process was replaced. */
  readonly trainedThroughout: boolean;
  readonly users: Users;
  readonly heard: readonly Heard[];
  readonly troubles: Troubles;
  readonly receiver: Receiver;
  /** Ends services and receiver. */
  readonly end: () => Promise<void>;
}

async function whileJobTrains(stack: LocalStack, directory: string, old: OldVersion): Promise<Outcome> {
  const troubles = new Troubles();
  const options = { instances, directory, settings: SETTINGS, troubles };
  const places = await makePlaces(stack, SERVICE_NAMES, options);
  const receiver = await startReceiver();
  const end = async (): Promise<void> => {
    receiver.close();
    await Promise.all(places.all.map((place) => place.stop()));
  };
  try {
    const oldServices = new Map(old.services.map((service) => [service.name, service]));
    // The first migrates; the others find it done.
    for (const name of SERVICE_NAMES)
      for (let instance = 0; instance < instances; instance += 1) {
        const service = oldServices.get(name);
        if (service !== undefined) await places.of(name, instance).start(service, "old");
      }
    const makeClient = (): InternEvoClient => clientOf(places.apiUrls, stack.info().apiToken);
    const client = makeClient();
    const work = await beginWork(client, receiver);
    const following = [
      follow("a follower", makeClient(), work.jobId, null),
      follow("a follower who comes back", makeClient(), work.jobId, HOP_SECONDS),
    ];
    await until(
      `step ${FIRST_STEPS}`,
      async () => (await lastStepOf(client, work.jobId)) >= FIRST_STEPS,
      PATIENCE_SECONDS,
    );
    const users = new Users(makeClient, { ...work, jobFile: (name) => jobFile(name, WAITING_STEPS) });
    const order = drawOrder(SERVICE_NAMES, instances, seed, MOST_PAUSE_SECONDS);
    const replaced = await upgrade(places, order, client, work.jobId);
    const trainedThroughout = (await stateOf(client, work.jobId)) === "running";
    await untilAtRest(client, work.jobId, "the long job");
    await users.end();
    await untilAtRest(client, work.waitingId, "the job that waited");
    const heard = [
      ...(await Promise.all(following)),
      await follow("who reads it afterwards", client, work.jobId, null),
    ];
    return { client, work, replaced, trainedThroughout, users, heard, troubles, receiver, end };
  } catch (error) {
    console.error(troubles);
    await end();
    throw error;
  }
}

async function judged(stack: LocalStack, outcome: Outcome, losses: readonly number[]) {
  const { databaseUrl } = stack.info();
  const { work, users, heard, receiver } = outcome;
  const broken: string[] = [];
  const long = await storedOf(databaseUrl, work.jobId);
  const waiting = await storedOf(databaseUrl, work.waitingId);
  broken.push(...brokenPromises(long, { trials: TRIALS, steps, losses }).map((each) => `long: ${each}`));
  const own = waiting.steps.map(({ loss }) => loss);
  broken.push(
    ...brokenPromises(waiting, { trials: TRIALS, steps: WAITING_STEPS, losses: own }).map(
      (each) => `waiting: ${each}`,
    ),
  );
  for (const each of heard) broken.push(...brokenByFollower(each, long));
  broken.push(...users.requests.failed.map((each) => `not answered: ${each}`), ...users.wrong);
  const cancelled = [...users.cancelled.values()];
  let facts = await factsOf(databaseUrl, work, cancelled);
  await until(
    "the webhook is told of everything",
    async () => {
      facts = await factsOf(databaseUrl, work, cancelled);
      return facts.undelivered === 0;
    },
    60,
  ).catch((error: unknown) => broken.push((error as Error).message));
  broken.push(...brokenByWebhook(facts.transitions, receiver.transitions), ...facts.notCancelled);
  const twice = facts.names.filter((name, index) => facts.names.indexOf(name) !== index);
  if (twice.length > 0) broken.push(`stored twice: ${twice.join(", ")}`);
  if (facts.deadLetters > 0) broken.push(`${facts.deadLetters} dead letters`);
  if (!outcome.trainedThroughout) broken.push(`the job ended before the upgrade did: give it more --steps`);
  return { broken, long, facts };
}

const summaryOf = (heard: Heard) => ({
  name: heard.name,
  stepsHeard: heard.steps.length,
  different: new Set(heard.steps.map(({ step }) => step)).size,
  reconnects: heard.reconnects,
});

interface Verdict {
  readonly broken: readonly string[];
  readonly long: Stored;
  readonly facts: Facts;
  readonly seconds: number;
}

function print(old: OldVersion, outcome: Outcome, { broken, long, facts, seconds }: Verdict): void {
  const { users, troubles, heard, replaced } = outcome;
  const report = {
    chaos: "upgrade",
    from: old.revision,
    seed,
    instances,
    newMigrations: old.newMigrations,
    otherPackages: old.otherPackages,
    nativeChanges: old.nativeChanges,
    seconds,
    replaced,
    job: { state: long.state, steps: long.steps.length, attempts: long.attempts },
    cancelled: users.cancelled.size,
    webhookToldOf: facts.transitions.length,
    requests: users.requests.report(),
    followers: heard.map(summaryOf),
    endedByThemselves: troubles.ended,
    errorsLogged: troubles.errors,
    broken,
  };
  console.log(JSON.stringify(report, null, 2));
}

async function main(): Promise<void> {
  const revision = await oldRevision(values.from);
  console.error(`from ${revision.name}: ${revision.because}`);
  const directory = await mkdtemp(join(tmpdir(), "internevo-upgrade-"));
  const [tree, data] = [join(directory, "old"), join(directory, "data")];
  await mkdir(tree);
  const old = await prepareOldVersion(revision, tree);
  const stack = await startLocalStack({ dataDirectory: data, services: [] });
  let outcome: Outcome | undefined;
  try {
    const begin = performance.now();
    outcome = await whileJobTrains(stack, data, old);
    const seconds = (performance.now() - begin) / 1000;
    const losses = await undisturbed(outcome.client, stack.info().databaseUrl, outcome.work.jobId);
    const { broken, long, facts } = await judged(stack, outcome, losses);
    await outcome.end();
    const ranksLeft = rankPids(data).length;
    if (ranksLeft > 0) broken.push(`${ranksLeft} ranks are left`);
    print(old, outcome, { broken, long, facts, seconds });
    process.exitCode = broken.length === 0 ? 0 : 1;
  } finally {
    await outcome?.end();
    await stack.stop();
    if (values["keep-logs"]) console.error(`logs are in ${join(data, "logs")}`);
    else await rm(directory, { recursive: true, force: true });
  }
}

await main();
