import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { isAbsent, validate } from "@internevo/domain";
import type { Static, TSchema } from "typebox";

/** Writes a record so that a reader sees all of it or nothing. */
export function writeRecordFile(path: string, record: unknown): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(`${path}.tmp`, JSON.stringify(record, null, 2));
  renameSync(`${path}.tmp`, path);
}

/** The text of a file; undefined when there is none. */
export function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (isAbsent(error)) return undefined;
    throw error;
  }
}

/**
 * The record of a file; undefined when there is none. @throws ProblemError `internal` when it is not of the
 * schema.
 */
export function readRecordFile<S extends TSchema>(schema: S, path: string): Static<S> | undefined {
  const text = readIfThere(path);
  return text === undefined ? undefined : validate(schema, JSON.parse(text), "internal", path);
}
