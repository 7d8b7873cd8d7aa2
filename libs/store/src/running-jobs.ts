import { sql } from "drizzle-orm";
import type { JobState, Plan } from "@internevo/domain";
import type { Queryable } from "./database.ts";
import { lastStepOf } from "./last-step.ts";
import { attempts, jobs, runs, stepMetrics, validationLosses } from "./schema/index.ts";

/** A job that trains, in figures. */
export interface RunningJob {
  readonly jobId: string;
  readonly runId: string;
  readonly name: string;
  readonly project: string;
  /** What its ranks run; null: they have not begun, or are of an earlier version. */
  readonly plan: Plan | null;
  /** MFU and seconds of a step of the chosen plan, as predicted, and the plan; null: no plan was chosen. */
  readonly predicted: { readonly mfu: number; readonly stepTimeSeconds: number; readonly plan: Plan } | null;
  readonly steps: number;
  readonly attempts: number;
  /** Since the first attempt began. */
  readonly elapsedSeconds: number;
  /** Its last step; null: it has made none. */
  readonly last: {
    readonly step: number;
    readonly attempt: number;
    readonly loss: number;
    readonly stepTimeSeconds: number;
    readonly tokensPerSecond: number;
    readonly atSeconds: number;
  } | null;
  readonly validationLoss: number | null;
}

const LAST = sql`json_build_object('step', m.step, 'attempt', m.attempt, 'loss', m.loss,
  'stepTimeSeconds', m.step_time_seconds, 'tokensPerSecond', m.tokens_per_second,
  'atSeconds', extract(epoch from m.at)::float8)`;

/** Jobs that train, the newest first, so many at most. */
export async function runningJobs(db: Queryable, most: number): Promise<RunningJob[]> {
  const { rows } = await db.execute<{ [K in keyof RunningJob]: RunningJob[K] }>(sql`
    select j.id as "jobId", r.id as "runId", j.name, j.project, (j.spec ->> 'steps')::float8 as steps,
      case when j.chosen is not null then json_build_object('mfu', j.chosen #> '{predicted,mfu}',
        'stepTimeSeconds', j.chosen #> '{predicted,stepTimeSeconds}', 'plan', j.chosen -> 'plan') end as predicted,
      a.plan, coalesce(a.number, 0) as attempts,
      coalesce(extract(epoch from clock_timestamp() - f.started_at), 0)::float8 as "elapsedSeconds",
      ${lastStepOf(sql`r.id`, LAST)} as last, v.loss as "validationLoss"
    from ${jobs} j join ${runs} r on r.job_id = j.id
      left join lateral (select plan, number from ${attempts} where run_id = r.id order by number desc limit 1) a on true
      left join lateral (select started_at from ${attempts} where run_id = r.id order by number limit 1) f on true
      left join lateral (select loss from ${validationLosses} where run_id = r.id order by step desc limit 1) v on true
    where j.state = 'running' order by j.created_at desc limit ${most}::int`);
  return rows;
}

/** The seconds that steps behind one took, up to another, as they count: each once. */
export async function secondsOfSteps(
  db: Queryable,
  runId: string,
  { after, last }: { readonly after: number; readonly last: number },
): Promise<number> {
  const { rows } = await db.execute<{ seconds: number }>(sql`
    select coalesce(sum(step_time_seconds), 0)::float8 as seconds from ${stepMetrics}
    where run_id = ${runId} and step > ${after}::int and step <= ${last}::int`);
  return rows[0]?.seconds ?? 0;
}

/** How many jobs are in each state in which they have not ended. */
export async function openJobCounts(db: Queryable): Promise<ReadonlyMap<JobState, number>> {
  const { rows } = await db.execute<{ state: JobState; jobs: number }>(
    sql`select state, count(*)::int as jobs from ${jobs} where ended_at is null group by state`,
  );
  return new Map(rows.map(({ state, jobs: count }) => [state, count]));
}
