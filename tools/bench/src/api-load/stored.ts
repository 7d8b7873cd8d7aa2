import { sql } from "drizzle-orm";
import type { Database } from "@internevo/store";

export interface Stored {
  readonly jobs: number;
  /** Of them, so many have trained. */
  readonly trained: number;
  readonly stepsOfAJob: number;
}

export interface StoredIds {
  readonly jobs: readonly string[];
  readonly trained: readonly string[];
  readonly owners: readonly string[];
}

const OWNERS = 50;
/** Runs whose steps one statement makes. */
const RUNS_AT_ONCE = 100;
/** Lines of its log and of its progress that each copy has. */
const WORDS = 10;
/** Ids that the load asks for; as many again as one would ever look at in ten minutes. */
const IDS = 20_000;

/**
 * Stores many ended jobs, as copies of one that has succeeded: with its history and words, and some with a run of
 * many steps, which are kept as the product keeps them, as metrics and as events.
 */
export async function storeCopies(
  database: Database,
  original: string,
  { jobs, trained, stepsOfAJob }: Stored,
): Promise<StoredIds> {
  const run = (statement: ReturnType<typeof sql>) => database.db.execute(statement);
  // Whether these rows survive a loss of power does not matter; the measured ones are written as usual.
  await database.db.transaction(async (tx) => {
    await tx.execute(sql`set local synchronous_commit = off`);
    await tx.execute(sql`
      create table copies as
      select gen_random_uuid() as id, gen_random_uuid() as run_id, n, 'user ' || n % ${OWNERS}::int as owner
      from generate_series(1, ${jobs}::int) n`);
    await tx.execute(sql`
      insert into jobs (id, name, spec, state, reason, owner, project, version, traceparent, profile_id, planning_id,
        chosen, failure, report, created_at, updated_at, ended_at)
      select c.id, 'job ' || c.n, spec, state, reason, c.owner, project, version, traceparent, profile_id, planning_id,
        chosen, failure, report, created_at - make_interval(mins => c.n), updated_at, ended_at
      from jobs, copies c where jobs.id = ${original}::uuid`);
    await tx.execute(sql`
      insert into job_transitions (job_id, version, from_state, to_state, reason, at)
      select c.id, t.version, t.from_state, t.to_state, t.reason, t.at - make_interval(mins => c.n)
      from job_transitions t, copies c where t.job_id = ${original}::uuid`);
    await tx.execute(sql`
      insert into job_log (job_id, type, at, data)
      select c.id, e.type, e.at, e.data from copies c, (
        (select * from job_log where job_id = ${original}::uuid and type = 'state')
        union all
        (select * from job_log where job_id = ${original}::uuid and type in ('progress', 'log')
          order by id desc limit ${WORDS}::int)) e`);
    await tx.execute(sql`
      insert into runs (id, job_id, candidate) select c.run_id, c.id, r.candidate
      from runs r, copies c where r.job_id = ${original}::uuid and c.n <= ${trained}::int`);
  });
  for (let first = 1; first <= trained; first += RUNS_AT_ONCE) {
    const last = Math.min(trained, first + RUNS_AT_ONCE - 1);
    await database.db.transaction(async (tx) => {
      await tx.execute(sql`set local synchronous_commit = off`);
      await tx.execute(sql`
        insert into step_metrics (run_id, step, attempt, loss, gradient_norm, learning_rate, step_time_seconds,
          tokens_per_second, exposed_communication_seconds, at)
        select c.run_id, s.step, 1, m.loss, m.gradient_norm, m.learning_rate, m.step_time_seconds, m.tokens_per_second,
          m.exposed_communication_seconds, m.at
        from (select * from step_metrics m join runs r on r.id = m.run_id where r.job_id = ${original}::uuid
          order by step limit 1) m, copies c, generate_series(1, ${stepsOfAJob}::int) s(step)
        where c.n between ${first}::int and ${last}::int`);
    });
  }
  for (const table of ["jobs", "job_transitions", "job_log", "runs", "step_metrics"])
    await database.db.transaction(async (tx) => {
      await tx.execute(sql.raw(`analyze ${table}`));
    });
  const ids = async (most: number): Promise<string[]> => {
    const { rows } = await run(
      sql`select id from copies where n <= ${most}::int order by n limit ${IDS}::int`,
    );
    return rows.map(({ id }) => String(id));
  };
  const made = { jobs: await ids(jobs), trained: await ids(trained) };
  await run(sql`drop table copies`);
  return { ...made, owners: Array.from({ length: OWNERS }, (_, owner) => `user ${owner}`) };
}
