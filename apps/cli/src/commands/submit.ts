import type { Command } from "commander";
import type { Context } from "../context.ts";
import { readJobFile } from "../job-input.ts";
import { addSubmissionOptions, submitAndShow, type SubmissionOptions } from "../submission.ts";

export function addSubmit(program: Command, context: Context): void {
  const command = program
    .command("submit")
    .description("submit a job: it is profiled, planned, tried and trained")
    .argument("<job>", "job file (YAML or JSON); - reads standard input");
  addSubmissionOptions(command).action(async (path: string, options: SubmissionOptions) => {
    const file = await readJobFile(path);
    await submitAndShow(file, options, await context.client(), context);
  });
}
