import { and, asc, eq, inArray, isNull, sql, type SQL } from "drizzle-orm";
import type { ProjectChange, ProjectCreate, ProjectRecord } from "@internevo/contracts";
import { DEFAULT_PROJECT, formatCounted, ProblemError } from "@internevo/domain";
import type { Queryable, Transaction } from "./database.ts";
import { callQueue } from "./host-queue.ts";
import { noProject } from "./no-project.ts";
import { isUuid, UUID_PATTERN } from "./pages.ts";
import { isValidToken } from "./access.ts";
import {
  apiTokens,
  deadLetters,
  jobs,
  plannings,
  profiles,
  projects,
  webhookDeliveries,
  webhooks,
  workloads,
} from "./schema/index.ts";
import { NO_USE, projectUse, type ProjectUse } from "./usage.ts";

const recordOf = (row: typeof projects.$inferSelect, use: ProjectUse | undefined): ProjectRecord => ({
  ...row,
  createdAt: row.createdAt.toISOString(),
  ...(use ?? NO_USE),
});

/** All projects by name, or the one that is asked for. */
export async function listProjects(db: Queryable, only?: string): Promise<ProjectRecord[]> {
  const rows = await db
    .select()
    .from(projects)
    .where(only === undefined ? undefined : eq(projects.name, only))
    .orderBy(asc(projects.name));
  const use = await projectUse(db);
  return rows.map((row) => recordOf(row, use.get(row.name)));
}

/** A name that no project has, or that whoever asks may not see: the two are answered alike. */
/** @throws ProblemError `not-found` */
export async function getProject(db: Queryable, name: string, field = "name"): Promise<ProjectRecord> {
  const [project] = await listProjects(db, name);
  if (!project) throw noProject(name, field);
  return project;
}

/** @throws ProblemError `conflict` when the name is taken. */
export async function createProject(tx: Transaction, project: ProjectCreate): Promise<ProjectRecord> {
  const [row] = await tx
    .insert(projects)
    .values({ ...project, createdAt: sql`clock_timestamp()` })
    .onConflictDoNothing()
    .returning();
  if (row) return recordOf(row, (await projectUse(tx)).get(row.name));
  throw new ProblemError("conflict", `there is a project ${project.name} already`, [
    {
      field: "name",
      value: project.name,
      message: "is taken",
      remedy: "choose another name, or change that project",
    },
  ]);
}

/**
 * Changes a project; what waited for its quotas goes on where they allow it now. @throws ProblemError
 * `not-found`
 */
export async function updateProject(
  tx: Transaction,
  name: string,
  change: ProjectChange,
): Promise<ProjectRecord> {
  if (Object.keys(change).length > 0) {
    await tx.update(projects).set(change).where(eq(projects.name, name));
    await callQueue(tx);
  }
  return getProject(tx, name);
}

/**
 * Deletes a project that nothing belongs to. @throws ProblemError `not-found`; `conflict` for the default
 * project, and where jobs, workloads, valid tokens or profiles belong to it.
 */
export async function deleteProject(tx: Transaction, name: string): Promise<void> {
  const [row] = await tx.select().from(projects).where(eq(projects.name, name)).for("update");
  if (!row) throw noProject(name, "name");
  const refuse = (message: string, remedy: string): ProblemError =>
    new ProblemError("conflict", `project ${name} ${message}`, [
      { field: "name", value: name, message, remedy },
    ]);
  if (name === DEFAULT_PROJECT) throw refuse("is where everything is that names no project", "keep it");
  const jobCount = await tx.$count(jobs, eq(jobs.project, name));
  const workloadCount = await tx.$count(workloads, eq(workloads.project, name));
  const tokenCount = await tx.$count(apiTokens, and(eq(apiTokens.project, name), isValidToken));
  const profileCount = await tx.$count(
    profiles,
    and(eq(profiles.project, name), isNull(profiles.discardedAt)),
  );
  if (jobCount || workloadCount || tokenCount || profileCount)
    throw refuse(
      `has ${formatCounted(jobCount, "job")}, ${formatCounted(workloadCount, "workload")}, ` +
        `${formatCounted(tokenCount, "valid token")} and ${formatCounted(profileCount, "profile")}`,
      "a project with jobs is kept, as its jobs are; else delete its workloads, revoke its tokens and discard its profiles first",
    );
  await forgetDiscarded(tx, name);
  // Those that nobody can use any more.
  await tx.delete(apiTokens).where(eq(apiTokens.project, name));
  await tx.delete(webhooks).where(eq(webhooks.project, name));
  await tx.delete(projects).where(eq(projects.name, name));
}

/** Profiles of a project without jobs and workloads: only what was planned for workloads that are gone had them. */
async function forgetDiscarded(tx: Transaction, project: string): Promise<void> {
  const ofProject = eq(profiles.project, project);
  await tx
    .update(plannings)
    .set({ profileId: null })
    .where(inArray(plannings.profileId, tx.select({ id: profiles.id }).from(profiles).where(ofProject)));
  await tx.delete(profiles).where(ofProject);
}

/** What belongs to a project and is named by an id. */
export type OwnedKind =
  "job" | "workload" | "dead-letter" | "token" | "profile" | "webhook" | "webhook-delivery";

/**
 * An id in the data of a dead letter's message, as an id, so that an index finds what it names. Null for a text that
 * is no id: a letter may hold anything, and Postgres refuses to cast that. One in upper case is cast too: it says whose
 * letter it is, and nothing more follows from it.
 */
function idOfLetter(field: "jobId" | "workloadId"): SQL {
  const text = sql`${deadLetters.payload} -> 'data' ->> ${sql.raw(`'${field}'`)}`;
  return sql`case when ${text} ~* ${sql.raw(`'${UUID_PATTERN.source}'`)} then (${text})::uuid end`;
}

/** The project of the job or workload that a dead letter's message is about; null: of neither. */
export const projectOfLetter = sql<string | null>`coalesce(
  (select j.project from ${jobs} j where j.id = ${idOfLetter("jobId")}),
  (select w.project from ${workloads} w where w.id = ${idOfLetter("workloadId")}))`;

type ProjectRow = Promise<{ readonly project: string | null }[]>;
const PROJECT_OF: Readonly<Record<OwnedKind, (db: Queryable, id: string) => ProjectRow>> = {
  job: (db, id) => db.select({ project: jobs.project }).from(jobs).where(eq(jobs.id, id)),
  workload: (db, id) => db.select({ project: workloads.project }).from(workloads).where(eq(workloads.id, id)),
  token: (db, id) => db.select({ project: apiTokens.project }).from(apiTokens).where(eq(apiTokens.id, id)),
  profile: (db, id) => db.select({ project: profiles.project }).from(profiles).where(eq(profiles.id, id)),
  webhook: (db, id) => db.select({ project: webhooks.project }).from(webhooks).where(eq(webhooks.id, id)),
  "webhook-delivery": (db, id) =>
    db
      .select({ project: webhooks.project })
      .from(webhooks)
      .innerJoin(webhookDeliveries, eq(webhookDeliveries.webhookId, webhooks.id))
      .where(eq(webhookDeliveries.id, id)),
  "dead-letter": (db, id) =>
    db.select({ project: projectOfLetter }).from(deadLetters).where(eq(deadLetters.id, id)),
};

/**
 * The project that something belongs to; null: to the installation; undefined where there is no such thing.
 */
export async function projectOf(
  db: Queryable,
  kind: OwnedKind,
  id: string,
): Promise<string | null | undefined> {
  if (!isUuid(id)) return undefined;
  const [row] = await PROJECT_OF[kind](db, id);
  return row && row.project;
}
