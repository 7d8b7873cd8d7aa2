import { and, desc, eq, isNotNull, sql } from "drizzle-orm";
import type { Candidate, JobSpec } from "@internevo/domain";
import type { Queryable } from "./database.ts";
import { jobs, proposals } from "./schema/index.ts";

/** What decides whether two jobs want the same plan: everything that a search looks at. */
const SAME = [
  "model",
  "sequenceLengthTokens",
  "globalBatchTokens",
  "precision",
  "memoryModel",
  "timeModel",
] as const satisfies readonly (keyof JobSpec)[];

/**
 * The plan that a workload goes by: what was last proposed for it, or what the trials of a job of the same
 * work last chose, whichever is newer. Undefined when there was neither.
 */
export async function planInUse(
  db: Queryable,
  workload: { readonly id: string; readonly spec: JobSpec },
): Promise<Candidate | undefined> {
  const same = SAME.map(
    (field) =>
      sql`${jobs.spec} -> ${field} is not distinct from ${JSON.stringify(workload.spec[field]) ?? null}::jsonb`,
  );
  // With how few nodes training may go on is nothing to a search.
  const { minNodes: _, ...cluster } = workload.spec.cluster;
  same.push(sql`(${jobs.spec} -> 'cluster') - 'minNodes' = ${JSON.stringify(cluster)}::jsonb`);
  const [chosen] = await db
    .select({ candidate: jobs.chosen, at: jobs.createdAt })
    .from(jobs)
    .where(and(isNotNull(jobs.chosen), ...same))
    .orderBy(desc(jobs.createdAt))
    .limit(1);
  const [proposed] = await db
    .select({ candidate: proposals.proposed, at: proposals.createdAt })
    .from(proposals)
    .where(eq(proposals.workloadId, workload.id))
    .orderBy(desc(proposals.createdAt))
    .limit(1);
  if (chosen?.candidate && (!proposed || chosen.at > proposed.at)) return chosen.candidate;
  return proposed?.candidate;
}
