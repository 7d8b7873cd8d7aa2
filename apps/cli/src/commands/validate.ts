import { describeJob, resolveJob, type JobSpec } from "@internevo/domain";
import type { Command } from "commander";
import { stringify } from "yaml";
import type { Context } from "../context.ts";
import { readJobFile } from "../job-input.ts";
import type { Output } from "../output.ts";

/**
 * The job that a file stands for, every default filled in. Its data and weights are read where jobs run, when it is submitted.
 * @param path of a job file, `-` for standard input.
 * @throws ProblemError `job-invalid`, with one detail a fault.
 */
export const validateCommand = async (path: string): Promise<JobSpec> => resolveJob(await readJobFile(path));

/** Writes a resolved job: one JSON document, or a line about it on standard error and the job as YAML. */
export function showJob(spec: JobSpec, output: Output): void {
  if (output.json) return output.document(spec);
  output.data(stringify(spec).trimEnd());
  output.note(`valid: ${describeJob(spec)}`);
}

export function addValidate(program: Command, context: Context): void {
  program
    .command("validate")
    .description("check a job file, and show the job with every default: no service is needed")
    .argument("<job>", "job file, YAML or JSON; - for standard input")
    .action(async (job: string) => showJob(await validateCommand(job), context.output()));
}
