import { formatBytes, parseBytes, ProblemError, type JobSpec } from "@internevo/domain";
import { InvalidArgumentError, Option } from "commander";

/** Memory of each GPU that plans leave free: for what fragments, and for what a prediction misses. */
export interface Headroom {
  /** As it was written. */
  readonly text: string;
  readonly bytesOf: (memoryPerGpuBytes: number) => number;
}

function headroomArgument(text: string): Headroom {
  const percent = Number(/^(\d+(?:\.\d+)?)\s*%$/.exec(text.trim())?.[1] ?? Number.NaN);
  if (percent < 100) return { text, bytesOf: (memory) => Math.ceil((memory * percent) / 100) };
  // A number without a unit would be bytes, which nobody means.
  const bytes = /[A-Za-z]\s*$/.test(text) ? parseBytes(text) : undefined;
  if (bytes === undefined)
    throw new InvalidArgumentError(
      "give a share below 100%, such as 5%, or a size with its unit, such as 4GB.",
    );
  return { text, bytesOf: () => bytes };
}

export const headroomOption = (): Option =>
  new Option(
    "--headroom <share or size>",
    "memory of each GPU that plans leave free, e.g. 5% or 4GB; default: none",
  ).argParser(headroomArgument);

/** The job on GPUs with so much less memory. @throws ProblemError `bad-request` when nothing would be left */
export function withHeadroom(job: JobSpec, headroom: Headroom | undefined): JobSpec {
  if (headroom === undefined) return job;
  const { memoryPerGpuBytes: memory } = job.cluster;
  const memoryPerGpuBytes = memory - headroom.bytesOf(memory);
  if (memoryPerGpuBytes < 1)
    throw new ProblemError("bad-request", `--headroom ${headroom.text} leaves no memory`, [
      {
        field: "--headroom",
        value: headroom.text,
        message: `is all of the ${formatBytes(memory)} of a GPU`,
        remedy: "give less",
      },
    ]);
  return { ...job, cluster: { ...job.cluster, memoryPerGpuBytes } };
}
