import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { PRIORITIES, resolveJob, type JobSpec } from "@internevo/domain";
import {
  claimHosts,
  getJob,
  getJobDetail,
  hostsUse,
  jobLease,
  listJobs,
  newTraceparent,
  queuePlace,
  requestCancel,
  setPriority,
  submitJob,
  usageBetween,
  type Database,
} from "@internevo/store";
import { quantilesOf, type Quantiles } from "./api-load/messages.ts";
import { drawnHosts, drawnOf, randomBy } from "./drawn.ts";

/** What the queue and its database are given. */
export interface QueueLoad {
  /** Jobs that are over, each with one hold of this month. */
  readonly jobs: number;
  readonly projects: number;
  readonly clusters: number;
  readonly hostsOfACluster: number;
  /** Jobs that hold hosts or wait for them, at any time. */
  readonly alive: number;
  readonly operations: number;
  readonly seed: number;
}

export interface QueueStoreResult {
  readonly load: QueueLoad;
  readonly waitingAtTheEnd: number;
  readonly holdingAtTheEnd: number;
  /** Milliseconds of each call. */
  readonly operations: Readonly<Record<string, Quantiles>>;
}

const GPUS_OF_A_HOST = 8;
/** Hosts of a job as parts of a cluster, more often few. */
const PARTS = [16, 16, 16, 8, 8, 4, 2, 1];
/** Every third project has quotas, so wide that they seldom hold a job back. */
const QUOTAS = { everyProjects: 3, maxGpus: 2000, gpuHoursPerMonth: 1e9 };
const HELD_MINUTES = 30;

const projectName = (index: number): string => `project-${index}`;

async function storeProjects(database: Database, projects: number): Promise<void> {
  await database.db.execute(sql`
    insert into projects (name, weight, max_gpus, gpu_hours_per_month)
    select 'project-' || n, 1 + n % 3,
      case when n % ${QUOTAS.everyProjects}::int = 0 then ${QUOTAS.maxGpus}::int end,
      case when n % ${QUOTAS.everyProjects}::int = 0 then ${QUOTAS.gpuHoursPerMonth}::float8 end
    from generate_series(0, ${projects - 1}::int) n`);
}

/** Jobs that are over, as the product leaves them, with the hosts that they held in this month. */
async function storeEnded(database: Database, spec: JobSpec, load: QueueLoad): Promise<void> {
  const id = await database.transaction((tx) => submitJob(tx, spec, { owner: "ada" }));
  await database.transaction((tx) => requestCancel(tx, id));
  await database.db.transaction(async (tx) => {
    await tx.execute(sql`
      create temporary table ended on commit drop as
      select gen_random_uuid() as id, n, 'project-' || n % ${load.projects}::int as project,
        date_trunc('month', now()) + (now() - date_trunc('month', now())) * n / ${load.jobs}::float8 as at
      from generate_series(1, ${load.jobs - 1}::int) n`);
    await tx.execute(sql`
      insert into jobs (id, name, project, spec, state, owner, version, traceparent, created_at, updated_at, ended_at)
      select e.id, 'job ' || e.n, e.project, spec, 'cancelled', 'user ' || e.n % 50, version, traceparent, e.at, e.at, e.at
      from jobs j, ended e where j.id = ${id}::uuid`);
    await tx.execute(sql`
      insert into host_holds (owner, project, submitter, cluster, gpus, began_at, ended_at)
      select 'job:' || id, project, 'user ' || n % 50, 'c' || n % ${load.clusters}::int, ${GPUS_OF_A_HOST}::int,
        at - make_interval(mins => ${HELD_MINUTES}::int), at
      from ended`);
  });
  // As if they had come in months: what Postgres does behind so many rows at once is not measured.
  await database.db.execute(sql.raw("vacuum analyze"));
  await database.db.execute(sql.raw("checkpoint"));
}

type Timed = <T>(name: string, work: () => Promise<T>) => Promise<T>;

