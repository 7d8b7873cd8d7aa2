import { resolveJob, type JobFile } from "@internevo/domain";
import type { Command } from "commander";
import { stringify } from "yaml";
import type { Context } from "../context.ts";
import { setArgument, unsetArgument, withChanges, type JobChange } from "../job-changes.ts";
import { withAbsolutePaths } from "../job-input.ts";
import { writeNew } from "../new-files.ts";
import { jobId } from "../resolve.ts";
import { addSubmissionOptions, asOptionsSay, submitAndShow, type SubmissionOptions } from "../submission.ts";
import { JOB_ARGUMENT } from "./jobs.ts";

interface Options extends SubmissionOptions {
  readonly set?: readonly JobChange[];
  readonly unset?: readonly JobChange[];
  readonly name?: string;
  readonly out?: string;
}

/** A job file as text, in what the file's name says: JSON, or else YAML. */
const textOf = (file: unknown, name: string): string =>
  name.endsWith(".json") ? `${JSON.stringify(file, null, 2)}\n` : stringify(file);

/** Writes a job file that can be submitted, or shows it for `-`. @throws ProblemError `job-invalid` */
async function writeJob(file: unknown, path: string, context: Context): Promise<void> {
  const output = context.output();
  resolveJob(file);
  const written = path === "-" ? [] : await writeNew([{ name: path, text: textOf(file, path) }]);
  if (output.json) output.document(file);
  else if (path === "-") output.data(stringify(file).trimEnd());
  for (const place of written) output.note(`written: ${place}`);
}

export function addClone(program: Command, context: Context): void {
  const command = program
    .command("clone")
    .description("submit a job's file again, with changes, or write it")
    .argument("<job>", JOB_ARGUMENT)
    .option(
      "--set <field=value>",
      "another value of a field, in YAML, e.g. steps=2000 or optimizer.peakLearningRate=1e-4; again for another field",
      setArgument,
    )
    .option("--unset <field>", "leave a field out, e.g. plan; again for another field", unsetArgument)
    .option("--name <name>", "of the new job; default: the same")
    .option("--out <file>", "write the job file, and submit nothing; - for standard output");
  addSubmissionOptions(command).action(async (text: string, options: Options) => {
    const client = await context.client();
    const id = await jobId(client, text, context.signal);
    const file: JobFile = await client.jobFile(id, { signal: context.signal });
    const changes = [
      ...(options.unset ?? []),
      ...(options.set ?? []),
      ...(options.name === undefined ? [] : [{ field: "name", value: options.name }]),
    ];
    const changed = withAbsolutePaths(withChanges(file, changes), process.cwd());
    if (options.out === undefined) return submitAndShow(changed, options, client, context);
    await writeJob(asOptionsSay(changed, options), options.out, context);
  });
}
