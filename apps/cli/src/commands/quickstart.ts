import { fileURLToPath } from "node:url";
import { InternEvoClient } from "@internevo/client";
import type { JobDetail } from "@internevo/contracts";
import { formatSpan } from "@internevo/domain";
import type { Command } from "commander";
import { dataDirectoryOf, DEFAULT_DATA_DIRECTORY, type Context } from "../context.ts";
import { EXIT, exitCodeOfState, type ExitCode } from "../exit-codes.ts";
import { readJobFile } from "../job-input.ts";
import { startStack, untilAborted, type StartedStack } from "../local-stack.ts";
import type { Output } from "../output.ts";
import { withStoredProfile } from "../profile-file.ts";
import { createProgress, followJob } from "../progress.ts";
import { jobText, reportLines, trialsTable } from "../views.ts";

const EXAMPLE = fileURLToPath(new URL("../../../../examples/quickstart.yaml", import.meta.url));

export function addQuickstart(program: Command, context: Context): void {
  program
    .command("quickstart")
    .description(
      "run the whole way once on this machine: profile, plan, try the best plans for real, train with the winner",
    )
    .option("--keep-running", "stay up afterwards, with the console")
    .option("--job <file>", "another job file", EXAMPLE)
    .action(async (options: { keepRunning?: boolean; job: string }) => {
      const output = context.output();
      const begin = performance.now();
      const body = await readJobFile(options.job);
      const directory = dataDirectoryOf(context);
      const started = await startStack({
        output,
        dataDirectory: directory === DEFAULT_DATA_DIRECTORY ? undefined : directory,
        nextFree: true,
        signal: context.signal,
      });
      try {
        const job = await runJob(started, body, context, output);
        show(job, started, output, (performance.now() - begin) / 1000);
        context.setExitCode(verdict(job, output));
        if (options.keepRunning) {
          output.note(`the stack stays up. Token for the console: ${started.token}`);
          output.note("Ctrl-C stops it");
          await untilAborted(AbortSignal.any([context.signal, started.stack.lost]));
          started.stack.lost.throwIfAborted();
        }
      } finally {
        output.note("stopping");
        await started.stack.stop();
      }
    });
}

async function runJob(
  started: StartedStack,
  body: unknown,
  context: Context,
  output: Output,
): Promise<JobDetail> {
  const client = new InternEvoClient({ baseUrl: started.apiUrl, token: started.token });
  const signal = AbortSignal.any([context.signal, started.stack.lost]);
  const job = await client.submitJob(await withStoredProfile(client, body, signal), { signal });
  output.note(
    `job ${job.id} ${job.name}; watch it, signed in, at ${started.apiUrl}/jobs/${job.id}#token=${started.token}`,
  );
  const progress = createProgress({ output, steps: job.steps });
  try {
    await followJob(client, job.id, progress.on, output, signal);
  } finally {
    progress.end();
  }
  return client.getJob(job.id, { signal });
}

function show(job: JobDetail, started: StartedStack, output: Output, seconds: number): void {
  if (output.json)
    output.document({
      job,
      seconds,
      dataDirectory: started.dataDirectory,
      apiUrl: `${started.apiUrl}/api/v1`,
      consoleUrl: `${started.apiUrl}/`,
    });
  else if (job.report === null) output.data(jobText(job, output.colors));
  else {
    output.data("");
    output.data(trialsTable(job.trials, output.colors, job.chosen));
    output.data("");
    for (const line of reportLines(job, output.colors)) output.data(line);
    output.data("");
    output.data(
      "An error below zero: slower, or larger, than predicted. Kendall's " +
        "τ compares the two orders of the plans: 1 the same, 0 unrelated.",
    );
    output.data("Other work on this machine makes profile, trials and training differ.");
    output.data("");
    output.data(
      `console       ${started.apiUrl}/jobs/${job.id}#token=${started.token} ` +
        `(signed in; while the stack runs: --keep-running, or \`internevo up\`)`,
    );
  }
  output.note(`everything took ${formatSpan(1000 * seconds)}; kept in ${started.dataDirectory}`);
}

function verdict(job: JobDetail, output: Output): ExitCode {
  const measured = job.trials.filter((trial) => trial.measured !== null).length;
  if (job.trials.length > 0 && measured < job.trials.length)
    output.note(
      `${job.trials.length - measured} of ${job.trials.length} trials have no measurement; the table says why`,
    );
  const entropy = job.report?.unigramEntropyNats ?? null;
  if (job.report !== null && entropy !== null && job.report.finalLossNats >= entropy) {
    output.note("the model did not learn more than the frequencies of the bytes");
    return EXIT.failed;
  }
  return exitCodeOfState(job.state);
}
