import { createHash, randomUUID } from "node:crypto";
import { mkdir, readdir, readlink, rename, rm, stat, symlink, utimes } from "node:fs/promises";
import { dirname, join } from "node:path";
import { dataFiles, ifThere, LET_IT_GO_ON, ProblemError, sourcesOf, type Data } from "@internevo/domain";
import { hasNewLink } from "./path-for-ranks.ts";
import type { TokenData } from "./source.ts";
import type { TokenSource } from "./token-source.ts";

/*
 * The trainer opens files by their paths. It is given paths as `path-for-ranks.ts` has them: whoever owns the data
 * cannot have one lead elsewhere by another link.
 */

/** Holds a folder of links for each set of files that do not lie beside one another. */
const linksDirectory = (datasets: string): string => join(datasets, "links");

/** The file that ranks are given in a folder of links; others of its data are named after it. */
const LINK = "data.bin";

/** What the trainer reads: of a mixture, one path of each source. */
interface HandedOver {
  readonly path: string;
  readonly sources?: readonly { readonly path: string }[];
}

const filesAt = (data: TokenData, path: string): readonly string[] =>
  dataFiles({ ...data, path }).map((file) => file.path);

/** A link, unless it is there already: its folder is named after all that the links in it lead to. */
async function link(target: string, path: string): Promise<void> {
  await symlink(target, path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error;
  });
}

/**
 * What the trainer is given of data that was read: where its files lie. Files that do not lie beside one another under
 * names of one stem are reached by links in a folder of the services, which nobody else writes.
 */
export async function handOver(
  data: TokenData,
  { forRanks }: Pick<TokenSource, "forRanks">,
  datasets: string,
): Promise<string> {
  const [first = data.path] = forRanks;
  if (filesAt(data, first).every((path, place) => path === forRanks[place])) return first;
  const name = createHash("sha256").update(forRanks.join("\0")).digest("hex");
  const path = join(linksDirectory(datasets), name, LINK);
  for (;;) {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    // A removal that has found it unused may take the folder away at this moment, and gives it back.
    const isMade = await ifThere(async () => {
      await utimes(dirname(path), new Date(), new Date());
      for (const [place, file] of filesAt(data, path).entries()) await link(forRanks[place] as string, file);
      return true;
    });
    if (isMade) return path;
  }
}

/** Deletes a folder of links, unless it was used since a time. */
async function removeLinks(path: string, before: number): Promise<void> {
  const doomed = `${path}.removed-${randomUUID()}`;
  await ifThere(() => rename(path, doomed));
  const found = await ifThere(() => stat(doomed));
  if (found === undefined) return;
  // Used since it was found: whoever waits for it has it back, unless they have made another.
  if (found.mtimeMs >= before && (await isRenamed(doomed, path))) return;
  await rm(doomed, { recursive: true, force: true });
}

const isRenamed = (from: string, to: string): Promise<boolean> =>
  rename(from, to).then(
    () => true,
    () => false,
  );

/**
 * Removes folders of links that nothing names, and that nobody made or used since a time.
 * @param named what ranks are given, asked for where a folder may go
 */
export async function removeUnnamedLinks(
  datasets: string,
  named: () => Promise<ReadonlySet<string>>,
  before: number,
): Promise<void> {
  const links = linksDirectory(datasets);
  const old: string[] = [];
  for (const name of (await ifThere(() => readdir(links))) ?? []) {
    const found = await ifThere(() => stat(join(links, name)));
    if (found !== undefined && found.mtimeMs < before) old.push(join(links, name));
  }
  if (old.length === 0) return;
  const kept = await named();
  for (const path of old) if (!kept.has(join(path, LINK))) await removeLinks(path, before);
}

/** Where a path has to lead to: to itself, or to where a link of the services leads. */
async function expectedOf(path: string, datasets: string): Promise<string> {
  return path.startsWith(join(linksDirectory(datasets), "/")) ? readlink(path) : path;
}

/**
 * Checks that what the trainer is given still leads where it did when it was read, for right before a launch.
 * @throws ProblemError `data-invalid`
 */
export async function assertLeadsStill(data: Data, prepared: HandedOver, datasets: string): Promise<void> {
  const paths = prepared.sources?.map(({ path }) => path) ?? [prepared.path];
  for (const [place, { data: source, part }] of sourcesOf(data).entries()) {
    // Text is read from a copy, which is the services' own.
    if (source.format === "text") continue;
    for (const path of filesAt(source, paths[place] as string)) {
      const expected = await expectedOf(path, datasets);
      if (!(await hasNewLink(expected))) continue;
      const message = "does not lead any more to the file that was read";
      throw new ProblemError("data-invalid", `${expected} ${message}`, [
        {
          field: `${part}.path`,
          value: expected,
          message,
          remedy: `leave a job's files where they are until it has ended, and ${LET_IT_GO_ON}`,
        },
      ]);
    }
  }
}
