import { COMPARED_JOBS } from "@internevo/contracts";
import { formatCounted, ProblemError } from "@internevo/domain";
import type { Command } from "commander";
import { comparisonText } from "../compare-view.ts";
import type { Context } from "../context.ts";
import { jobId } from "../resolve.ts";
import { JOB_ARGUMENT } from "./jobs.ts";

function assertNumber(jobs: readonly string[]): void {
  const { least, most } = COMPARED_JOBS;
  if (jobs.length >= least && jobs.length <= most) return;
  throw new ProblemError("bad-request", `${formatCounted(jobs.length, "job")} cannot be compared`, [
    {
      field: "jobs",
      value: jobs.length,
      message: `is not a number of jobs from ${least} to ${most}`,
      remedy: `name ${least} to ${most} jobs`,
    },
  ]);
}

export function addCompare(program: Command, context: Context): void {
  const { least, most } = COMPARED_JOBS;
  program
    .command("compare")
    .description("what differs between jobs, of job file, plan, cluster and profile, and how they trained")
    .argument("<jobs...>", `${least} to ${most} of: ${JOB_ARGUMENT}`)
    .action(async (texts: readonly string[]) => {
      assertNumber(texts);
      const output = context.output();
      const client = await context.client();
      const ids: string[] = [];
      for (const text of texts) ids.push(await jobId(client, text, context.signal));
      const comparison = await client.compareJobs(ids, { signal: context.signal });
      if (output.json) output.document(comparison);
      else output.data(comparisonText(comparison, output.colors));
    });
}
