import { existsSync } from "node:fs";
import { dataFiles, describeJob, printableJson, resolveJob, type JobSpec } from "@internevo/domain";
import type { Command } from "commander";
import { stringify } from "yaml";
import type { Context } from "../context.ts";
import { readJobFile } from "../job-input.ts";
import type { Output } from "../output.ts";

/**
 * The job that a file stands for, every default filled in. Its data and weights are read where jobs run, when it is submitted;
 * {@link absentHere} says what is not on this machine.
 * @param path of a job file, `-` for standard input.
 * @throws ProblemError `job-invalid`, with one detail a fault.
 */
export const validateCommand = async (path: string): Promise<JobSpec> => resolveJob(await readJobFile(path));

const MOST_ABSENT = 10;

/** What a job cannot be submitted without and this machine does not have: no fault of the job file, for the services may run elsewhere. */
export function absentHere({ data, initialWeights }: JobSpec): string[] {
  if (data === null) return ["data is missing: the job can be planned, and `internevo submit` refuses it"];
  const named = [...dataFiles(data), ...(initialWeights === undefined ? [] : [{ path: initialWeights, field: "initialWeights" }])];
  const absent = named.filter(({ path }) => !existsSync(path));
  const notes = absent.slice(0, MOST_ABSENT).map(({ path, field }) => `${field} (is ${printableJson(path)}): does not exist on this machine\n    → give a path that exists where the services run: \`internevo submit\` refuses the job otherwise`);
  return absent.length > MOST_ABSENT ? [...notes, `${absent.length - MOST_ABSENT} more files of its data do not exist on this machine`] : notes;
}

/** Writes a resolved job: one JSON document, or the job as YAML and a line about it on standard error; there also what is not here. */
export function showJob(spec: JobSpec, output: Output): void {
  if (output.json) output.document(spec);
  else {
    output.data(stringify(spec).trimEnd());
    output.note(`valid: ${describeJob(spec)}`);
  }
  for (const warning of absentHere(spec)) output.note(`warning: ${warning}`);
}

export function addValidate(program: Command, context: Context): void {
  program
    .command("validate")
    .description("check a job file, and show the job with every default: no service is needed")
    .argument("<job>", "job file, YAML or JSON; - for standard input")
    .action(async (job: string) => showJob(await validateCommand(job), context.output()));
}
