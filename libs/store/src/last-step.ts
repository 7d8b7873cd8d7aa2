import { sql, type SQL } from "drizzle-orm";
import { stepMetrics } from "./schema/index.ts";

/**
 * The step that a run made last. Behind a checkpoint it makes steps again, so that this need not be its highest. One
 * look into an index: with a join Postgres reads all steps of the run and sorts them.
 * @param columns of the step, which is `m`
 */
export const lastStepOf = (runId: SQL, columns: SQL): SQL =>
  sql`(select ${columns} from ${stepMetrics} m where m.run_id = ${runId} order by m.event_id desc limit 1)`;

/**
 * The last of the steps that a run's newest attempt goes on to, without a gap: those up to where it resumed, and those
 * that it made itself. Steps beyond that an earlier attempt made are no part of it: it makes them again, perhaps under
 * another plan.
 * @param runId as the others, the text of an SQL expression
 * @param attempt its number
 * @param resumedFrom the step that it resumed from
 */
export const storedStepOf = (runId: string, attempt: string, resumedFrom: string): string => `(
  ${resumedFrom} + (select count(*) from (
    select step, row_number() over (order by step) as place from step_metrics
    where run_id = ${runId} and attempt = ${attempt} and step > ${resumedFrom}
  ) counted where step = ${resumedFrom} + place))::int`;
