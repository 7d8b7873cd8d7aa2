import { constants } from "node:buffer";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { isAbsent, ProblemError, validate } from "@internevo/domain";
import { isKnownMigration } from "@internevo/store";
import { Type, type Static } from "typebox";
import { damaged, piecesOf } from "./files.ts";
import { isFileOfJobs } from "./shapes.ts";

export const MANIFEST = "manifest.json";
/** As `sha256sum --check` reads it. */
export const MANIFEST_SUM = "manifest.json.sha256";
export const SECRETS = "secrets.json";
export const FILES = "files";
export const tablePath = (table: string): string => join("database", `${table}.copy.gz`);

/** Of this format. A change that older versions cannot read gets the next number. */
export const SCHEMA_VERSION = 1;

export const productVersion = (
  JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as { version: string }
).version;

const strict = { additionalProperties: false } as const;
const count = Type.Integer({ minimum: 0 });

const FileSchema = Type.Object(
  {
    /** In the backup, with slashes. */
    path: Type.String({ pattern: "^(?!/)(?!.*(^|/)\\.{1,2}(/|$)).+$" }),
    bytes: count,
    sha256: Type.String({ pattern: "^[0-9a-f]{64}$" }),
  },
  strict,
);
export type BackupFile = Static<typeof FileSchema>;

const ManifestSchema = Type.Object(
  {
    schemaVersion: Type.Literal(SCHEMA_VERSION),
    productVersion: Type.String(),
    /** The moment that database and files are of, ISO 8601. */
    takenAt: Type.String({ pattern: "^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}\\.\\d{3}Z$" }),
    finishedAt: Type.String(),
    postgresVersion: Type.String(),
    migration: Type.Object({ createdAt: Type.Number(), hash: Type.String() }, strict),
    /** Where the data directory was, as it was named and as it is without links. */
    dataDirectory: Type.Array(Type.String(), { minItems: 1 }),
    counts: Type.Object(
      {
        jobs: count,
        unfinishedJobs: count,
        workloads: count,
        checkpoints: count,
        files: count,
        bytes: count,
      },
      strict,
    ),
    tables: Type.Array(
      Type.Object(
        {
          name: Type.String({ pattern: "^[a-z_][a-z0-9_]{0,62}$" }),
          columns: Type.Array(Type.String()),
          rows: count,
        },
        strict,
      ),
    ),
    sequences: Type.Array(
      Type.Object({ name: Type.String(), value: Type.String({ pattern: "^\\d+$" }) }, strict),
    ),
    files: Type.Array(FileSchema),
    /** In words: what could not be taken along. */
    warnings: Type.Array(Type.String()),
  },
  strict,
);
export type Manifest = Static<typeof ManifestSchema>;

/** As hexadecimal digits. */
export const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

/** A manifest is read as one text, and no text is longer. That is more than two million files. */
export const MOST_MANIFEST_BYTES = constants.MAX_STRING_LENGTH;

const tooManyFiles = (files: number): ProblemError =>
  new ProblemError("bad-request", `the installation has too many files for one backup: ${files}`, [
    {
      field: "files",
      value: files,
      message: `make a manifest of more than the ${MOST_MANIFEST_BYTES} bytes that can be read`,
      remedy:
        "remove what ended jobs left, with internevo retention, or move exports of many files out of the data " +
        "directory; then back up again",
    },
  ]);

/**
 * Checks that so many files can be listed, before they are copied. @param paths in the backup, with their sizes
 * @throws ProblemError `bad-request`
 */
export function assertListable(files: readonly Omit<BackupFile, "sha256">[]): void {
  const sum = "0".repeat(64);
  let bytes = 0;
  for (const { path, bytes: size } of files)
    bytes += Buffer.byteLength(JSON.stringify({ path, bytes: size, sha256: sum }));
  if (bytes > MOST_MANIFEST_BYTES) throw tooManyFiles(files.length);
}

/**
 * The manifest's file, and that of its sum. @throws ProblemError `bad-request` for one that could not be read again
 */
export function manifestTexts(manifest: Manifest): { readonly manifest: string; readonly sum: string } {
  let text: string;
  try {
    text = `${JSON.stringify(manifest, null, 1)}\n`;
  } catch (error) {
    // A text that would be too long.
    if (error instanceof RangeError) throw tooManyFiles(manifest.files.length);
    throw error;
  }
  if (Buffer.byteLength(text) > MOST_MANIFEST_BYTES) throw tooManyFiles(manifest.files.length);
  return { manifest: text, sum: `${sha256(text)}  ${MANIFEST}\n` };
}

