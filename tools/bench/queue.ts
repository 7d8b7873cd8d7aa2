// Speed of the queue for hosts beside many stored jobs, as JSON: `npm run bench -- queue [--jobs 100000]
// [--waiting 500] [--operations 2000] [--seed 1]`. The real Postgres, one connection after the other.
import { mkdtempSync, rmSync } from "node:fs";
import { cpus, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startLocalStack } from "@internevo/local-stack";
import { PRIORITIES, resolveJob } from "@internevo/domain";
import {
  claimHosts,
  getJobDetail,
  jobLease,
  listJobs,
  migrateDatabase,
  newTraceparent,
  openDatabase,
  queuePlace,
  requestCancel,
  submitJob,
  type Database,
} from "@internevo/store";
import { drawnHosts, drawnOf, randomBy } from "./src/drawn.ts";
import { observeStolen } from "./src/report.ts";

const { values } = parseArgs({
  options: {
    jobs: { type: "string", default: "100000" },
    waiting: { type: "string", default: "500" },
    operations: { type: "string", default: "2000" },
    seed: { type: "string", default: "1" },
  },
});
function positive(name: keyof typeof values): number {
  const value = Number(values[name]);
  if (!Number.isInteger(value) || value < 1)
    throw new Error(`--${name} ${values[name]}: give an integer from 1`);
  return value;
}
const [stored, waiting, operations, seed] = [
  positive("jobs"),
  positive("waiting"),
  positive("operations"),
  positive("seed"),
];

const random = randomBy(seed);
const drawn = <T>(list: readonly T[]): T => drawnOf(list, random);

const CLUSTERS = 20;
const HOSTS_A_CLUSTER = 16;
const spec = resolveJob({
  name: "queued",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 4096 * 1024,
  cluster: { name: "site", nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB" },
});
/** A job of one to sixteen hosts of one cluster, more often few. */
const hosts = (): string[] => drawnHosts(CLUSTERS, HOSTS_A_CLUSTER, [16, 16, 16, 8, 8, 4, 2, 1], random);

async function storeEnded(database: Database): Promise<void> {
  const id = await database.transaction((tx) => submitJob(tx, spec, { owner: "ada" }));
  await database.transaction((tx) => requestCancel(tx, id));
  await database.db
    .execute(`insert into jobs (id, name, spec, state, owner, version, traceparent, created_at, updated_at, ended_at)
    select gen_random_uuid(), 'job ' || n, spec, 'cancelled', 'user ' || n % 50, version, traceparent,
      now() - make_interval(mins => n), now(), now()
    from jobs, generate_series(1, ${stored - 1}) n`);
  await database.db.execute("analyze");
}

const times = new Map<string, number[]>();
async function timed<T>(name: string, work: () => Promise<T>): Promise<T> {
  const begin = performance.now();
  const result = await work();
  const list = times.get(name) ?? [];
  list.push(performance.now() - begin);
  times.set(name, list);
  return result;
}

const directory = mkdtempSync(join(tmpdir(), "internevo-queue-"));
const stack = await startLocalStack({ dataDirectory: directory, services: [] });
try {
  const { databaseUrl } = stack.info();
  await migrateDatabase(databaseUrl);
  const database = openDatabase({ url: databaseUrl, applicationName: "bench" });
  const stolen = observeStolen();
  await storeEnded(database);
  const alive: string[] = [];
  const submit = async (): Promise<void> => {
    const id = await database.transaction((tx) => submitJob(tx, spec, { owner: "ada" }));
    alive.push(id);
    const request = {
      owner: jobLease(id),
      hosts: hosts(),
      priority: drawn(PRIORITIES),
      submittedAt: new Date(),
      command: { type: "job.profile" as const, data: { jobId: id }, traceparent: newTraceparent() },
    };
    await timed("claim", () => database.transaction((tx) => claimHosts(tx, request)));
  };
  while (alive.length < waiting) await submit();
  times.clear();
  for (let operation = 0; operation < operations; operation += 1) {
    const [id] = alive.splice(Math.floor(random() * alive.length), 1) as [string];
    await timed("end of a job, with calling the next", () =>
      database.transaction((tx) => requestCancel(tx, id)),
    );
    await submit();
    const other = drawn(alive);
    await timed("place in the queue", () => queuePlace(database.db, jobLease(other)));
    await timed("one job", () => getJobDetail(database.db, other));
    await timed("page of jobs", () => listJobs(database.db, { limit: 50 }));
    await timed("page of queued jobs", () => listJobs(database.db, { limit: 50, state: "queued" }));
    await timed("page of an owner's jobs", () => listJobs(database.db, { limit: 50, owner: "user 7" }));
  }
  const { rows } = await database.db.execute<{ waiting: number }>(
    "select count(*)::int as waiting from host_waiters",
  );
  const quantile = (list: readonly number[], q: number): number =>
    [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(q * list.length))] as number;
  console.log(
    JSON.stringify(
      {
        schemaVersion: 1,
        at: new Date().toISOString(),
        machine: { cpu: cpus()[0]?.model, cores: cpus().length, loadAverage: loadavg() },
        stolen: stolen(),
        storedJobs: stored,
        jobsAlive: alive.length,
        waitingAtTheEnd: rows[0]?.waiting,
        clusters: CLUSTERS,
        hostsOfACluster: HOSTS_A_CLUSTER,
        seed,
        milliseconds: Object.fromEntries(
          [...times].map(([name, list]) => [
            name,
            {
              count: list.length,
              p50: quantile(list, 0.5),
              p99: quantile(list, 0.99),
              most: Math.max(...list),
            },
          ]),
        ),
      },
      null,
      2,
    ),
  );
  await database.close();
} finally {
  await stack.stop();
  rmSync(directory, { recursive: true, force: true });
}
