import { allPages } from "@internevo/client";
import type { JobSummary } from "@internevo/contracts";
import {
  FAILURE_WORDS,
  formatMoment,
  formatRate,
  formatRuns,
  formatSeconds,
  JOB_STATE_WORDS,
  JOB_STATES,
  lowered,
  planLabel,
  TRIAL_STATE_WORDS,
  type JobState,
  type Report,
  type StepMetric,
  type Trial,
} from "@internevo/domain";
import { InvalidArgumentError, Option, type Command } from "commander";
import type { JobStreamEvent } from "@internevo/contracts";
import type { Context } from "../context.ts";
import { integerArgument } from "../arguments.ts";
import { showToEnd } from "../follow.ts";
import { followJob } from "../progress.ts";
import { jobId } from "../resolve.ts";
import { jobDocument, jobsTable, jobText, reportWords, stateName } from "../views.ts";

export const JOB_ARGUMENT = "id of the job, the beginning of it, or its name";

/** A state as people read it, or as the API names it. */
function stateArgument(text: string): JobState {
  const asked = text.trim().toLowerCase();
  const state = JOB_STATES.find((each) => each === asked || lowered(JOB_STATE_WORDS[each]) === asked);
  if (state === undefined)
    throw new InvalidArgumentError(`give one of ${Object.values(JOB_STATE_WORDS).map(lowered).join(", ")}.`);
  return state;
}

export function addPs(program: Command, context: Context): void {
  program
    .command("ps")
    .description("list jobs, newest first")
    .addOption(
      new Option(
        "--state <state>",
        `only jobs in this state: ${Object.values(JOB_STATE_WORDS).map(lowered).join(", ")}`,
      ).argParser(stateArgument),
    )
    .option("-n, --limit <count>", "at most so many", integerArgument(1, 100_000), 50)
    .action(async (options: { state?: JobState; limit: number }) => {
      const output = context.output();
      const client = await context.client();
      const jobs: JobSummary[] = [];
      const pages = allPages((cursor) =>
        client.listJobs({
          limit: Math.min(200, options.limit),
          signal: context.signal,
          ...(cursor === undefined ? {} : { cursor }),
          ...(options.state === undefined ? {} : { state: options.state }),
        }),
      );
      for await (const job of pages) {
        jobs.push(job);
        if (jobs.length >= options.limit) break;
      }
      if (output.json) output.document(jobs);
      else if (jobs.length === 0) output.note("no jobs");
      else output.data(jobsTable(jobs, output.colors));
    });
}

export function addShow(program: Command, context: Context): void {
  program
    .command("show")
    .description("show one job: stages, trials predicted beside measured, attempts, report")
    .argument("<job>", JOB_ARGUMENT)
    .action(async (text: string) => {
      const output = context.output();
      const client = await context.client();
      const job = await client.getJob(await jobId(client, text, context.signal), { signal: context.signal });
      if (output.json) output.document(jobDocument(job));
      else output.data(jobText(job, output.colors));
    });
}

const text = (value: unknown, otherwise = ""): string => (typeof value === "string" ? value : otherwise);

function resultOf({ measured, failure }: Trial): string {
  if (measured) return `, ${formatSeconds(measured.stepTimeSeconds)} a step${formatRuns(measured)}`;
  return failure ? `, ${lowered(FAILURE_WORDS[failure.code])}: ${failure.message}` : "";
}

function logLine(event: JobStreamEvent): string {
  const at = formatMoment(event.at);
  const said = ((): string => {
    switch (event.type) {
      case "state":
        return `${stateName(typeof event.data["from"] === "string" ? event.data["from"] : null)} → ${stateName(text(event.data["to"]))}${event.data["reason"] ? ` (${text(event.data["reason"])})` : ""}`;
      case "progress": {
        const { stage, message, done, total } = event.data as {
          stage?: string;
          message?: string;
          done?: number | null;
          total?: number | null;
        };
        return `${stage === undefined ? "" : stateName(stage)} ${message ?? ""}${typeof done === "number" ? ` ${done}${typeof total === "number" ? `/${total}` : ""}` : ""}`.trim();
      }
      case "trial": {
        const trial = event.data["trial"] as Trial;
        return (
          `#${trial.candidate.rank} ${planLabel(trial.candidate.plan)} ` +
          `${lowered(TRIAL_STATE_WORDS[trial.state])}${resultOf(trial)}`
        );
      }
      case "step": {
        const metric = event.data as unknown as StepMetric;
        return (
          `${metric.step} loss ${metric.loss.toFixed(4)}, ${formatSeconds(metric.stepTimeSeconds)}, ` +
          `${formatRate(metric.tokensPerSecond)} tokens/s of all ranks`
        );
      }
      case "log":
        return `${text(event.data["level"])} ${text(event.data["source"])}: ${text(event.data["message"])}`;
      case "report":
        return reportWords(event.data as unknown as Report).join("; ");
    }
  })();
  return `${at} ${event.type.padEnd(8)} ${said}`;
}

export function addLogs(program: Command, context: Context): void {
  program
    .command("logs")
    .description(
      "the events of a job: states, progress, trials, steps, log lines; with --json one JSON value a line",
    )
    .argument("<job>", JOB_ARGUMENT)
    .option("-f, --follow", "stay until the job has ended, or is held")
    .option(
      "--after <event>",
      "only events after this number",
      integerArgument(0, Number.MAX_SAFE_INTEGER),
      0,
    )
    .action(async (name: string, options: { follow?: boolean; after: number }) => {
      const output = context.output();
      const client = await context.client();
      const id = await jobId(client, name, context.signal);
      const show = (event: JobStreamEvent): void =>
        output.data(output.json ? JSON.stringify(event) : logLine(event));
      if (options.follow) return followJob(client, id, show, output, context.signal, options.after);
      const events = client.jobEvents(id, {
        lastEventId: options.after,
        follow: false,
        signal: context.signal,
        maxAttempts: 1,
      });
      for await (const event of events) show(event);
    });
}

export function addCancel(program: Command, context: Context): void {
  program
    .command("cancel")
    .description("cancel a job; its processes are ended in every stage")
    .argument("<job>", JOB_ARGUMENT)
    .option("--no-wait", "do not wait until it is cancelled")
    .action(async (name: string, options: { wait: boolean }) => {
      const output = context.output();
      const client = await context.client();
      const id = await jobId(client, name, context.signal);
      let job = await client.cancelJob(id, { signal: context.signal });
      if (options.wait && job.state === "cancelling") {
        output.note("cancelling; its processes are being ended");
        await followJob(client, id, () => {}, output, context.signal);
        job = await client.getJob(id, { signal: context.signal });
      }
      if (output.json) output.document(jobDocument(job));
      else output.data(`${job.id} ${stateName(job.state)}`);
    });
}

export function addResume(program: Command, context: Context): void {
  program
    .command("resume")
    .description("let a job go on that is held, failed or was cancelled, where it stopped")
    .argument("<job>", JOB_ARGUMENT)
    .option("-f, --follow", "follow it to its end; the exit status is the job's")
    .action(async (name: string, options: { follow?: boolean }) => {
      const output = context.output();
      const client = await context.client();
      const id = await jobId(client, name, context.signal);
      const job = await client.resumeJob(id, { signal: context.signal });
      // From the event of its going on, which is the newest.
      if (options.follow) return showToEnd(context, client, job, job.lastEventId - 1);
      if (output.json) output.document(jobDocument(job));
      else output.data(`${job.id} ${stateName(job.state)}`);
      output.note(`follow it with: internevo logs -f ${job.id}`);
    });
}
