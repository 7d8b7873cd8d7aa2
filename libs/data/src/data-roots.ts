import { readlink, realpath } from "node:fs/promises";
import { basename, delimiter, dirname, isAbsolute, join, relative, resolve, sep } from "node:path";
import { ProblemError, type ProblemDetail } from "@internevo/domain";

/** Folders below which jobs may name data and weights; null: wherever the service's user may read. */
export type DataRoots = readonly string[] | null;

/** The environment variable that says them. */
const DATA_ROOTS_VARIABLE = "INTERNEVO_DATA_ROOTS";

/** Links that one path may lead through, as for the kernel. */
const MOST_LINKS = 40;
const MOST_DETAILS = 20;

/** @throws ProblemError `bad-request` for a folder that is not given from / on. */
export function dataRootsOf(text: string | undefined): DataRoots {
  if (text === undefined) return null;
  return text.split(delimiter).map((folder) => {
    if (isAbsolute(folder)) return resolve(folder);
    throw new ProblemError("bad-request", `${DATA_ROOTS_VARIABLE} names a folder that is not absolute`, [
      {
        field: DATA_ROOTS_VARIABLE,
        value: folder,
        message: "is not absolute",
        remedy: `give folders from / on, with ${delimiter} between them; leave the variable out to allow every file`,
      },
    ]);
  });
}

/**
 * Where a path leads once every link is followed, also where nothing is there; undefined where links lead in
 * a circle, or that cannot be told.
 */
export async function whereItLeads(path: string, links = MOST_LINKS): Promise<string | undefined> {
  try {
    return await realpath(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ELOOP" || links === 0) return undefined;
  }
  const parent = dirname(path);
  if (parent === path) return path;
  const folder = await whereItLeads(parent, links - 1);
  if (folder === undefined) return undefined;
  const here = join(folder, basename(path));
  // A link to what is not there must not tell that it is not there.
  const target = await readlink(here).catch((error: unknown) => {
    const { code } = error as NodeJS.ErrnoException;
    // No link, or nothing there: the path leads to itself. Of anything else it is not known where it leads.
    return code === "EINVAL" || code === "ENOENT" || code === "ENOTDIR" ? here : undefined;
  });
  if (target === undefined || target === here) return target;
  return whereItLeads(resolve(folder, target), links - 1);
}

function isBelow(path: string, root: string): boolean {
  const way = relative(root, path);
  return way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way);
}

/**
 * The name of the folder in `parent` that a path leads into, links followed, whether it is there or not; null: it
 * leads elsewhere.
 */
export async function folderThatHolds(parent: string, path: string): Promise<string | null> {
  const [real, leads] = await Promise.all([whereItLeads(parent), whereItLeads(resolve(path))]);
  if (real === undefined || leads === undefined || !isBelow(leads, real)) return null;
  return relative(real, leads).split(sep)[0] ?? null;
}

/** Where data may not, and may, lie. */
export interface DataPlaces {
  readonly roots: DataRoots;
  /** The installation's data directory: its secrets, what every project's jobs left, copies of their data. */
  readonly own: string | undefined;
}

/** Where weights may not, and may, lie. */
export interface WeightsPlaces extends DataPlaces {
  /** The directory of the job whose weights may be read: whoever asks has looked whose it is. Null: of none. */
  readonly ofJob: string | null;
}

interface NamedFile {
  readonly path: string;
  readonly field: string;
  /** Where it lies, of a file that is open; else its path says it. */
  readonly leads?: string;
}

/** Refuses files by where they lie, whether they are there or not. */
export type Judge = (files: readonly NamedFile[]) => Promise<void>;

/** @throws ProblemError `data-invalid` that tells what is wrong with each file, if anything is */
async function assertEach(
  files: readonly NamedFile[],
  isRight: (leads: string | undefined) => boolean,
  words: { readonly message: string; readonly remedy: string },
): Promise<void> {
  const details: ProblemDetail[] = [];
  for (const { path, field, leads } of files) {
    if (!isRight(leads ?? (await whereItLeads(resolve(path)))))
      details.push({ field, value: path, ...words });
    if (details.length === MOST_DETAILS) break;
  }
  const [first] = details;
  if (first) throw new ProblemError("data-invalid", `${String(first.value)} ${first.message}`, details);
}

/**
 * Checks that files do not lie in the installation's own directory, links followed: whoever trains on its
 * secrets, or on another project's checkpoints, has them.
 * @param except a directory in there whose files may be read
 * @throws ProblemError `data-invalid`, the same whether the file is there or not.
 */
async function assertNotOwn(
  files: readonly NamedFile[],
  own: string | undefined,
  except: string | null = null,
): Promise<void> {
  if (own === undefined) return;
  const real = (await whereItLeads(own)) ?? own;
  const allowed = except === null ? undefined : await whereItLeads(except);
  const isRight = (leads: string): boolean =>
    !isBelow(leads, real) || (allowed !== undefined && isBelow(leads, allowed));
  await assertEach(files, (leads) => leads !== undefined && isRight(leads), {
    message: "lies in the data directory of the installation, which no job reads its data from",
    remedy: "copy what you train on to a folder outside of it; links are followed first",
  });
}

/**
 * Checks that files are such as an installation lets jobs train on, before anything is asked of the files.
 * @throws ProblemError `data-invalid`, the same whether the file is there or not.
 */
export async function assertMayBeData(
  files: readonly NamedFile[],
  { roots, own }: DataPlaces,
): Promise<void> {
  await assertNotOwn(files, own);
  await assertBelowRoots(files, roots);
}

/**
 * Checks that files lie below the folders that an installation allows, links followed, before anything is
 * asked of the files themselves.
 * @throws ProblemError `data-invalid`, the same whether the file is there or not.
 */
async function assertBelowRoots(files: readonly NamedFile[], roots: DataRoots): Promise<void> {
  if (roots === null) return;
  const real = await Promise.all(roots.map(async (root) => (await whereItLeads(root)) ?? root));
  await assertEach(files, (leads) => leads !== undefined && real.some((root) => isBelow(leads, root)), {
    message: "is not below a folder that this installation reads data and weights from",
    remedy: `give a path below ${roots.join(" or ")}; links are followed first`,
  });
}

/**
 * Checks that a folder of weights, or files of one, are such as an installation lets a job begin with, before anything
 * is asked of the files. A folder that lies elsewhere may not lead by links into what a job left.
 * @throws ProblemError `data-invalid`, the same whether the file is there or not.
 */
export async function assertMayBeWeights(
  files: readonly NamedFile[],
  { roots, own, ofJob }: WeightsPlaces,
): Promise<void> {
  await assertBelowRoots(files, roots === null || ofJob === null ? roots : [...roots, ofJob]);
  await assertNotOwn(files, own, ofJob);
}