/** What people and the console ask about the queue, jobs and usage. */
async function askAsPeopleDo(
  { db }: Database,
  about: { readonly job: string; readonly project: string; readonly ended: string },
  timed: Timed,
): Promise<void> {
  const { job, project, ended } = about;
  const month = { from: new Date(Date.now() - 30 * 86_400_000), to: new Date() };
  await timed("place in the queue", () => queuePlace(db, jobLease(job)));
  await timed("who holds and who waits", () => hostsUse(db, project));
  await timed("one job", () => getJobDetail(db, job));
  await timed("page of jobs", () => listJobs(db, { limit: 50 }));
  await timed("page of queued jobs", () => listJobs(db, { limit: 50, state: "queued" }));
  await timed("page of an owner's jobs", () => listJobs(db, { limit: 50, owner: "user 7" }));
  await timed("page of a project's jobs", () => listJobs(db, { limit: 50, only: project }));
  await timed("search by name", () => listJobs(db, { limit: 50, name: ended }));
  await timed("a project's use of 30 days", () => usageBetween(db, { ...month, by: "day", project }));
}

/**
 * Times what the product does with its queue, one after the other on one connection, over a database that holds
 * nothing else. Each round ends one job that is alive, submits one, and asks what people and services ask.
 */
export async function measureQueueStore(database: Database, load: QueueLoad): Promise<QueueStoreResult> {
  const random = randomBy(load.seed);
  const drawn = <T>(list: readonly T[]): T => drawnOf(list, random);
  const job = {
    name: "queued",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 4096 * 1024,
    cluster: { name: "c0", nodes: 1, gpusPerNode: GPUS_OF_A_HOST, memoryPerGpu: "80GB" },
    project: projectName(0),
    checkpointing: { everySteps: 100, keepLast: 1 },
  };
  await storeProjects(database, load.projects);
  await storeEnded(database, resolveJob(job), load);

  const times = new Map<string, number[]>();
  const timed: Timed = async (name, work) => {
    const begin = performance.now();
    const result = await work();
    const list = times.get(name) ?? [];
    list.push(performance.now() - begin);
    times.set(name, list);
    return result;
  };
  const alive: string[] = [];
  const submit = async (): Promise<void> => {
    const hosts = drawnHosts(load.clusters, load.hostsOfACluster, PARTS, random);
    const priority = drawn(PRIORITIES);
    const spec = resolveJob({
      ...job,
      name: `queued ${alive.length}`,
      project: projectName(Math.floor(random() * load.projects)),
      cluster: { ...job.cluster, name: String(hosts[0]?.split("-")[0]), nodes: hosts.length },
      priority,
      preemptible: random() < 1 / 2,
    });
    const id = randomUUID();
    await timed("submit a job", () =>
      database.transaction((tx) => submitJob(tx, spec, { id, owner: "ada" })),
    );
    const request = {
      owner: jobLease(id),
      hosts,
      priority,
      submittedAt: new Date(),
      command: { type: "job.profile" as const, data: { jobId: id }, traceparent: newTraceparent() },
    };
    alive.push(id);
    await timed("ask for hosts", () => database.transaction((tx) => claimHosts(tx, request)));
  };
  while (alive.length < load.alive) await submit();
  times.clear();
  for (let round = 0; round < load.operations; round += 1) {
    const [id] = alive.splice(Math.floor(random() * alive.length), 1) as [string];
    await timed("end a job, and call whoever is next", () =>
      database.transaction((tx) => requestCancel(tx, id)),
    );
    await submit();
    const other = drawn(alive);
    const project = projectName(Math.floor(random() * load.projects));
    await timed("change a priority", () =>
      database.transaction(async (tx) => {
        const found = await getJob(tx, other);
        if (found) await setPriority(tx, found, drawn(PRIORITIES), "ada");
      }),
    );
    const ended = `job ${1 + Math.floor(random() * (load.jobs - 1))}`;
    await askAsPeopleDo(database, { job: other, project, ended }, timed);
  }
  const { rows } = await database.db.execute<{ waiting: number; holding: number }>(sql`
    select (select count(*)::int from host_waiters) as waiting, (select count(distinct owner)::int from host_claims) as holding`);
  return {
    load,
    waitingAtTheEnd: rows[0]?.waiting ?? 0,
    holdingAtTheEnd: rows[0]?.holding ?? 0,
    operations: Object.fromEntries([...times].map(([name, list]) => [name, quantilesOf(list)])),
  };
}
