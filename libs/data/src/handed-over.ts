import { createHash } from "node:crypto";
import { mkdir, readlink, realpath, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { dataFiles, ProblemError, sourcesOf, type Data } from "@internevo/domain";
import type { TokenData } from "./source.ts";
import type { TokenSource } from "./token-source.ts";

/*
 * The trainer opens files by their paths. It is given paths with no link left in them: whoever owns the data
 * cannot have one lead elsewhere by another link.
 */

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
  { leads }: Pick<TokenSource, "leads">,
  datasets: string,
): Promise<string> {
  const [first = data.path] = leads;
  if (filesAt(data, first).every((path, place) => path === leads[place])) return first;
  const name = createHash("sha256").update(leads.join("\0")).digest("hex");
  const path = join(datasets, "links", name, "data.bin");
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  for (const [place, file] of filesAt(data, path).entries()) await link(leads[place] as string, file);
  return path;
}

/** Where a path has to lead to: to itself, or to where a link of the services leads. */
async function expectedOf(path: string, datasets: string): Promise<string> {
  return path.startsWith(join(datasets, "links", "/")) ? readlink(path) : path;
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
      // What cannot be reached now, ranks cannot open either: they say so, and are started again.
      if ((await realpath(path).catch(() => expected)) === expected) continue;
      const message = "does not lead any more to the file that was read";
      throw new ProblemError("data-invalid", `${expected} ${message}`, [
        {
          field: `${part}.path`,
          value: expected,
          message,
          remedy: "leave the files of a job where they are until it has ended, and submit it again",
        },
      ]);
    }
  }
}
