import { formatBytes, ProblemError, termWords, writeBytes, type JobSpec } from "@internevo/domain";

/** As the trainer says it: "the plan needs 9 bytes a rank; memoryLimitBytes is 8: parameters 5, runtime 4". */
const TOO_MUCH = /^the plan needs (\d+) bytes a rank; memoryLimitBytes is (\d+): (.+)$/;
/** Lines that are named; the rest are summed. */
const NAMED = 4;

interface Line {
  readonly name: string;
  readonly bytes: number;
}

/** Of "parameters 5, runtime 4". */
const linesIn = (list: string): readonly Line[] =>
  list
    .split(", ")
    .map((each) => each.split(" "))
    .map(([name = "", bytes]) => ({ name, bytes: Number(bytes) }));

/** The largest lines, and the rest as one. */
function linesText(all: readonly Line[]): string {
  const lines = all.filter(({ bytes }) => bytes > 0).sort((a, b) => b.bytes - a.bytes);
  const rest = lines.slice(NAMED).reduce((sum, { bytes }) => sum + bytes, 0);
  return [
    ...lines.slice(0, NAMED).map(({ name, bytes }) => `${termWords(name)} ${formatBytes(bytes)}`),
    ...(rest > 0 ? [`all else ${formatBytes(rest)}`] : []),
  ].join(", ");
}

/**
 * What the trainer says of a plan that does not fit, in the words and fields of jobs; undefined where it says
 * something else.
 */
export function doesNotFit(message: string, { cluster }: Pick<JobSpec, "cluster">): ProblemError | undefined {
  const [, needed, limit, lines] = TOO_MUCH.exec(message) ?? [];
  if (needed === undefined || limit === undefined || lines === undefined) return undefined;
  return tooLittleMemory(Number(needed), Number(limit), linesIn(lines), { cluster });
}

/**
 * That a plan needs more than a job's GPUs have for it. @param lines of what it needs, in any order @param
 * limitBytes less than a GPU's memory where some is kept free
 */
export function tooLittleMemory(
  neededBytes: number,
  limitBytes: number,
  lines: readonly Line[],
  { cluster }: Pick<JobSpec, "cluster">,
): ProblemError {
  const over = neededBytes - limitBytes;
  const isLess = limitBytes < cluster.memoryPerGpuBytes;
  return new ProblemError(
    "no-feasible-plan",
    `the plan does not fit: it needs ${formatBytes(neededBytes)} a rank, ${formatBytes(over)} more than ${isLess ? `the ${formatBytes(limitBytes)} that its headroom leaves of a GPU` : "a GPU has"}`,
    [
      {
        field: "cluster.memoryPerGpu",
        value: writeBytes(cluster.memoryPerGpuBytes),
        message: `is too little for ${linesText(lines)}`,
        remedy: "use more ranks, more sharding, recomputation or a smaller micro-batch",
      },
    ],
  );
}
