import type { JobSpec } from "./job.ts";
import { ProblemError, type ProblemDetail } from "./problem.ts";
import { readPercent } from "./share.ts";
import { formatBytes, parseBytes } from "./units.ts";

/** Memory of each GPU that plans leave free: for what fragments, and for what a prediction misses. */
export interface Headroom {
  /** As it was written. */
  readonly text: string;
  readonly bytesOf: (memoryPerGpuBytes: number) => number;
}

/** How a headroom is written, for whoever wrote another text. */
export const HEADROOM_REMEDY = "give a share below 100%, such as 5%, or a size with its unit, such as 4GB";

/** Reads `5%` or `4GB`. @returns undefined for a text that is neither */
export function readHeadroom(text: string): Headroom | undefined {
  const percent = readPercent(text);
  if (percent !== undefined && percent >= 0 && percent < 100)
    return { text, bytesOf: (memory) => Math.ceil((memory * percent) / 100) };
  // A number without a unit would be bytes, which nobody means.
  const bytes = /[A-Za-z]\s*$/.test(text) ? parseBytes(text) : undefined;
  return bytes === undefined ? undefined : { text, bytesOf: () => bytes };
}

/** Why a job's headroom is none; undefined where it is one. */
export function headroomFault(text: string, memoryPerGpuBytes: number): ProblemDetail | undefined {
  const headroom = readHeadroom(text);
  if (headroom === undefined)
    return {
      field: "headroom",
      value: text,
      message: "is neither a share nor a size",
      remedy: HEADROOM_REMEDY,
    };
  return headroom.bytesOf(memoryPerGpuBytes) < memoryPerGpuBytes
    ? undefined
    : {
        field: "headroom",
        value: text,
        message: `is all of the ${formatBytes(memoryPerGpuBytes)} of a GPU`,
        remedy: "give less",
      };
}

/** Bytes of each GPU that a job's plans may use: all but its headroom. */
export function plannedMemoryBytes({ cluster, headroom }: Pick<JobSpec, "cluster" | "headroom">): number {
  const kept = headroom === undefined ? undefined : readHeadroom(headroom);
  return cluster.memoryPerGpuBytes - (kept?.bytesOf(cluster.memoryPerGpuBytes) ?? 0);
}

/** What a job's headroom took of its memory, behind a size; empty where there is none. */
export const takenByHeadroom = ({ cluster, headroom }: Pick<JobSpec, "cluster" | "headroom">): string =>
  headroom === undefined
    ? ""
    : `, which headroom ${headroom} leaves of ${formatBytes(cluster.memoryPerGpuBytes)}`;

/** Why a job needs more than it has: its headroom, where so many bytes would fit without it, or its GPUs' memory. */
export const tooLittleMemory = (
  { cluster, headroom }: Pick<JobSpec, "cluster" | "headroom">,
  neededBytes: number,
): "headroom" | "cluster.memoryPerGpu" =>
  headroom !== undefined && neededBytes <= cluster.memoryPerGpuBytes ? "headroom" : "cluster.memoryPerGpu";

/** The job on GPUs that have what its plans may use, so that nothing is left to keep free. */
export function withoutHeadroom(job: JobSpec): JobSpec {
  if (job.headroom === undefined) return job;
  const { headroom: _kept, ...rest } = job;
  return { ...rest, cluster: { ...rest.cluster, memoryPerGpuBytes: plannedMemoryBytes(job) } };
}

/**
 * The job on GPUs with so much less memory, in place of its own headroom. @param field that names the headroom. @throws ProblemError
 * `bad-request` when nothing would be left
 */
export function withHeadroom(job: JobSpec, headroom: Headroom | undefined, field: string): JobSpec {
  if (headroom === undefined) return job;
  const { memoryPerGpuBytes: memory } = job.cluster;
  const memoryPerGpuBytes = memory - headroom.bytesOf(memory);
  if (memoryPerGpuBytes < 1)
    throw new ProblemError("bad-request", `${field} ${headroom.text} leaves no memory`, [
      {
        field,
        value: headroom.text,
        message: `is all of the ${formatBytes(memory)} of a GPU`,
        remedy: "give less",
      },
    ]);
  const { headroom: _own, ...rest } = job;
  return { ...rest, cluster: { ...job.cluster, memoryPerGpuBytes } };
}

/**
 * A sweep of memory varies what a headroom keeps free. @throws ProblemError `bad-request` where both are
 * given
 */
export function assertHeadroomOfAxis(axis: string, headroom: Headroom | undefined, field: string): void {
  if (axis !== "memory" || headroom === undefined) return;
  throw new ProblemError("bad-request", `a sweep of memory varies what ${field} keeps free`, [
    {
      field,
      value: headroom.text,
      message: "does not belong to the axis memory",
      remedy: "leave it out, and give values without the memory that is to stay free",
    },
  ]);
}
