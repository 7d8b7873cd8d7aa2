import { printableJson, ProblemError } from "@internevo/domain";
import { InvalidArgumentError } from "commander";
import { parseJobDocument } from "./job-document.ts";

/** A change of a job file: the field, as `optimizer.peakLearningRate`, and its value; without one it is left out. */
export interface JobChange {
  readonly field: string;
  readonly value?: unknown;
}

const FIELD = /^[^\s.=]+(?:\.[^\s.=]+)*$/;

/** The values of `--set`, one after the other: YAML, as in a job file. */
export function setArgument(text: string, before: readonly JobChange[] = []): readonly JobChange[] {
  const [, field = "", value = ""] = /^([^=]*)=(.*)$/s.exec(text) ?? [];
  if (!FIELD.test(field))
    throw new InvalidArgumentError("give a field and its value, such as steps=2000 or optimizer.beta2=0.99.");
  return [...before, { field, value: parseJobDocument(value, `--set ${field}`) }];
}

/** The fields of `--unset`, one after the other. */
export function unsetArgument(text: string, before: readonly JobChange[] = []): readonly JobChange[] {
  if (!FIELD.test(text)) throw new InvalidArgumentError("give a field, such as plan or data.packing.");
  return [...before, { field: text }];
}

const refuse = (field: string, value: unknown, message: string, remedy: string): never => {
  throw new ProblemError("job-invalid", `${field} cannot be changed so: it ${message}`, [
    { field, ...(value === undefined ? {} : { value }), message, remedy },
  ]);
};

function changedList(
  list: readonly unknown[],
  [key = "", ...rest]: readonly string[],
  change: JobChange,
): unknown {
  const index = Number(key);
  if (!/^\d+$/.test(key) || index > list.length || (index === list.length && !("value" in change)))
    return refuse(
      change.field,
      list,
      `names no place of a list of ${list.length}`,
      "number places from 0, or give the whole list",
    );
  if (!("value" in change) && rest.length === 0) return list.toSpliced(index, 1);
  return list.toSpliced(index, 1, changed(list[index], rest, change));
}

function changed(value: unknown, path: readonly string[], change: JobChange): unknown {
  const [key, ...rest] = path;
  if (key === undefined) return change.value;
  if (Array.isArray(value)) return changedList(value, path, change);
  if (value !== undefined && (typeof value !== "object" || value === null))
    return refuse(
      change.field,
      value,
      `is below ${printableJson(value)}, which has no fields`,
      "give the field above as a whole",
    );
  const object = (value ?? {}) as Readonly<Record<string, unknown>>;
  const inner = Object.hasOwn(object, key) ? object[key] : undefined;
  if (!("value" in change) && inner === undefined)
    return refuse(
      change.field,
      undefined,
      "is not in the job's file",
      "see the file with: internevo clone JOB --out -",
    );
  if ("value" in change || rest.length > 0) return { ...object, [key]: changed(inner, rest, change) };
  const { [key]: _, ...others } = object;
  return others;
}

/** A job file with changes, in their order. @throws ProblemError `job-invalid` for a field that cannot be there */
export const withChanges = (job: unknown, changes: readonly JobChange[]): unknown =>
  changes.reduce((file, change) => changed(file, change.field.split("."), change), job);
