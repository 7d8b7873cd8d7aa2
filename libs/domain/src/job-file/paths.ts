import { MAXIMUM_PATHS, MAXIMUM_SOURCES } from "../data.ts";
import { formatInteger } from "../figures.ts";
import type { ProblemDetail } from "../problem.ts";

type Fields = Readonly<Record<string, unknown>>;

const isFields = (value: unknown): value is Fields => typeof value === "object" && value !== null;

interface Named {
  /** That names the paths in a job. */
  readonly field: string;
  readonly count: number;
}

/** Paths of data as it is written, which may be anything: they are counted, and none is looked at. */
function* namedIn(data: unknown, field: string): Generator<Named> {
  if (!isFields(data)) return;
  const { path, paths, sources } = data;
  if (path !== undefined) yield { field: `${field}.path`, count: 1 };
  if (Array.isArray(paths)) yield { field: `${field}.paths`, count: paths.length };
  // More of them are too many themselves, as the schema says.
  if (Array.isArray(sources))
    for (const [index, source] of sources.slice(0, MAXIMUM_SOURCES).entries())
      yield* namedIn(source, `${field}.sources.${index}`);
}

/**
 * What is wrong where a job names more than {@link MAXIMUM_PATHS} paths in all; undefined where it does not.
 * @param written a job file, not trusted
 */
export function tooManyPaths(written: unknown): ProblemDetail | undefined {
  if (!isFields(written)) return undefined;
  const { data, validation } = written;
  const heldOut = isFields(validation) ? validation["data"] : undefined;
  let count = 0;
  let beyond: string | undefined;
  for (const named of [...namedIn(data, "data"), ...namedIn(heldOut, "validation.data")]) {
    count += named.count;
    if (count > MAXIMUM_PATHS) beyond ??= named.field;
  }
  if (beyond === undefined) return undefined;
  const most = formatInteger(MAXIMUM_PATHS);
  return {
    field: beyond,
    value: count,
    message: `brings the paths of the job to ${formatInteger(count)}, and it may name ${most} in all`,
    remedy:
      `name at most ${most} paths, those of all sources and of validation.data together: ` +
      "put documents into fewer files, or use format: tokens",
  };
}
