import { existsSync } from "node:fs";
import { readdir, rm, stat, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { ifThere } from "@internevo/domain";
import {
  makeDataDirectory,
  parseSecrets,
  RESTORE_MARKER,
  startLocalStack,
  writeSecrets,
} from "@internevo/local-stack";
import { jobsDirectory } from "@internevo/stages";
import { restoreDatabase, restoredReason, type Settled } from "@internevo/store";
import {
  assertNothingIn,
  assertRoom,
  cannotWrite,
  copyHashed,
  freeBytes,
  readHashed,
  removeTree,
  syncTree,
} from "./files.ts";
import {
  assertSame,
  FILES,
  missingFile,
  readManifest,
  readText,
  SECRETS,
  sha256,
  type BackupFile,
  type Manifest,
} from "./manifest.ts";
import { databaseGone } from "./stack-database.ts";
import { TableReader } from "./tables.ts";

export interface RestoreOptions {
  /** The backup's folder. */
  readonly from: string;
  readonly dataDirectory: string;
  /** An empty database; undefined: one is made in the data directory. */
  readonly databaseUrl: string | undefined;
  /** Jobs that had not ended go on when services start; otherwise they are held. */
  readonly goesOn: boolean;
  readonly signal: AbortSignal;
  readonly onProgress?: (what: string, doneBytes?: number, allBytes?: number) => void;
}

export interface Restored extends Settled {
  readonly manifest: Manifest;
}

/** Where a file of the backup belongs in a data directory; undefined: it is no file of jobs. */
const placeOf = ({ path }: BackupFile, dataDirectory: string): string | undefined =>
  path.startsWith(`${FILES}/`) ? join(dataDirectory, path.slice(FILES.length + 1)) : undefined;

/** Checks every file, and copies those of jobs. */
async function takeFiles(
  { from, signal, onProgress }: RestoreOptions,
  { files, counts }: Manifest,
  dataDirectory: string,
): Promise<void> {
  let done = 0;
  for (const file of files) {
    onProgress?.("files", done, counts.bytes);
    const path = join(from, file.path);
    const place = placeOf(file, dataDirectory);
    const found = await ifThere(() =>
      place === undefined
        ? readHashed(path, file.bytes, signal)
        : copyHashed(path, place, signal, file.bytes),
    );
    if (found === undefined) throw missingFile(path);
    assertSame(path, file, found);
    done += file.bytes;
  }
}

async function takeSecrets(from: string, { files }: Manifest, dataDirectory: string): Promise<void> {
  const file = files.find(({ path }) => path === SECRETS);
  if (file === undefined) return;
  const path = join(from, file.path);
  const text = await readText(path, file.bytes);
  assertSame(path, file, { bytes: Buffer.byteLength(text), sha256: sha256(text) });
  writeSecrets(dataDirectory, parseSecrets(text, path));
}

async function takeDatabase(
  { from, databaseUrl, goesOn, signal, onProgress }: RestoreOptions,
  manifest: Manifest,
  dataDirectory: string,
  url: string,
): Promise<Settled> {
  onProgress?.("database");
  // Whoever has a database of their own knows how much it may hold.
  const room = databaseUrl === undefined ? await freeBytes(dataDirectory) : Infinity;
  const reader = new TableReader({ from, files: manifest.files, dataDirectory, room, signal });
  const { takenAt, migration, tables, sequences } = manifest;
  return restoreDatabase({
    url,
    migration,
    tables,
    sequences,
    open: (table) => reader.open(table),
    settle: {
      takenAt,
      heldWith: goesOn ? null : restoredReason(takenAt),
      moved: { from: manifest.dataDirectory.map(jobsDirectory), to: jobsDirectory(dataDirectory) },
    },
  });
}

/** Fills a data directory that has nothing in it. */
async function fill(options: RestoreOptions, manifest: Manifest, dataDirectory: string): Promise<Settled> {
  const { from, databaseUrl, signal } = options;
  makeDataDirectory(dataDirectory);
  await writeFile(join(dataDirectory, RESTORE_MARKER), "", { mode: 0o600, flush: true });
  const room = manifest.files.reduce((sum, { bytes }) => sum + bytes, 0);
  await assertRoom("dataDirectory", dataDirectory, room);
  await takeFiles(options, manifest, dataDirectory);
  await takeSecrets(from, manifest, dataDirectory);
  const stack = await startLocalStack({
    dataDirectory,
    services: [],
    databaseUrl: databaseUrl ?? "",
    natsUrl: "",
    signal,
    isRestore: true,
  });
  try {
    return await takeDatabase(options, manifest, dataDirectory, stack.info().databaseUrl);
  } finally {
    await stack.stop();
  }
}

/** Leaves a directory as it was: not there, or with nothing in it. */
async function empty(dataDirectory: string, wasThere: boolean): Promise<void> {
  for (const name of (await ifThere(() => readdir(dataDirectory))) ?? [])
    await removeTree(join(dataDirectory, name));
  if (!wasThere) await removeTree(dataDirectory);
}

/**
 * Restores a backup into a data directory, and a database, that have nothing in them. All of it is there
 * afterwards, or nothing: a directory in which a restore was killed starts no stack.
 * @throws ProblemError `not-found` and `data-invalid` for what is no backup or a damaged one, `conflict` for
 * one of a newer version and for places that are not empty; the signal's reason.
 */
export async function restore(options: RestoreOptions): Promise<Restored> {
  const from = resolve(options.from);
  const dataDirectory = resolve(options.dataDirectory);
  const manifest = await readManifest(from);
  await assertNothingIn(
    "dataDirectory",
    dataDirectory,
    "name a data directory that is not there yet, with --data-directory, or remove this one",
  );
  const wasThere = (await ifThere(() => stat(dataDirectory))) !== undefined;
  try {
    const settled = await fill({ ...options, from }, manifest, dataDirectory);
    options.signal.throwIfAborted();
    await syncTree(jobsDirectory(dataDirectory)).catch((error: unknown) => {
      if (existsSync(jobsDirectory(dataDirectory))) throw error;
    });
    await rm(join(dataDirectory, RESTORE_MARKER));
    return { manifest, ...settled };
  } catch (error) {
    await empty(dataDirectory, wasThere);
    options.signal.throwIfAborted();
    throw cannotWrite("dataDirectory", dataDirectory, databaseGone(error));
  }
}
