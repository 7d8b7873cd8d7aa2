import { measuredFirstWords } from "@internevo/domain";
import type { Command } from "commander";
import { readJobFile } from "../job-input.ts";
import { showToEnd } from "../follow.ts";
import { withStoredProfile } from "../profile-file.ts";
import { jobDocument } from "../views.ts";
import type { Context } from "../context.ts";

interface Options {
  readonly follow?: boolean;
  readonly idempotencyKey?: string;
  readonly measureAgain?: boolean;
  readonly project?: string;
}

export function addSubmit(program: Command, context: Context): void {
  program
    .command("submit")
    .description("submit a job: it is profiled, planned, tried and trained")
    .argument("<job>", "job file (YAML or JSON); - reads standard input")
    .option("-f, --follow", "follow it to its end; the exit status is the job's")
    .option("--project <name>", "the project that it belongs to, whatever the job file says")
    .option("--measure-again", "measure the cluster, though a fresh profile is there")
    .option("--idempotency-key <key>", "submitting again with the same key makes no second job")
    .action(async (path: string, options: Options) => {
      const output = context.output();
      const file = await readJobFile(path);
      const client = await context.client();
      const stored = await withStoredProfile(client, file, context.signal);
      const over = {
        ...(options.measureAgain ? { measureAgain: true } : {}),
        ...(options.project === undefined ? {} : { project: options.project }),
      };
      const body =
        Object.keys(over).length === 0 ? stored : { ...(stored as Record<string, unknown>), ...over };
      const job = await client.submitJob(body, {
        signal: context.signal,
        ...(options.idempotencyKey === undefined ? {} : { idempotencyKey: options.idempotencyKey }),
      });
      if (job.measuredFirst) output.note(measuredFirstWords(job.measuredFirst));
      if (!options.follow) {
        if (output.json) output.document(jobDocument(job));
        else output.data(job.id);
        output.note(`follow it with: internevo logs -f ${job.id}`);
        return;
      }
      await showToEnd(context, client, job);
    });
}
