import { randomUUID } from "node:crypto";
import { realpathSync } from "node:fs";
import { mkdir, rename } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { isTerminal, ProblemError } from "@internevo/domain";
import { readSecrets } from "@internevo/local-stack";
import { SnapshotReader, type JobStand, type Snapshot } from "@internevo/store";
import { announcedStep, chooseCheckpoints, Missing } from "./choice.ts";
import {
  assertNothingIn,
  assertRoom,
  cannotWrite,
  copyHashed,
  isInside,
  removeTree,
  syncFolder,
  syncTree,
  writeCompressed,
  writePrivate,
} from "./files.ts";
import {
  assertListable,
  FILES,
  MANIFEST,
  MANIFEST_SUM,
  manifestTexts,
  productVersion,
  SCHEMA_VERSION,
  SECRETS,
  sha256,
  tablePath,
  type BackupFile,
  type Manifest,
} from "./manifest.ts";
import { databaseGone } from "./stack-database.ts";
import { Staging, UNFINISHED } from "./staging.ts";

export interface BackupOptions {
  /** The folder to make. */
  readonly to: string;
  readonly dataDirectory: string;
  readonly databaseUrl: string;
  readonly signal: AbortSignal;
  /** What is done now. */
  readonly onProgress?: (what: string, doneBytes?: number, allBytes?: number) => void;
}

/** So many snapshots are taken until files and database are of one moment. */
const MOST_SNAPSHOTS = 12;
const PAUSE_MILLISECONDS = 250;

async function assertTarget({ to, dataDirectory }: BackupOptions): Promise<string> {
  const path = resolve(to);
  if (isInside(path, resolve(dataDirectory)))
    throw new ProblemError("bad-request", `${path} lies in the data directory`, [
      {
        field: "to",
        value: path,
        message: "lies in the data directory, and would be lost with it",
        remedy: "choose a folder elsewhere, best on another disk",
      },
    ]);
  await assertNothingIn("to", path, "name a folder that is not there yet, or an empty one");
  return path;
}

const tooFast = (open: readonly { readonly jobId: string; readonly step: number }[]): ProblemError =>
  new ProblemError(
    "unavailable",
    `in ${MOST_SNAPSHOTS} snapshots, checkpoints were removed before they could be held fast`,
    open.map(({ jobId, step }) => ({
      field: "checkpointing",
      value: jobId,
      message: `job ${jobId} replaces its checkpoints so fast that the one of step ${step} is gone`,
      remedy: "back up again; if it comes again, keep more checkpoints (checkpointing.keepLast)",
    })),
  );

/** A snapshot, whose files are held fast. */
interface Held {
  readonly snapshot: Snapshot;
  readonly checkpoints: number;
  readonly warnings: readonly string[];
}

const lostWords = ({ jobId, step }: { readonly jobId: string; readonly step: number }): string =>
  `job ${jobId}: its checkpoint of step ${step} was not there; it would go on from an older one, or from its beginning`;

/** Takes snapshots until the files of one are held fast. What each job must have is in {@link chooseCheckpoints}. */
async function holdMoment(reader: SnapshotReader, staging: Staging, signal: AbortSignal): Promise<Held> {
  const missing = new Missing();
  /** Jobs at rest, as they were when their files were held: these change no more. */
  const resting = new Map<string, string>();
  const restOf = (stand: JobStand): string => `${stand.state} ${stand.attempt} ${announcedStep(stand)}`;
  /** Jobs that replaced a checkpoint before it was held. */
  let fast: readonly string[] = [];
  for (let tries = 1; ; tries += 1) {
    signal.throwIfAborted();
    const snapshot = await staging.whileStaging(fast, () => reader.take());
    for (const stand of snapshot.jobs) {
      if (resting.get(stand.jobId) === restOf(stand)) continue;
      await staging.stageJob(stand);
      if (isTerminal(stand.state)) resting.set(stand.jobId, restOf(stand));
    }
    for (const id of snapshot.workloadIds) await staging.stageMeasured(id);
    const choices = [];
    for (const stand of snapshot.jobs)
      choices.push({
        stand,
        ...chooseCheckpoints(stand, await staging.steps(stand.jobId), staging.there(stand.jobId)),
      });
    const { lost, open } = missing.look(choices);
    if (open.length > 0) {
      if (tries === MOST_SNAPSHOTS) throw tooFast(open);
      fast = open.map(({ jobId }) => jobId);
      await sleep(PAUSE_MILLISECONDS, undefined, { signal });
      continue;
    }
    for (const { stand, kept } of choices) {
      const steps = await staging.steps(stand.jobId);
      await staging.drop(
        stand.jobId,
        steps.filter((step) => !kept.includes(step)),
      );
    }
    return {
      snapshot,
      checkpoints: choices.reduce((sum, { kept }) => sum + kept.length, 0),
      warnings: [
        ...lost.map(lostWords),
        ...staging.leftOut.map((path) => `${path} is no ordinary file, or has an odd name: it was left out`),
      ],
    };
  }
}

type Contents = Pick<Manifest, "tables" | "sequences" | "files">;

/** Copies all tables of the snapshot, and lets go of it. */
async function copyDatabase(
  reader: SnapshotReader,
  snapshot: Snapshot,
  into: string,
  { signal, onProgress }: BackupOptions,
): Promise<{ readonly contents: Contents; readonly warnings: readonly string[] }> {
  const tables = [];
  const files = [];
  const { own, others } = await reader.tables(snapshot);
  for (const table of own) {
    onProgress?.(`table ${table.name}`);
    const path = tablePath(table.name);
    let rows = 0;
    const copied = await writeCompressed(join(into, path), signal, async (sink) => {
      rows = await reader.copyTable(table, sink);
    });
    tables.push({ ...table, columns: [...table.columns], rows });
    files.push({ path, ...copied });
  }
  const sequences = await reader.sequences(own);
  await reader.release();
  return {
    contents: { tables, sequences: [...sequences], files },
    warnings: others.map((name) => `table ${name} is not InternEvo's, and was left out`),
  };
}

