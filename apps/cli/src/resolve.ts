import type { InternEvoClient, ProfileSummary } from "@internevo/client";
import { findShippedProfile } from "@internevo/cost-model";
import {
  CLUSTER_NAME_IN_KEY,
  didYouMean,
  formatMoment,
  meantProfiles,
  ProblemError,
  type LauncherKind,
} from "@internevo/domain";
import { pages } from "./lists.ts";

/** What people may name: by its id, by the beginning of its id, or by its name. */
interface Named {
  readonly id: string;
  readonly name: string;
  readonly createdAt: string;
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
/** Names that an error lists. */
const LISTED = 10;

/** Length of the ids in tables; longer where two of them begin alike. */
const SHORT = 8;

/** Shows ids by as much of their beginning as tells them apart. */
export function shortIds(ids: readonly string[]): (id: string) => string {
  let length = SHORT;
  const distinct = new Set(ids);
  while (length < 36 && new Set([...distinct].map((id) => id.slice(0, length))).size < distinct.size)
    length += 1;
  return (id) => id.slice(0, length);
}

/** What is called by more than its name. */
interface Calling<T> {
  readonly names: (item: T) => readonly string[];
  /** Of those that a name means and that are of the same, the first is taken: lists begin with the newest. */
  readonly sameAs: (item: T) => string;
  /** Of several that have the name, those that are meant before the others; by default all alike. */
  readonly preferred?: (found: readonly T[], name: string) => Promise<readonly T[]>;
}

const byName: Omit<Calling<Named>, "preferred"> = { names: ({ name }) => [name], sameAs: ({ id }) => id };

/**
 * @throws ProblemError `not-found` when nothing is named so; `bad-request` when several are, listing them.
 */
export async function resolveNamed<T extends Named>(
  what: string,
  text: string,
  command: string,
  items: AsyncIterable<T>,
  { names, sameAs, preferred }: Calling<T> = byName,
): Promise<string> {
  const wanted = text.trim();
  // A whole id names one thing only, and whether it is there the API says.
  if (UUID.test(wanted.toLowerCase())) return wanted.toLowerCase();
  const isPrefix = /^[0-9a-f-]+$/i.test(wanted);
  let found: readonly T[] = [];
  const known = new Set<string>();
  const taken = new Set<string>();
  if (wanted !== "") {
    for await (const item of items) {
      for (const name of names(item)) known.add(name);
      const isMeant = isPrefix && item.id.startsWith(wanted.toLowerCase());
      if (!isMeant && (!names(item).includes(wanted) || taken.has(sameAs(item)))) continue;
      taken.add(sameAs(item));
      found = [...found, item];
    }
  }
  const isNamed = found.length > 1 && found.every((item) => names(item).includes(wanted));
  if (preferred && isNamed) found = await preferred(found, wanted);
  const [first, second] = found;
  if (first !== undefined && second === undefined) return first.id;
  if (first === undefined) {
    throw new ProblemError("not-found", `there is no ${what} ${wanted}`, [
      {
        field: what,
        value: text,
        message: `is neither an id, nor the beginning of one, nor the name of a ${what}`,
        remedy: `${didYouMean(wanted, [...known])}see \`${command}\``,
      },
    ]);
  }
  const short = shortIds(found.map(({ id }) => id));
  const listed = found
    .slice(0, LISTED)
    .map(({ id, name, createdAt }) => ({
      field: what,
      message: `may be ${name} of ${formatMoment(createdAt)}`,
      remedy: `give ${short(id)}`,
    }));
  throw new ProblemError(
    "bad-request",
    `${wanted} names ${found.length} ${what}s${found.length > LISTED ? `; the newest ${LISTED} of them:` : ""}`,
    listed,
  );
}

export const jobId = (client: InternEvoClient, text: string, signal: AbortSignal): Promise<string> =>
  resolveNamed(
    "job",
    text,
    "internevo ps",
    pages((cursor) => client.listJobs({ limit: 200, signal, ...cursor })),
  );
/** Of the changes of a job's plan, which have no names. */
export const planChangeId = (
  client: InternEvoClient,
  job: string,
  text: string,
  signal: AbortSignal,
): Promise<string> =>
  resolveNamed(
    "plan change",
    text,
    `internevo plan-change list ${job}`,
    pages(async (cursor) => {
      const page = await client.listPlanChanges(job, { limit: 200, signal, ...cursor });
      return { ...page, items: page.items.map(({ id, createdAt }) => ({ id, createdAt, name: id })) };
    }),
  );
const clusterName = new RegExp(CLUSTER_NAME_IN_KEY);
/** The cluster that a profile was measured of; undefined for one that was given. */
export const clusterOfProfile = ({ clusterKey }: Pick<ProfileSummary, "clusterKey">): string | undefined =>
  clusterName.exec(clusterKey)?.[1];
/**
 * A profile is called by its cluster's name as well, and means the newest of it then: see `meantProfiles`.
 * @param projectOfToken asked where it matters; null: the installation's
 * @param launcher of the job that the profile is for; null: it is for none
 */
export const profileCalling = (
  projectOfToken: () => Promise<string | null>,
  launcher: LauncherKind | null = null,
): Calling<ProfileSummary> => ({
  names: ({ name, clusterKey }) => [name, ...(clusterName.exec(clusterKey)?.slice(1) ?? [])],
  sameAs: ({ clusterKey, project }) => JSON.stringify([project, clusterKey]),
  async preferred(found, name) {
    const projects = new Set(found.map(({ project }) => project));
    const project = projects.size > 1 ? await projectOfToken() : null;
    return meantProfiles(found, name, { project, launcher });
  },
});
/**
 * A stored profile, to do something with it. @param launcher as of {@link profileCalling}
 * @throws ProblemError as {@link resolveNamed}; `conflict` for one that is shipped only: nobody measured it here, so
 * nobody can discard it or measure it again.
 */
export async function profileId(
  client: InternEvoClient,
  text: string,
  signal: AbortSignal,
  launcher: LauncherKind | null = null,
): Promise<string> {
  try {
    return await resolveNamed(
      "profile",
      text,
      "internevo profile list",
      pages((cursor) => client.listProfiles({ limit: 200, signal, ...cursor })),
      profileCalling(async () => (await client.whoami({ signal })).project, launcher),
    );
  } catch (error) {
    const isUnknown = error instanceof ProblemError && error.code === "not-found";
    throw isUnknown && findShippedProfile(text.trim()) ? shipped(text.trim()) : error;
  }
}

const shipped = (name: string): ProblemError =>
  new ProblemError("conflict", `profile ${name} is shipped with InternEvo`, [
    {
      field: "profile",
      value: name,
      message: "was not measured here: it can neither be discarded nor measured again",
      remedy: "leave it; only jobs that name it, and --profile, use it",
    },
  ]);

export const workloadId = (client: InternEvoClient, text: string, signal: AbortSignal): Promise<string> =>
  resolveNamed(
    "workload",
    text,
    "internevo replan list",
    pages((cursor) => client.listWorkloads({ limit: 200, signal, ...cursor })),
  );
export const tokenId = (client: InternEvoClient, text: string, signal: AbortSignal): Promise<string> =>
  resolveNamed(
    "token",
    text,
    "internevo token list",
    pages((cursor) => client.listTokens({ limit: 200, signal, ...cursor })),
  );
export const webhookId = (client: InternEvoClient, text: string, signal: AbortSignal): Promise<string> =>
  resolveNamed(
    "webhook",
    text,
    "internevo webhook list",
    pages((cursor) => client.listWebhooks({ limit: 200, signal, ...cursor })),
  );