/**
 * A backup has these files and no others. What it could plant beside the files of jobs would be run: a
 * database with a command of its own, for example.
 */
function assertShapes({ tables, files }: Manifest, from: string): void {
  const own = new Set([SECRETS, ...tables.map(({ name }) => tablePath(name))]);
  const isFile = (path: string): boolean =>
    own.has(path) || (path.startsWith(`${FILES}/`) && isFileOfJobs(path.slice(FILES.length + 1)));
  const odd = files.find(({ path }) => !isFile(path));
  if (odd) throw damaged(join(from, odd.path), "is what no backup has");
  const listed = new Set(files.map(({ path }) => path));
  const lacking = tables.find(({ name }) => !listed.has(tablePath(name)));
  if (lacking) throw damaged(join(from, tablePath(lacking.name)), "is not among the files of the manifest");
}

const newer = (from: string, field: string, value: string | number, known: string | number): ProblemError =>
  new ProblemError("conflict", `the backup ${from} is of a newer version of InternEvo`, [
    {
      field,
      value,
      message: `is newer than this version's ${known}`,
      remedy: "restore it with the version that took it, or a newer one",
    },
  ]);

const numbers = (version: string): readonly number[] => version.split(".").map(Number);

/** Whether a version, such as 0.2.0, is newer than another. */
export function isNewer(version: string, than: string): boolean {
  const [a, b] = [numbers(version), numbers(than)];
  const at = a.findIndex((part, index) => part !== b[index]);
  return at >= 0 && (a[at] ?? 0) > (b[at] ?? 0);
}

/** A file that fits into memory, as text. */
export async function readText(path: string, atMost = MOST_MANIFEST_BYTES): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of piecesOf(path, atMost)) pieces.push(Buffer.from(piece));
  return Buffer.concat(pieces).toString("utf8");
}

async function readOwnText(path: string, from: string): Promise<string> {
  try {
    return await readText(path);
  } catch (error) {
    if (!isAbsent(error)) throw error;
    throw new ProblemError("not-found", `${from} is no backup: it has no ${MANIFEST}`, [
      {
        field: "from",
        value: from,
        message: `has no ${MANIFEST}, or no ${MANIFEST_SUM}`,
        remedy: "name the folder that `internevo backup` made",
      },
    ]);
  }
}

/**
 * Reads a backup's manifest. @throws ProblemError `not-found` where there is none, `data-invalid` for a damaged
 * one and one with files that no backup has, `conflict` for one of a newer version.
 */
export async function readManifest(from: string): Promise<Manifest> {
  const path = join(from, MANIFEST);
  const text = await readOwnText(path, from);
  const sum = await readOwnText(join(from, MANIFEST_SUM), from);
  if (sum !== `${sha256(text)}  ${MANIFEST}\n`) throw damaged(path, "is damaged: its SHA-256 is another");
  const document = JSON.parse(text) as Partial<Record<keyof Manifest, unknown>>;
  const { schemaVersion } = document;
  if (typeof schemaVersion === "number" && schemaVersion > SCHEMA_VERSION)
    throw newer(from, "schemaVersion", schemaVersion, SCHEMA_VERSION);
  const manifest = validate(ManifestSchema, document, "data-invalid", path);
  if (isNewer(manifest.productVersion, productVersion))
    throw newer(from, "productVersion", manifest.productVersion, productVersion);
  if (!isKnownMigration(manifest.migration))
    throw newer(from, "migration", manifest.migration.hash, "migrations, among which it is not");
  assertShapes(manifest, from);
  return manifest;
}

/** What a file must be. @throws ProblemError `data-invalid` */
export function assertSame(path: string, expected: BackupFile, found: Omit<BackupFile, "path">): void {
  if (found.bytes !== expected.bytes)
    throw damaged(path, `is damaged: it has ${found.bytes} bytes, and not ${expected.bytes}`);
  if (found.sha256 !== expected.sha256) throw damaged(path, "is damaged: its SHA-256 is another");
}

/** A file of the backup that is not there. */
export const missingFile = (path: string): ProblemError => damaged(path, "is missing");
