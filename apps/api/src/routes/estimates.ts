import type { AdviceSubject } from "@internevo/contracts";
import { shellWord, type Estimates, type JobSpec, type Profile } from "@internevo/domain";
import type { Workers } from "../work/workers.ts";

interface Estimated {
  readonly asked: Pick<AdviceSubject, "jobId" | "profile">;
  readonly subject: {
    readonly spec: JobSpec;
    readonly profile: Profile;
    /** The stored profile that a submitted job was planned with. */
    readonly profileId?: string | null;
  };
}

/** What measures the cluster: for a submitted job its profile again, else the job file that was sent. */
function remedyOf({
  asked: { jobId, profile },
  subject: { spec, profileId },
}: Estimated): Pick<Estimates, "measuredBy" | "planWith"> {
  const cluster = shellWord(spec.cluster.name);
  if (jobId !== undefined)
    return { measuredBy: `internevo profile measure ${profileId ?? cluster}`, planWith: cluster };
  const isNamed = profile !== undefined || spec.cluster.profile !== null;
  return { measuredBy: "internevo profile measure JOB.yaml", planWith: isNamed ? cluster : null };
}

/**
 * An answer with which of its figures are estimated, where some are.
 * @param planned the jobs that the answer's plans are of; none: it has no figures
 */
export async function withEstimates<Answer extends object>(
  answer: Answer,
  { asked, subject }: Estimated,
  planned: readonly JobSpec[],
  workers: Pick<Workers, "advise">,
  signal: AbortSignal,
): Promise<Answer & { estimates?: Estimates }> {
  if (planned.length === 0) return answer;
  const { spec, profile } = subject;
  const remedy = remedyOf({ asked, subject });
  const estimates = await workers.advise<"estimates">(
    { kind: "estimates", spec, profile, planned, remedy },
    signal,
  );
  return estimates === null ? answer : { ...answer, estimates };
}
