import { sql, type SQL } from "drizzle-orm";
import { stepMetrics } from "./schema/index.ts";

/**
 * The step that a run made last. Behind a checkpoint it makes steps again, so that this need not be its highest. One
 * look into an index: with a join Postgres reads all steps of the run and sorts them.
 * @param columns of the step, which is `m`
 */
export const lastStepOf = (runId: SQL, columns: SQL): SQL =>
  sql`(select ${columns} from ${stepMetrics} m where m.run_id = ${runId} order by m.event_id desc limit 1)`;
