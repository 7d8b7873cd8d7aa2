import { and, asc, desc, eq, ilike, inArray, sql, type SQL } from "drizzle-orm";
import { ProblemError, QUEUED_STATE, type JobState, type Labels, type Priority } from "@internevo/domain";
import type { JobDetail, JobSummary, StageProgress } from "@internevo/contracts";
import type { Queryable } from "./database.ts";
import { askedToGiveWay } from "./host-queue.ts";
import { queuePlace, queuePositions } from "./queue-reads.ts";
import { lastJobEventId } from "./job-events.ts";
import { decodeCursor, isUuid, pageLimit, pageOf, type Page, type PageRequest } from "./pages.ts";
import { lastStepOf } from "./last-step.ts";
import { lastPlanChange } from "./plan-changes.ts";
import { getPlanning } from "./plannings.ts";
import { listRemovals } from "./retention.ts";
import { findRun, lastValidation, listAttempts } from "./runs.ts";
import { hostHolds, hostWaiters, jobEvents, jobs, jobTransitions, runs, trials } from "./schema/index.ts";
import { jobLease } from "./leases.ts";
import { listTrials } from "./trials.ts";
import { traceIdOf } from "./trace.ts";

const lastMetric = (column: "step" | "loss") =>
  lastStepOf(sql`(select r.id from ${runs} r where r.job_id = ${jobs.id})`, sql.raw(`m.${column}`));
const countTrials = (ended: boolean) =>
  sql`(select count(*) from ${trials} t where t.job_id = ${jobs.id} ${sql.raw(ended ? "and t.state in ('succeeded', 'failed')" : "")})`;
// One level down, as above: at the top of a selection drizzle drops the table from `jobs.id`, which would
// then be the trial's id.
const trialCount = (ended: boolean) => sql<number>`coalesce(${countTrials(ended)}, 0)`.mapWith(Number);

const text = (value: unknown): string => (typeof value === "string" ? value : "");
const count = (value: unknown): number | null => (typeof value === "number" ? value : null);
interface LastProgress {
  readonly at: string;
  readonly data: Readonly<Record<string, unknown>>;
}
/**
 * What a job's stage said last of how far it is: one look into an index that holds nothing but such words.
 */
const lastProgressEvent = sql`(select jsonb_build_object('at', e.at, 'data', e.data) from ${jobEvents} e where e.job_id = ${jobs.id} and e.type = 'progress' order by e.id desc limit 1)`;
const lastProgress = sql<StageProgress | null>`${lastProgressEvent}`.mapWith(
  ({ at, data }: LastProgress): StageProgress => ({
    stage: text(data["stage"]),
    message: text(data["message"]),
    done: count(data["done"]),
    total: count(data["total"]),
    waits: data["waits"] === true,
    at: new Date(at).toISOString(),
  }),
);

/** What a list says of a job's file. */
interface SpecFacts {
  readonly model: string;
  readonly cluster: string;
  readonly priority: Priority;
  readonly preemptible: boolean;
  readonly labels: Labels;
  readonly steps: number;
}
/**
 * Ten thousand paths are stored as a megabyte, which is read anew wherever the spec is named. `offset 0` has it named
 * once for each job: without, the planner would put the inner expression into each place of the outer.
 */
const specFacts = sql<SpecFacts>`(select jsonb_build_object(
  'model', given.file -> 'model' -> 'name',
  'cluster', given.file -> 'cluster' -> 'name',
  'priority', coalesce(given.file ->> 'priority', 'normal'),
  'preemptible', coalesce((given.file ->> 'preemptible')::boolean, false),
  'labels', coalesce(given.file -> 'labels', '{}'::jsonb),
  'steps', (given.file ->> 'steps')::bigint
) from (select ${jobs.spec} - 'data' - 'validation' as file offset 0) given)`;

const summaryColumns = {
  id: jobs.id,
  name: jobs.name,
  state: jobs.state,
  owner: jobs.owner,
  project: jobs.project,
  reason: jobs.reason,
  version: jobs.version,
  createdAt: jobs.createdAt,
  updatedAt: jobs.updatedAt,
  endedAt: jobs.endedAt,
  facts: specFacts,
  lastStep: sql<number>`coalesce(${lastMetric("step")}, 0)`.mapWith(Number),
  lastLoss: sql<number | null>`${lastMetric("loss")}`,
  trialsDone: trialCount(true),
  trialsTotal: trialCount(false),
  progress: lastProgress,
};

type SummaryRow = Omit<JobSummary, keyof SpecFacts | "createdAt" | "updatedAt" | "endedAt" | "queue"> & {
  facts: SpecFacts;
  createdAt: Date;
  updatedAt: Date;
  endedAt: Date | null;
};
const summaryOf = ({ facts, ...row }: SummaryRow): Omit<JobSummary, "queue"> => ({
  ...row,
  ...facts,
  createdAt: row.createdAt.toISOString(),
  updatedAt: row.updatedAt.toISOString(),
  endedAt: row.endedAt?.toISOString() ?? null,
});

/** Which jobs a list has. */
export interface JobFilter {
  /** `queued`: those that wait for hosts, whatever stage they are in. */
  readonly state?: JobState | typeof QUEUED_STATE;
  /** A part of the name, upper or lower case. */
  readonly name?: string;
  readonly owner?: string;
  readonly project?: string;
  readonly cluster?: string;
  /** `name=value`. */
  readonly label?: string;
  /** Of this project, whatever else is asked; null: of all. */
  readonly only?: string | null;
}

