import type { InternEvoClient } from "@internevo/client";
import type { JobWarnings } from "@internevo/contracts";
import { measuredFirstWords, printableJson } from "@internevo/domain";
import type { Command } from "commander";
import type { Context } from "./context.ts";
import { showToEnd } from "./follow.ts";
import type { Output } from "./output.ts";
import { withStoredProfile } from "./profile-file.ts";
import { jobDocument } from "./views.ts";

/** How a job is submitted, whatever its file is. */
export interface SubmissionOptions {
  readonly follow?: boolean;
  readonly idempotencyKey?: string;
  readonly measureAgain?: boolean;
  readonly project?: string;
}

export const addSubmissionOptions = (command: Command): Command =>
  command
    .option("-f, --follow", "follow it to its end; the exit status is the job's")
    .option("--project <name>", "the project that it belongs to, whatever the job file says")
    .option("--measure-again", "measure the cluster, though a fresh profile is there")
    .option("--idempotency-key <key>", "submitting again with the same key makes no second job");

/** A job file with what the command line says besides. */
export function asOptionsSay(file: unknown, { measureAgain, project }: SubmissionOptions): unknown {
  const over = {
    ...(measureAgain ? { measureAgain: true } : {}),
    ...(project === undefined ? {} : { project }),
  };
  return Object.keys(over).length === 0 ? file : { ...(file as Record<string, unknown>), ...over };
}

/** Says what the stack warns of in a job that it takes. */
export function noteWarnings(warnings: JobWarnings, output: Output): void {
  for (const { field, value, message, remedy } of warnings)
    output.note(
      `warning: ${field}${value === undefined ? "" : ` (is ${printableJson(value)})`}: ${message}\n    → ${remedy}`,
    );
}

/** Submits a job file, and says what became of it, or follows the job. */
export async function submitAndShow(
  file: unknown,
  options: SubmissionOptions,
  client: InternEvoClient,
  context: Context,
): Promise<void> {
  const output = context.output();
  const stored = await withStoredProfile(client, file, context.signal);
  const job = await client.submitJob(asOptionsSay(stored, options), {
    signal: context.signal,
    ...(options.idempotencyKey === undefined ? {} : { idempotencyKey: options.idempotencyKey }),
  });
  noteWarnings(job.warnings ?? [], output);
  if (job.measuredFirst) output.note(measuredFirstWords(job.measuredFirst));
  if (options.follow) return showToEnd(context, client, job);
  if (output.json) output.document(jobDocument(job));
  else output.data(job.id);
  output.note(`follow it with: internevo logs -f ${job.id}`);
}
