import { randomUUID } from "node:crypto";
import { and, desc, eq, gt, isNull, or, sql } from "drizzle-orm";
import {
  CLUSTER_NAME_IN_KEY,
  givenKey,
  isGivenKey,
  meantProfiles,
  MOST_GIVEN_PROFILES,
  type JobSpec,
  type LauncherKind,
  type Profile,
  type ProfileAsker,
} from "@internevo/domain";
import type { ProfileRecord, ProfileSummary } from "@internevo/contracts";
import type { Queryable } from "./database.ts";
import { announceFound, type Asker } from "./events.ts";
import { decodeCursor, isUuid, pageLimit, pageOf, type Page, type PageRequest } from "./pages.ts";
import { lockProject } from "./no-project.ts";
import { assertRoomFor } from "./project-bounds.ts";
import { jobs, plannings, profiles, workloads } from "./schema/index.ts";

const recordOf = (row: typeof profiles.$inferSelect): ProfileRecord => ({
  id: row.id,
  name: row.name,
  clusterKey: row.clusterKey,
  project: row.project,
  createdAt: row.createdAt.toISOString(),
  freshUntil: row.freshUntil.toISOString(),
  discardedAt: row.discardedAt?.toISOString() ?? null,
  profile: row.profile,
});

interface NewProfile {
  readonly clusterKey: string;
  readonly profile: Profile;
  /** How long it may be used without measuring again. */
  readonly freshForSeconds: number;
}

/**
 * Stores a profile of a cluster. @param measuredFor the job or workload that it was measured for, whose project
 * is told; absent: nobody is. @returns its id.
 */
export async function storeProfile(tx: Queryable, profile: NewProfile, measuredFor?: Asker): Promise<string> {
  const id = randomUUID();
  await tx.insert(profiles).values(rowOf(id, profile));
  if (measuredFor)
    await announceFound(tx, measuredFor, "profile.measured", {
      profileId: id,
      profileName: profile.profile.name,
      clusterKey: profile.clusterKey,
      freshForSeconds: profile.freshForSeconds,
    });
  return id;
}

const rowOf = (id: string, { clusterKey, profile, freshForSeconds }: NewProfile) => ({
  id,
  name: profile.name,
  clusterKey,
  profile,
  createdAt: sql`clock_timestamp()`,
  freshUntil: sql`clock_timestamp() + make_interval(secs => ${freshForSeconds})`,
});

/**
 * What a project may see: its own profiles, and the installation's. @param only the project; null: all profiles
 */
const seenBy = (only: string | null) =>
  only === null ? undefined : or(isNull(profiles.project), eq(profiles.project, only));

/** The unique indexes of given profiles, as an insertion names them. */
const ONCE_IN_INSTALLATION = {
  target: profiles.givenSha256,
  targetWhere: sql`discarded_at is null and project is null`,
};
const ONCE_IN_PROJECT = {
  target: [profiles.project, profiles.givenSha256],
  targetWhere: sql`discarded_at is null`,
};

/**
 * Stores a profile that somebody gave, once in its project: the same content keeps its id, also where it is
 * given many times at once. It is nobody's measurement, and used only where it is named.
 * @param project whose it is; null: the installation's. @returns its id.
 * @throws ProblemError `quota-exceeded` where the project keeps as many as it may.
 */
export async function storeGivenProfile(
  tx: Queryable,
  profile: Profile,
  project: string | null = null,
): Promise<string> {
  // Postgres writes equal documents as equal text, whatever the order of their fields was.
  const digest = sql<string>`encode(sha256(convert_to(${JSON.stringify(profile)}::jsonb::text, 'UTF8')), 'hex')`;
  const kept = and(
    isNull(profiles.discardedAt),
    project === null ? isNull(profiles.project) : eq(profiles.project, project),
  );
  // Who gives to the same project waits, so that none passes the limit beside another.
  if (project !== null) await lockProject(tx, project);
  // A discarded profile stays discarded: who gives its content again gets another.
  const [same] = await tx
    .select({ id: profiles.id })
    .from(profiles)
    .where(and(eq(profiles.givenSha256, digest), kept));
  if (same) return same.id;
  if (project !== null)
    await assertRoomFor(tx, profiles, kept, {
      project,
      things: "given profiles",
      most: MOST_GIVEN_PROFILES,
      field: "name",
      value: profile.name,
      remedy: "discard one that is not needed (`internevo profile discard`), then give this one again",
    });
  const [row] = await tx
    .insert(profiles)
    .values({
      ...rowOf(randomUUID(), { clusterKey: givenKey(profile.name), profile, freshForSeconds: 0 }),
      project,
      givenSha256: digest,
    })
    // An update, though it changes nothing: unlike none at all it answers the id of the row that was first.
    .onConflictDoUpdate({
      ...(project === null ? ONCE_IN_INSTALLATION : ONCE_IN_PROJECT),
      set: { givenSha256: sql`excluded.given_sha256` },
    })
    .returning({ id: profiles.id });
  if (!row) throw new Error("a profile was neither stored nor found");
  return row.id;
}

