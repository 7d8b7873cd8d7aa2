import { and, eq, exists, sql, type SQL, type SQLWrapper } from "drizzle-orm";
import {
  DEFAULT_DOCUMENTS_PER_SEQUENCE,
  DEFAULT_PROJECT,
  documentsOf,
  type JobSpec,
  type Workload,
} from "@internevo/domain";
import type { Queryable } from "./database.ts";
import { jobs, runs, workloads } from "./schema/index.ts";

/*
 * What decides whether two jobs want the same plan is what a search looks at: these fields, the cluster, for how many
 * packed documents memory is planned, and `plan`, which says which plans may be chosen. Two things are left out. What
 * was counted of packed documents is known of submitted jobs alone. A timeline takes a few megabytes of each rank, and
 * is no other work.
 */
const SAME = [
  "model",
  "sequenceLengthTokens",
  "globalBatchTokens",
  "precision",
  "headroom",
  "memoryModel",
  "timeModel",
] as const satisfies readonly (keyof JobSpec)[];

/** What says whose work a workload is, and which. */
export type Work = Pick<Workload, "project" | "spec">;

/** A spec that jobs are compared with. */
interface ComparedSpec {
  readonly valueOf: (field: (typeof SAME)[number] | "cluster" | "plan") => SQL;
  /** Documents of a sequence that memory is planned for; null where none are packed. */
  readonly documents: SQL;
}

/** {@link documentsOf} of a spec in the database. */
const documentsIn = (spec: SQLWrapper): SQL =>
  sql`case when ${spec} -> 'data' ->> 'packing' = 'documents' then coalesce(
    (${spec} -> 'data' ->> 'maxDocumentsPerSequence')::int, ${DEFAULT_DOCUMENTS_PER_SEQUENCE}::int) end`;

/** Jobs that do the same work as what has this spec, whatever plans either may choose. */
function isSameButPlan({ valueOf, documents }: ComparedSpec): SQL | undefined {
  const same = SAME.map((field) => sql`${jobs.spec} -> ${field} is not distinct from ${valueOf(field)}`);
  // With how few nodes training may go on is nothing to a search.
  const sameCluster = sql`(${jobs.spec} -> 'cluster') - 'minNodes' = (${valueOf("cluster")}) - 'minNodes'`;
  return and(...same, sameCluster, sql`${documentsIn(jobs.spec)} is not distinct from ${documents}`);
}

/** Jobs that may choose the plans that what has this spec may. */
const isSamePlan = ({ valueOf }: ComparedSpec): SQL =>
  sql`${jobs.spec} -> 'plan' is not distinct from ${valueOf("plan")}`;

const given = ({ spec }: Work): ComparedSpec => ({
  valueOf: (field) => sql`${JSON.stringify(spec[field]) ?? null}::jsonb`,
  documents: sql`${documentsOf(spec.data)}::int`,
});

/** Jobs of a workload's project that do the same work, whatever plan their job files fix. */
export const isSameWorkUnderAnyPlan = (work: Work): SQL | undefined =>
  and(eq(jobs.project, work.project ?? DEFAULT_PROJECT), isSameButPlan(given(work)));

/** Jobs of a workload's project that do the same work, and may choose the same plans. */
export const isSameWork = (work: Work): SQL | undefined =>
  and(isSameWorkUnderAnyPlan(work), isSamePlan(given(work)));

const stored: ComparedSpec = {
  valueOf: (field) => sql`${workloads.spec} -> ${field}`,
  documents: documentsIn(workloads.spec),
};

/** Workloads with a run that trains now and does their work. */
export const hasRunningWork = (db: Queryable): SQL =>
  exists(
    db
      .select({ id: runs.id })
      .from(runs)
      .innerJoin(jobs, eq(jobs.id, runs.jobId))
      .where(
        and(
          eq(jobs.state, "running"),
          eq(jobs.project, workloads.project),
          isSameButPlan(stored),
          isSamePlan(stored),
        ),
      ),
  );
