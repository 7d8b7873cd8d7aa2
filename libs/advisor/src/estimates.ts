import { estimatedWith } from "@internevo/cost-model";
import { estimatedProfileWords, type Estimates, type JobSpec, type Profile } from "@internevo/domain";
import { assertWithinBound } from "@internevo/search";
import { jobAt, type SweepAxis } from "./sweep.ts";

/** Fields on which it depends what has to be measured, and their values. */
const VARIED: Readonly<Record<string, (job: JobSpec) => number>> = {
  "cluster.nodes": ({ cluster }) => cluster.nodes,
  sequenceLengthTokens: ({ sequenceLengthTokens }) => sequenceLengthTokens,
  globalBatchTokens: ({ globalBatchTokens }) => globalBatchTokens,
};

const NOTHING_MISSING: Pick<Estimates, "needed" | "missing" | "noisy"> = {
  needed: 0,
  missing: { modules: 0, collectives: 0, overlaps: 0, slices: 0 },
  noisy: 0,
};

/**
 * Which figures of an answer about a job are estimated; undefined where all is measured.
 * @param planned the jobs that the answer's plans are of: the job itself, or the job with fields varied
 * @param remedy what measures the job, as {@link Estimates} has it
 * @throws what ends the searches of this thread, where their time is over or nobody waits
 */
export function estimatesOf(
  job: JobSpec,
  planned: readonly JobSpec[],
  profile: Profile,
  remedy: Pick<Estimates, "measuredBy" | "planWith">,
): Estimates | undefined {
  const estimated = estimatedWith(planned, profile, assertWithinBound);
  const estimatedProfile = estimatedProfileWords(profile, job.cluster);
  if (estimated === undefined && (estimatedProfile === undefined || planned.length === 0)) return undefined;
  const varies = Object.entries(VARIED).flatMap(([field, valueOf]) =>
    planned.some((other) => valueOf(other) !== valueOf(job)) ? [field] : [],
  );
  return {
    profile: profile.name,
    ...(estimated ?? NOTHING_MISSING),
    ...(estimatedProfile === undefined ? {} : { estimatedProfile }),
    ...remedy,
    ...(varies.length === 0 ? {} : { varies }),
  };
}

/** The jobs that the rows of a sweep with a plan are of. */
export const sweptJobs = (
  job: JobSpec,
  axis: SweepAxis,
  rows: readonly { readonly value: number; readonly best: unknown }[],
): JobSpec[] => rows.flatMap(({ value, best }) => (best === null ? [] : [jobAt(job, axis, value)]));