async function copyFiles(
  root: string,
  staged: readonly { readonly path: string; readonly bytes: number }[],
  into: string,
  { signal, onProgress }: BackupOptions,
): Promise<readonly BackupFile[]> {
  const all = staged.reduce((sum, { bytes }) => sum + bytes, 0);
  const files: BackupFile[] = [];
  let done = 0;
  for (const { path } of staged) {
    onProgress?.("files", done, all);
    const copied = await copyHashed(join(root, path), join(into, FILES, path), signal);
    files.push({ path: `${FILES}/${path}`, ...copied });
    done += copied.bytes;
  }
  return files;
}

/** Tokens and passwords go on working; ports are chosen anew where they are taken. */
async function copySecrets(dataDirectory: string, into: string): Promise<readonly BackupFile[]> {
  const secrets = readSecrets(dataDirectory);
  if (secrets === undefined) return [];
  const text = `${JSON.stringify(secrets, null, 2)}\n`;
  await writePrivate(join(into, SECRETS), text);
  return [{ path: SECRETS, bytes: Buffer.byteLength(text), sha256: sha256(text) }];
}

/** Where the data directory is, in the words that job files may have for it. */
const namesOf = (dataDirectory: string): string[] => [
  ...new Set([resolve(dataDirectory), realpathSync(dataDirectory)]),
];

function manifestOf(
  { snapshot, checkpoints, warnings }: Held,
  contents: Contents,
  names: string[],
): Manifest {
  const { jobs, workloadIds, takenAt, serverVersion, migration } = snapshot;
  const { files } = contents;
  return {
    schemaVersion: SCHEMA_VERSION,
    productVersion,
    takenAt,
    finishedAt: new Date().toISOString(),
    postgresVersion: serverVersion,
    migration,
    dataDirectory: names,
    counts: {
      jobs: jobs.length,
      unfinishedJobs: jobs.filter(({ state }) => !isTerminal(state)).length,
      workloads: workloadIds.length,
      checkpoints,
      files: files.length,
      bytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
    },
    ...contents,
    warnings: [...warnings],
  };
}

/** Writes a whole backup into a folder, its manifest last. */
async function fill(
  into: string,
  reader: SnapshotReader,
  staging: Staging,
  options: BackupOptions,
): Promise<Manifest> {
  const { signal, dataDirectory, onProgress } = options;
  onProgress?.("snapshot");
  const held = await holdMoment(reader, staging, signal);
  const staged = await staging.files();
  assertListable(staged.map(({ path, bytes: size }) => ({ path: `${FILES}/${path}`, bytes: size })));
  const bytes = staged.reduce((sum, file) => sum + file.bytes, 0);
  await assertRoom("to", dirname(into), bytes + held.snapshot.databaseBytes);
  await mkdir(into, { mode: 0o700 });
  const { contents, warnings } = await copyDatabase(reader, held.snapshot, into, options);
  const copied = await copyFiles(staging.root, staged, into, options);
  const secrets = await copySecrets(dataDirectory, into);
  const manifest = manifestOf(
    { ...held, warnings: [...held.warnings, ...warnings] },
    { ...contents, files: [...contents.files, ...copied, ...secrets] },
    namesOf(dataDirectory),
  );
  const texts = manifestTexts(manifest);
  await writePrivate(join(into, MANIFEST), texts.manifest);
  await writePrivate(join(into, MANIFEST_SUM), texts.sum);
  await syncTree(into);
  return manifest;
}

const busy = (dataDirectory: string): ProblemError =>
  new ProblemError("conflict", "another backup of this installation is being taken", [
    {
      field: "dataDirectory",
      value: dataDirectory,
      message: "is being backed up",
      remedy: "wait until that backup has ended",
    },
  ]);

/**
 * Backs up database and files of one moment, while others write to both. The folder appears whole, or not at
 * all.
 * @throws ProblemError `conflict` for a folder that is not empty, or while another backup runs; `bad-request`
 * where it cannot be written, has no room, or would have more files than a manifest lists; `unavailable` where the
 * database does not answer, or checkpoints are replaced too fast; the signal's reason. What was begun is removed
 * then.
 */
export async function backUp(options: BackupOptions): Promise<Manifest> {
  const { dataDirectory, databaseUrl } = options;
  const to = await assertTarget(options);
  const half = join(dirname(to), `.${basename(to)}.${randomUUID()}${UNFINISHED}`);
  const staging = new Staging(resolve(dataDirectory));
  let reader: SnapshotReader | undefined;
  // A large table would be read to its end.
  const stopReading = (): void => void reader?.close();
  try {
    reader = await SnapshotReader.open(databaseUrl);
    options.signal.addEventListener("abort", stopReading, { once: true });
    if (!(await reader.lock())) throw busy(dataDirectory);
    try {
      await mkdir(dirname(to), { recursive: true, mode: 0o700 });
      await staging.prepare(half);
      const manifest = await fill(half, reader, staging, options);
      options.signal.throwIfAborted();
      await rename(half, to);
      await syncFolder(dirname(to));
      return manifest;
    } finally {
      await removeTree(half);
      await staging.remove();
    }
  } catch (error) {
    options.signal.throwIfAborted();
    throw cannotWrite("to", to, databaseGone(error), dirname(to));
  } finally {
    options.signal.removeEventListener("abort", stopReading);
    await reader?.close();
  }
}
