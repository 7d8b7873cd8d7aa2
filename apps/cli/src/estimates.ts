import { estimatesOf } from "@internevo/advisor";
import { shellWord, type Estimates, type JobSpec, type Profile } from "@internevo/domain";
import type { NamedJob } from "./named-job.ts";

type Remedy = Pick<Estimates, "measuredBy" | "planWith">;

/** What measures a job's cluster for its file. @param profile the value of `--profile` */
export const measuredByFile = (path: string, job: JobSpec, profile: string | undefined): Remedy => ({
  measuredBy: `internevo profile measure ${shellWord(path)}`,
  // A job that names no profile is planned with the newest of its cluster.
  planWith: profile !== undefined || job.cluster.profile !== null ? shellWord(job.cluster.name) : null,
});

/** Says which figures about a job are estimated. @param planned see {@link estimatesOf} */
export type EstimatesFor = (planned: readonly JobSpec[]) => Estimates | undefined;

/** @param text the job as the command line names it @param given the value of `--profile` */
export function estimatesFor(
  text: string,
  { spec, submitted }: NamedJob,
  given: string | undefined,
  profile: Profile,
): EstimatesFor {
  const cluster = shellWord(spec.cluster.name);
  const remedy =
    submitted === null
      ? measuredByFile(text, spec, given)
      : { measuredBy: `internevo profile measure ${submitted.profileId ?? cluster}`, planWith: cluster };
  return (planned) => estimatesOf(spec, planned, profile, remedy);
}