/** Profiles that were measured after the last one of their cluster that somebody discarded. */
const afterDiscarded = (clusterKey: string) =>
  gt(
    profiles.createdAt,
    sql`coalesce((select max(discarded.created_at) from ${profiles} as discarded where discarded.cluster_key = ${clusterKey} and discarded.discarded_at is not null), '-infinity')`,
  );

/**
 * The newest profile of a cluster that nobody discarded; with `freshOnly` only one that need not be measured
 * again: nor one that is older than what was discarded, which whoever discarded it would not expect.
 */
export async function newestProfile(
  db: Queryable,
  clusterKey: string,
  options: { readonly freshOnly?: boolean } = {},
): Promise<ProfileRecord | undefined> {
  const fresh = options.freshOnly
    ? and(gt(profiles.freshUntil, sql`clock_timestamp()`), afterDiscarded(clusterKey))
    : undefined;
  const [row] = await db
    .select()
    .from(profiles)
    .where(and(eq(profiles.clusterKey, clusterKey), isNull(profiles.discardedAt), fresh))
    .orderBy(desc(profiles.createdAt), desc(profiles.id))
    .limit(1);
  return row && recordOf(row);
}

/**
 * Takes a profile out of use: jobs that used it still show it, no other job does. A given one that nothing refers
 * to is deleted. @returns false when there is none; discarding again changes nothing.
 */
export async function discardProfile(tx: Queryable, id: string): Promise<boolean> {
  if (!isUuid(id)) return false;
  // Who begins to refer to it holds the row until that can be seen below.
  const [row] = await tx
    .select({ clusterKey: profiles.clusterKey })
    .from(profiles)
    .where(eq(profiles.id, id))
    .for("update");
  if (!row) return false;
  if (isGivenKey(row.clusterKey) && !(await isReferredTo(tx, id)))
    await tx.delete(profiles).where(eq(profiles.id, id));
  else
    await tx
      .update(profiles)
      .set({ discardedAt: sql`coalesce(${profiles.discardedAt}, clock_timestamp())` })
      .where(eq(profiles.id, id));
  return true;
}

/** Whether a job, a planning or a workload used a profile, or names it by its id. */
async function isReferredTo(tx: Queryable, id: string): Promise<boolean> {
  const { rows } = await tx.execute<{ readonly is_referred_to: boolean }>(sql`select
    exists (select from ${jobs} where profile_id = ${id})
    or exists (select from ${jobs} where (spec -> 'cluster' ->> 'profile') = ${id}::text)
    or exists (select from ${plannings} where profile_id = ${id})
    or exists (select from ${workloads} where (spec -> 'cluster' ->> 'profile') = ${id}::text) as is_referred_to`);
  return rows[0]?.is_referred_to === true;
}

/** Whether a project's jobs may use a profile: it is seen, and nobody discarded it. @param only as of {@link getProfile} */
export async function isProfileUsable(db: Queryable, id: string, only: string | null): Promise<boolean> {
  const [row] = await db
    .select({ id: profiles.id })
    .from(profiles)
    .where(and(eq(profiles.id, id), isNull(profiles.discardedAt), seenBy(only)));
  return row !== undefined;
}

/**
 * The newest job that a profile was measured for, or that found it fresh. Jobs that name it do not count:
 * they may be of another cluster, and they measure nothing.
 */
export async function newestJobMeasuredFor(db: Queryable, profileId: string): Promise<JobSpec | undefined> {
  const [row] = await db
    .select({ spec: jobs.spec })
    .from(jobs)
    .where(and(eq(jobs.profileId, profileId), sql`${jobs.spec} #>> '{cluster,profile}' is null`))
    .orderBy(desc(jobs.createdAt), desc(jobs.id))
    .limit(1);
  return row?.spec;
}

/**
 * A profile, whether it was discarded or not. @param only one that this project may see: its own or the
 * installation's; null: whosever
 */