/** @throws ProblemError `bad-request` for a text that is no `name=value`. */
function hasLabel(label: string): SQL {
  const [, name, value] = /^([^=]+)=(.+)$/.exec(label) ?? [];
  if (name === undefined || value === undefined)
    throw new ProblemError("bad-request", "label is not valid", [
      {
        field: "label",
        value: label,
        message: "is not a name, = and a value",
        remedy: "give for example team=nlp",
      },
    ]);
  return sql`${jobs.spec} -> 'labels' @> ${JSON.stringify({ [name]: value })}::jsonb`;
}

/** A text that `like` takes as it is written. */
const literalPattern = (text: string): string => text.replaceAll(/[\\%_]/g, String.raw`\$&`);

function matching({ state, name, owner, project, cluster, label, only = null }: JobFilter): SQL | undefined {
  // From the waiters, who are few, to their jobs.
  const waits = sql`${jobs.id} in (select substr(w.owner, 5)::uuid from ${hostWaiters} w where w.owner like 'job:%')`;
  return and(
    state === QUEUED_STATE ? waits : state && eq(jobs.state, state),
    name === undefined ? undefined : ilike(jobs.name, `%${literalPattern(name)}%`),
    owner === undefined ? undefined : eq(jobs.owner, owner),
    project === undefined ? undefined : eq(jobs.project, project),
    only === null ? undefined : eq(jobs.project, only),
    cluster === undefined ? undefined : sql`${jobs.spec} -> 'cluster' ->> 'name' = ${cluster}`,
    label === undefined ? undefined : hasLabel(label),
  );
}

/** Newest first. @throws ProblemError `bad-request` for a cursor or limit that is none. */
export async function listJobs(
  db: Queryable,
  request: PageRequest & JobFilter = {},
): Promise<Page<JobSummary>> {
  const limit = pageLimit(request);
  const after = decodeCursor(request.cursor);
  const newestFirst = [desc(jobs.createdAt), desc(jobs.id)];
  // What is said of a job takes several looks: only at those of the page, and not at all that are sorted.
  const page = db
    .select({ id: jobs.id })
    .from(jobs)
    .where(
      and(
        matching(request),
        after &&
          sql`(${jobs.createdAt}, ${jobs.id}) < (${after.at.toISOString()}::timestamptz, ${after.id}::uuid)`,
      ),
    )
    .orderBy(...newestFirst)
    .limit(limit + 1);
  const rows = await db
    .select(summaryColumns)
    .from(jobs)
    .where(inArray(jobs.id, page))
    .orderBy(...newestFirst);
  const positions = await queuePositions(
    db,
    rows.map(({ id }) => jobLease(id)),
  );
  return pageOf(
    rows,
    limit,
    (row) => ({ at: row.createdAt, id: row.id }),
    (row) => ({ ...summaryOf(row), queue: positions.get(jobLease(row.id)) ?? null }),
  );
}

/** When work held its hosts, in order. */
async function holdsOf(db: Queryable, owner: string): Promise<JobDetail["holds"]> {
  const rows = await db
    .select({ from: hostHolds.beganAt, to: hostHolds.endedAt })
    .from(hostHolds)
    .where(eq(hostHolds.owner, owner))
    .orderBy(asc(hostHolds.beganAt));
  return rows.map(({ from, to }) => ({ from: from.toISOString(), to: to?.toISOString() ?? null }));
}

/**
 * Everything of one job, at one moment when `db` is a repeatable-read transaction. @param only the project
 * whose jobs its queue names; null: names all
 */
export async function getJobDetail(
  db: Queryable,
  jobId: string,
  only: string | null = null,
): Promise<JobDetail | undefined> {
  if (!isUuid(jobId)) return undefined;
  const [row] = await db
    .select({
      ...summaryColumns,
      spec: jobs.spec,
      traceparent: jobs.traceparent,
      profileId: jobs.profileId,
      planningId: jobs.planningId,
      chosen: jobs.chosen,
      failure: jobs.failure,
      report: jobs.report,
      keep: jobs.keep,
    })
    .from(jobs)
    .where(eq(jobs.id, jobId))
    // Planned once for each connection: that takes longer than to carry it out.
    .prepare("job_detail")
    .execute();
  if (!row) return undefined;
  const { spec, traceparent, profileId, planningId, chosen, failure, report, keep, ...summary } = row;
  const transitions = await db
    .select()
    .from(jobTransitions)
    .where(eq(jobTransitions.jobId, jobId))
    .orderBy(asc(jobTransitions.version));
  const removed = await listRemovals(db, jobId);
  const run = await findRun(db, jobId);
  const validation = run && (await lastValidation(db, run.id));
  const planChange = run && (await lastPlanChange(db, { id: run.id, jobId }));
  return {
    ...summaryOf(summary),
    queue: (await queuePlace(db, jobLease(jobId), only)) ?? null,
    givesWayTo: (summary.facts.preemptible && (await askedToGiveWay(db, jobLease(jobId)))) || null,
    lastEventId: await lastJobEventId(db, jobId),
    spec,
    traceId: traceIdOf(traceparent) ?? "",
    holds: await holdsOf(db, jobLease(jobId)),
    transitions: transitions.map(({ from, to, at, reason }) => ({ from, to, at: at.toISOString(), reason })),
    profileId,
    planningId,
    planning: (planningId && (await getPlanning(db, planningId))) || null,
    trials: await listTrials(db, jobId),
    chosen,
    attempts: run ? await listAttempts(db, run.id) : [],
    ...(validation ? { lastValidation: validation } : {}),
    ...(planChange ? { planChange } : {}),
    failure,
    report,
    ...(keep ? { keep } : {}),
    ...(removed.length > 0 ? { removed } : {}),
  };
}
