import { randomUUID } from "node:crypto";
import { and, desc, eq, gt, or, sql } from "drizzle-orm";
import { CLUSTER_NAME_IN_KEY, givenKey, type Profile } from "@internevo/domain";
import type { ProfileRecord } from "@internevo/contracts";
import type { Queryable } from "./database.ts";
import { decodeCursor, isUuid, pageLimit, pageOf, type Page, type PageRequest } from "./pages.ts";
import { profiles } from "./schema/index.ts";

const recordOf = (row: typeof profiles.$inferSelect): ProfileRecord => ({
  id: row.id,
  name: row.name,
  clusterKey: row.clusterKey,
  createdAt: row.createdAt.toISOString(),
  freshUntil: row.freshUntil.toISOString(),
  profile: row.profile,
});

/** Stores a profile of a cluster. @param profile.freshForSeconds how long it may be used without measuring again. @returns its id. */
export async function storeProfile(tx: Queryable, profile: { readonly clusterKey: string; readonly profile: Profile; readonly freshForSeconds: number }): Promise<string> {
  const id = randomUUID();
  await tx.insert(profiles).values({
    id,
    name: profile.profile.name,
    clusterKey: profile.clusterKey,
    profile: profile.profile,
    createdAt: sql`clock_timestamp()`,
    freshUntil: sql`clock_timestamp() + make_interval(secs => ${profile.freshForSeconds})`,
  });
  return id;
}

/** Stores a profile that somebody gave, once: the same content keeps its id. It is nobody's measurement, and used only where it is named. @returns its id. */
export async function storeGivenProfile(tx: Queryable, profile: Profile): Promise<string> {
  const clusterKey = givenKey(profile.name);
  const [same] = await tx.select({ id: profiles.id }).from(profiles).where(and(eq(profiles.clusterKey, clusterKey), sql`${profiles.profile} = ${JSON.stringify(profile)}::jsonb`)).limit(1);
  return same?.id ?? storeProfile(tx, { clusterKey, profile, freshForSeconds: 0 });
}

/** The newest profile of a cluster; with `freshOnly` only one that need not be measured again. */
export async function newestProfile(db: Queryable, clusterKey: string, options: { readonly freshOnly?: boolean } = {}): Promise<ProfileRecord | undefined> {
  const fresh = options.freshOnly ? gt(profiles.freshUntil, sql`clock_timestamp()`) : undefined;
  const [row] = await db.select().from(profiles).where(and(eq(profiles.clusterKey, clusterKey), fresh)).orderBy(desc(profiles.createdAt), desc(profiles.id)).limit(1);
  return row && recordOf(row);
}

export async function getProfile(db: Queryable, id: string): Promise<ProfileRecord | undefined> {
  if (!isUuid(id)) return undefined;
  const [row] = await db.select().from(profiles).where(eq(profiles.id, id));
  return row && recordOf(row);
}

/** Of every cluster the newest profile that a name means: its own, or the cluster's. */
export async function profilesCalled(db: Queryable, name: string): Promise<Pick<ProfileRecord, "id" | "name" | "clusterKey">[]> {
  return db
    .selectDistinctOn([profiles.clusterKey], { id: profiles.id, name: profiles.name, clusterKey: profiles.clusterKey })
    .from(profiles)
    .where(or(eq(profiles.name, name), sql`substring(${profiles.clusterKey} from ${CLUSTER_NAME_IN_KEY}) = ${name}`))
    .orderBy(profiles.clusterKey, desc(profiles.createdAt), desc(profiles.id));
}

/** Newest first, without the curves. */
export async function listProfiles(db: Queryable, request: PageRequest = {}): Promise<Page<Omit<ProfileRecord, "profile">>> {
  const limit = pageLimit(request);
  const after = decodeCursor(request.cursor);
  const { profile: _, ...columns } = { id: profiles.id, name: profiles.name, clusterKey: profiles.clusterKey, createdAt: profiles.createdAt, freshUntil: profiles.freshUntil, profile: profiles.profile };
  const rows = await db
    .select(columns)
    .from(profiles)
    .where(after && sql`(${profiles.createdAt}, ${profiles.id}) < (${after.at.toISOString()}::timestamptz, ${after.id}::uuid)`)
    .orderBy(desc(profiles.createdAt), desc(profiles.id))
    .limit(limit + 1);
  return pageOf(rows, limit, (row) => ({ at: row.createdAt, id: row.id }), (row) => ({ ...row, createdAt: row.createdAt.toISOString(), freshUntil: row.freshUntil.toISOString() }));
}
