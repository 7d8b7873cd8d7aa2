import type { InternEvoClient } from "@internevo/client";
import type { JobDetail } from "@internevo/contracts";
import type { Context } from "./context.ts";
import { exitCodeOfState } from "./exit-codes.ts";
import { createProgress, followJob } from "./progress.ts";
import { jobDocument, jobText } from "./views.ts";

/**
 * Shows how a job goes on, to its end or until it is held; then the job itself. The exit status is the job's.
 * @param afterEvent only events after this one; 0: all.
 */
export async function showToEnd(
  context: Context,
  client: InternEvoClient,
  job: JobDetail,
  afterEvent = 0,
): Promise<void> {
  const output = context.output();
  output.note(`job ${job.id} ${job.name}`);
  const progress = createProgress({ output, steps: job.steps });
  try {
    await followJob(client, job.id, progress.on, output, context.signal, afterEvent);
  } finally {
    progress.end();
    if (context.signal.aborted)
      output.note(
        `job ${job.id} goes on. Follow it with: internevo logs ` +
          `-f ${job.id}\ncancel it with: internevo cancel ${job.id}`,
      );
  }
  const ended = await client.getJob(job.id, { signal: context.signal });
  if (output.json) output.document(jobDocument(ended));
  else output.data(jobText(ended, output.colors));
  context.setExitCode(exitCodeOfState(ended.state));
}
