import { sql, type SQL } from "drizzle-orm";
import type { Database, Queryable } from "./database.ts";
import { hasEventsAfter, jobLog } from "./job-events.ts";
import { jobs, runs, trackerCursors, trackers, trials } from "./schema/index.ts";

/** Jobs that ended longer ago were looked for before: no transaction takes so long to commit. */
const LATE_COMMIT_MINUTES = 10;

/** A job that a tracker is behind with, and how far it is. */
export interface ClaimedJob {
  readonly jobId: string;
  readonly tracker: string;
  readonly lastEventId: number;
  readonly externalId: string | null;
  readonly bytes: number;
  /** Its number, which nobody else has for this job and tracker. */
  readonly claim: number;
  /** In a row, before this one. */
  readonly failures: number;
  readonly startOvers: number;
}

/** Where a tracker is with a job, once something was sent. */
export type TrackerPlace = Pick<ClaimedJob, "lastEventId" | "externalId" | "bytes">;

const secondsFromNow = (seconds: number): SQL =>
  sql`clock_timestamp() + make_interval(secs => ${seconds}::float8)`;
const hasNews = (cursor: SQL): SQL => hasEventsAfter(sql`${cursor}.job_id`, sql`${cursor}.last_event_id`);

/**
 * Has a tracker follow the jobs that have trials or a run: those that have not ended, and those that ended since the
 * tracker was first seen. A job that somebody lets go on is followed again.
 * @param projects only their jobs; null: those of all. @returns how many are new.
 */
export function followJobs(
  database: Database,
  tracker: string,
  projects: readonly string[] | null = null,
): Promise<number> {
  return database.transaction(async (tx) => {
    await tx.execute(
      sql`insert into ${trackers} (key, since) values (${tracker}, clock_timestamp()) on conflict do nothing`,
    );
    // Its lock: two that advance `since` at once would pass over what neither has seen.
    const { rows } = await tx.execute<{ since: string; now: string }>(sql`
      select since::text, clock_timestamp()::text as now from ${trackers} where key = ${tracker} for update`);
    const [row] = rows;
    if (!row) return 0;
    const ofProjects =
      projects === null ? sql`true` : sql`j.project = any(${sql.param([...projects])}::text[])`;
    const added = await tx.execute(sql`
      insert into ${trackerCursors} (job_id, tracker, next_at)
      select j.id, ${tracker}, clock_timestamp() from ${jobs} j
        left join ${trackerCursors} c on c.job_id = j.id and c.tracker = ${tracker}
      where (j.state in ('trialling', 'running', 'cancelling', 'held') or j.ended_at >= ${row.since}::timestamptz)
        and ${ofProjects} and j.spec ->> 'tracking' is distinct from 'false'
        and (c.job_id is null or (c.ended_at is not null and c.ended_at is distinct from j.ended_at))
        and (exists (select from ${trials} t where t.job_id = j.id) or exists (select from ${runs} r where r.job_id = j.id))
      on conflict (job_id, tracker) do update set ended_at = null, next_at = excluded.next_at`);
    const margin = sql`make_interval(mins => ${LATE_COMMIT_MINUTES}::int)`;
    await tx.execute(sql`
      update ${trackers} set since = ${row.now}::timestamptz - ${margin}
      where key = ${tracker} and since < ${row.now}::timestamptz - 2 * ${margin}`);
    return added.rowCount ?? 0;
  });
}

/**
 * Claims jobs of which a tracker lacks something, those that have waited longest first. A claim that is not settled
 * in time is another's, which sends the same again.
 */
export async function claimJobs(
  db: Queryable,
  tracker: string,
  { most, claimSeconds }: { readonly most: number; readonly claimSeconds: number },
): Promise<ClaimedJob[]> {
  if (most < 1) return [];
  const { rows } = await db.execute<{ [K in keyof ClaimedJob]: ClaimedJob[K] }>(sql`
    with due as (
      select c.job_id from ${trackerCursors} c
      where c.tracker = ${tracker} and c.ended_at is null and c.next_at <= clock_timestamp()
        and (c.claimed_until is null or c.claimed_until <= clock_timestamp()) and ${hasNews(sql`c`)}
      order by c.next_at limit ${most}::int for update skip locked)
    update ${trackerCursors} c set claims = c.claims + 1, claimed_until = ${secondsFromNow(claimSeconds)}
    from due where c.job_id = due.job_id and c.tracker = ${tracker}
    returning c.job_id as "jobId", c.tracker, c.last_event_id::float8 as "lastEventId",
      c.external_id as "externalId", c.bytes::float8 as bytes, c.claims as claim, c.failures, c.start_overs as "startOvers"`);
  return rows;
}

