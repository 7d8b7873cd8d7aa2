import { existsSync } from "node:fs";
import type { JobDetail } from "@internevo/contracts";
import { listedPlan, resolveJob, type JobSpec, type Plan } from "@internevo/domain";
import type { Context } from "./context.ts";
import { withDocuments } from "./job-documents.ts";
import { readJobFile } from "./job-input.ts";
import { isRank } from "./plan-argument.ts";
import { hasPlanningOptions, type PlanningOptions } from "./planning-options.ts";
import { jobId } from "./resolve.ts";

/** How the help of a command describes a job that it takes. */
export const JOB_HELP =
  "job file, YAML or JSON (- for standard input); or a job's id, the beginning of it, or its name";

const isFile = (text: string): boolean => text === "-" || /\.(ya?ml|json)$/i.test(text) || existsSync(text);

/** A job as a command line names it. */
export interface NamedJob {
  readonly spec: JobSpec;
  /** The profile that was given, or that a submitted job was planned with. */
  readonly profile: string | undefined;
  /** A job that was submitted; null for a file. */
  readonly submitted: JobDetail | null;
}

/** A job by its file, or one that was submitted. @param profile the value of `--profile` */
export async function namedJob(
  text: string,
  profile: string | undefined,
  context: Pick<Context, "client" | "signal">,
): Promise<NamedJob> {
  if (isFile(text))
    return { spec: await withDocuments(resolveJob(await readJobFile(text))), profile, submitted: null };
  const client = await context.client();
  const submitted = await client.getJob(await jobId(client, text, context.signal), {
    signal: context.signal,
  });
  return { spec: submitted.spec, profile: profile ?? submitted.profileId ?? undefined, submitted };
}

/**
 * The plan that has a rank in the tables of a submitted job. Undefined for another way to name a plan, and where the
 * command line asks for another search: there a search says what a rank is.
 */
export function rankedPlan(
  text: string,
  { submitted }: NamedJob,
  asked: PlanningOptions & { readonly profile?: string | undefined },
): Plan | undefined {
  if (submitted === null || !isRank(text)) return undefined;
  return asked.profile !== undefined || hasPlanningOptions(asked)
    ? undefined
    : listedPlan(Number(text), submitted);
}