export async function getProfile(
  db: Queryable,
  id: string,
  only: string | null = null,
): Promise<ProfileRecord | undefined> {
  if (!isUuid(id)) return undefined;
  const [row] = await db
    .select()
    .from(profiles)
    .where(and(eq(profiles.id, id), seenBy(only)));
  return row && recordOf(row);
}

/**
 * The profiles that a name means, of every cluster the newest: see {@link meantProfiles}. Several are left where the
 * name does not settle it.
 * @param asker its project sees nothing of others; the installation sees all
 */
export async function profilesCalled(
  db: Queryable,
  name: string,
  asker: ProfileAsker,
): Promise<readonly Pick<ProfileRecord, "id" | "name" | "clusterKey" | "project">[]> {
  const seen = await db
    .selectDistinctOn([profiles.project, profiles.clusterKey], {
      id: profiles.id,
      name: profiles.name,
      clusterKey: profiles.clusterKey,
      project: profiles.project,
      createdAt: profiles.createdAt,
    })
    .from(profiles)
    .where(
      and(
        isNull(profiles.discardedAt),
        seenBy(asker.project),
        or(
          eq(profiles.name, name),
          sql`substring(${profiles.clusterKey} from ${CLUSTER_NAME_IN_KEY}) = ${name}`,
        ),
      ),
    )
    .orderBy(profiles.project, profiles.clusterKey, desc(profiles.createdAt), desc(profiles.id));
  const called = seen.map((row) => ({ ...row, createdAt: row.createdAt.toISOString() }));
  return meantProfiles(called, name, asker);
}

/** As `estimatedPoints` of the domain: of modules, overlaps, and the points of collectives. */
const HAS_ESTIMATES = "$.*[*] ? (@.estimated == true || exists (@.points[*] ? (@.estimated == true)))";

const SUMMARY_COLUMNS = {
  id: profiles.id,
  name: profiles.name,
  clusterKey: profiles.clusterKey,
  project: profiles.project,
  createdAt: profiles.createdAt,
  freshUntil: profiles.freshUntil,
  estimated: sql<boolean>`jsonb_path_exists(${profiles.profile}, ${HAS_ESTIMATES}::jsonpath)`,
  quality: sql<ProfileSummary["quality"]>`${profiles.profile} -> 'quality'`,
};

const summaryOf = (
  row: Omit<ProfileSummary, "createdAt" | "freshUntil"> & Record<"createdAt" | "freshUntil", Date>,
): ProfileSummary => ({
  ...row,
  createdAt: row.createdAt.toISOString(),
  freshUntil: row.freshUntil.toISOString(),
});

/**
 * The newest profiles that were measured of a cluster. @param cluster without a name: of all that its launcher
 * ran.
 */
export async function profilesOfCluster(
  db: Queryable,
  cluster: { readonly launcher: LauncherKind; readonly name?: string },
  limit: number,
): Promise<ProfileSummary[]> {
  const { launcher, name } = cluster;
  const rows = await db
    .select(SUMMARY_COLUMNS)
    .from(profiles)
    .where(
      and(
        isNull(profiles.discardedAt),
        sql`starts_with(${profiles.clusterKey}, ${`${launcher}:`})`,
        name === undefined
          ? undefined
          : sql`substring(${profiles.clusterKey} from ${CLUSTER_NAME_IN_KEY}) = ${name}`,
      ),
    )
    .orderBy(desc(profiles.createdAt), desc(profiles.id))
    .limit(limit);
  return rows.map(summaryOf);
}

/** Newest first, without the curves; none that was discarded. @param only as of {@link getProfile} */
export async function listProfiles(
  db: Queryable,
  request: PageRequest = {},
  only: string | null = null,
): Promise<Page<ProfileSummary>> {
  const limit = pageLimit(request);
  const after = decodeCursor(request.cursor);
  const rows = await db
    .select(SUMMARY_COLUMNS)
    .from(profiles)
    .where(
      and(
        isNull(profiles.discardedAt),
        seenBy(only),
        after &&
          sql`(${profiles.createdAt}, ${profiles.id}) < (${after.at.toISOString()}::timestamptz, ${after.id}::uuid)`,
      ),
    )
    .orderBy(desc(profiles.createdAt), desc(profiles.id))
    .limit(limit + 1);
  return pageOf(rows, limit, (row) => ({ at: row.createdAt, id: row.id }), summaryOf);
}