const mine = ({ jobId, tracker, claim }: ClaimedJob): SQL =>
  sql`c.job_id = ${jobId} and c.tracker = ${tracker} and c.claims = ${claim}::int and c.claimed_until is not null`;

/**
 * Writes down where the tracker is, and keeps the claim. @returns false where another one has the job by now.
 */
export async function advanceCursor(
  db: Queryable,
  claimed: ClaimedJob,
  { lastEventId, externalId, bytes }: TrackerPlace,
  claimSeconds: number,
): Promise<boolean> {
  const { rowCount } = await db.execute(sql`
    update ${trackerCursors} c set last_event_id = ${lastEventId}::bigint, external_id = ${externalId},
      bytes = ${bytes}::bigint, failures = 0, failing_since = null, last_error = null,
      claimed_until = ${secondsFromNow(claimSeconds)}
    where ${mine(claimed)}`);
  return rowCount === 1;
}

/**
 * Gives the job back: with its end where the job has ended and everything was sent. It is due again when something
 * has happened, not before `restSeconds`: what happens meanwhile is sent together.
 */
export async function releaseCursor(db: Queryable, claimed: ClaimedJob, restSeconds: number): Promise<void> {
  await db.execute(sql`
    update ${trackerCursors} c set claimed_until = null, next_at = ${secondsFromNow(restSeconds)},
      ended_at = case when not ${hasNews(sql`c`)} then j.ended_at end
    from ${jobs} j where j.id = c.job_id and ${mine(claimed)}`);
}

/** Why nothing could be sent, and when it is tried again. */
export interface TrackerFailure {
  readonly error: string;
  readonly waitSeconds: number;
  /** Everything is sent once more, to a run of its own. */
  readonly startsOver: boolean;
  /** A job that ended is given up when nothing could be sent for so long, */
  readonly giveUpDays: number;
  /** or when it started over so often. */
  readonly giveUpStartOvers: number;
}

/** Writes down a failure. @returns whether the job was given up. */
export async function postponeCursor(
  db: Queryable,
  claimed: ClaimedJob,
  { error, waitSeconds, startsOver, giveUpDays, giveUpStartOvers }: TrackerFailure,
): Promise<boolean> {
  const over = startsOver
    ? sql`, last_event_id = 0, external_id = null, bytes = 0, start_overs = c.start_overs + 1`
    : sql``;
  const { rows } = await db.execute<{ givenUp: boolean }>(sql`
    update ${trackerCursors} c set failures = c.failures + 1, last_error = ${error},
      failing_since = coalesce(c.failing_since, clock_timestamp()), claimed_until = null,
      next_at = ${secondsFromNow(waitSeconds)},
      ended_at = case when c.failing_since < clock_timestamp() - make_interval(days => ${giveUpDays}::int)
          or c.start_overs >= ${giveUpStartOvers}::int
        then j.ended_at end ${over}
    from ${jobs} j where j.id = c.job_id and ${mine(claimed)}
    returning c.ended_at is not null as "givenUp"`);
  return rows[0]?.givenUp === true;
}

/** How a tracker is doing. */
export interface TrackerStanding {
  readonly tracker: string;
  /** Jobs of which something is still to be sent. */
  readonly behind: number;
  /** Those of them whose last try failed. */
  readonly failing: number;
  /** How long nothing could be sent of the one that has waited longest; 0: of none. */
  readonly failingSeconds: number;
  /** Age of the oldest event that was not sent. */
  readonly lagSeconds: number;
}

/** Of the trackers that are followed now. */
export async function trackerStandings(
  db: Queryable,
  keys: readonly string[],
): Promise<readonly TrackerStanding[]> {
  if (keys.length === 0) return [];
  const { rows } = await db.execute<{ [K in keyof TrackerStanding]: TrackerStanding[K] }>(sql`
    select t.key as tracker,
      count(e.at)::int as behind,
      coalesce(extract(epoch from clock_timestamp() - min(e.at)), 0)::float8 as "lagSeconds",
      count(c.job_id) filter (where c.failures > 0)::int as failing,
      coalesce(extract(epoch from clock_timestamp() - min(c.failing_since)), 0)::float8 as "failingSeconds"
    from ${trackers} t left join ${trackerCursors} c on c.tracker = t.key and c.ended_at is null
      left join lateral (${jobLog(sql`c.job_id`, sql`c.last_event_id`, 1)}) e on true
    where t.key = any(${sql.param([...keys])}::text[]) group by t.key order by t.key`);
  return rows;
}
