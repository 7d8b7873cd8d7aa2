import { allPages } from "@internevo/client";
import type { JobFilter, JobSummary } from "@internevo/contracts";
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
  PRIORITIES,
  QUEUED_STATE,
  queueWords,
  TRIAL_STATE_WORDS,
  type JobState,
  type Priority,
  type Report,
  type StepMetric,
  type Trial,
  type ValidationLoss,
} from "@internevo/domain";
import { Argument, InvalidArgumentError, Option, type Command } from "commander";
import type { JobStreamEvent } from "@internevo/contracts";
import type { Context } from "../context.ts";
import { integerArgument } from "../arguments.ts";
import { showToEnd } from "../follow.ts";
import { followJob } from "../progress.ts";
import { jobId } from "../resolve.ts";
import { jobDocument, jobsTable, jobText, reportWords, stateName } from "../views.ts";

export const JOB_ARGUMENT = "id of the job, the beginning of it, or its name";

const STATE_WORDS = [QUEUED_STATE, ...Object.values(JOB_STATE_WORDS).map(lowered)].join(", ");

/** A state as people read it, or as the API names it. */
function stateArgument(text: string): JobState | typeof QUEUED_STATE {
  const asked = text.trim().toLowerCase();
  if (asked === QUEUED_STATE) return QUEUED_STATE;
  const state = JOB_STATES.find((each) => each === asked || lowered(JOB_STATE_WORDS[each]) === asked);
  if (state === undefined) throw new InvalidArgumentError(`give one of ${STATE_WORDS}.`);
  return state;
}

export function addPs(program: Command, context: Context): void {
  program
    .command("ps")
    .description("list jobs, newest first")
    .addOption(
      new Option("--state <state>", `only jobs in this state: ${STATE_WORDS}`).argParser(stateArgument),
    )
    .option("--name <text>", "only jobs with this text in their name")
    .option("--owner <name>", "only jobs that this token submitted")
    .option("--project <name>", "only jobs of this project")
    .option("--cluster <name>", "only jobs of this cluster")
    .option("--label <name=value>", "only jobs with this label, e.g. team=nlp")
    .option("-n, --limit <count>", "at most so many", integerArgument(1, 100_000), 50)
    .action(async ({ limit, ...filter }: JobFilter & { limit: number }) => {
      const output = context.output();
      const client = await context.client();
      const jobs: JobSummary[] = [];
      const pages = allPages((cursor) =>
        client.listJobs({
          ...filter,
          limit: Math.min(200, limit),
          signal: context.signal,
          ...(cursor === undefined ? {} : { cursor }),
        }),
      );
      for await (const job of pages) {
        jobs.push(job);
        if (jobs.length >= limit) break;
      }
      if (output.json) output.document(jobs);
      else if (jobs.length === 0)
        output.note(Object.keys(filter).length === 0 ? "no jobs" : "no job matches");
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
      case "validation": {
        const { step, loss, seconds } = event.data as unknown as ValidationLoss;
        return `${step} validation loss ${loss.toFixed(4)}, evaluated in ${formatSeconds(seconds)}`;
      }
      case "log":
        return `${text(event.data["level"])} ${text(event.data["source"])}: ${text(event.data["message"])}`;
      case "report":
        return reportWords(event.data as unknown as Report).join("; ");
    }
  })();
  return `${at} ${event.type.padEnd(10)} ${said}`;
}

export function addLogs(program: Command, context: Context): void {
  program
    .command("logs")
    .description(
      "the events of a job: states, progress, trials, steps, validation losses, log lines; with --json one JSON value a line",
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

export function addPriority(program: Command, context: Context): void {
  program
    .command("priority")
    .description("give a job another priority, and another place where it waits for hosts")
    .argument("<job>", JOB_ARGUMENT)
    .addArgument(new Argument("<priority>", "how urgent it is").choices(PRIORITIES))
    .action(async (name: string, priority: Priority) => {
      const output = context.output();
      const client = await context.client();
      const id = await jobId(client, name, context.signal);
      const job = await client.setPriority(id, priority, { signal: context.signal });
      if (output.json) output.document(jobDocument(job));
      else
        output.data(`${job.name} has priority ${priority}${job.queue ? `: ${queueWords(job.queue)}` : ""}`);
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
