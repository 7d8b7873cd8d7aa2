import { resolveJob } from "./job-file.ts";
import type { JobSpec } from "./job.ts";
import { beginningOf } from "./text.ts";
import { writtenJob } from "./written-job.ts";

/** A job's name has at most 100 characters, and what is cut ends with one more. */
const LONGEST_NAME = 99;

/** The name of a job that measures for a job or a cluster of this name. */
export const measuringName = (name: string): string => beginningOf(`measure ${name}`, LONGEST_NAME);

/**
 * A job that measures what another one needs, and ends then. It keeps what decides which points are measured,
 * and where: the model's sizes, lengths, precision and cluster. Who sees the measurement need not see the rest.
 */
export function measuringJob(measured: JobSpec): JobSpec {
  const { sequenceLengthTokens, globalBatchTokens, precision, cluster } = writtenJob(measured);
  const { name: _, ropeTheta: _theta, ropeScaling: _scaling, normEpsilon: _e, ...rest } = measured.model;
  const { initStandardDeviation: _deviation, ...model } = rest;
  return resolveJob({
    name: measuringName(measured.cluster.name),
    model,
    sequenceLengthTokens,
    globalBatchTokens,
    precision,
    cluster,
    measureAgain: true,
    until: "profiling",
  });
}
