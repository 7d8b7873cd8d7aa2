import type { JobStreamEvent } from "@internevo/contracts";
import { jobFacts, planFacts } from "../describe.ts";
import { beginningAttempt, metricsOf, trialFigures, trialOf, type TrackedJob } from "../metrics.ts";
import { fileVersion, scalars, sessionStart, text } from "./records.ts";

/** A cell of a table in Markdown. */
const cell = (value: string): string => value.replaceAll("|", String.raw`\|`).replaceAll("\n", " ");
const tableOf = (facts: Readonly<Record<string, string>>): string =>
  [
    "| | |",
    "|---|---|",
    ...Object.entries(facts).map(([name, value]) => `| ${name} | ${cell(value)} |`),
  ].join("\n");

/** What a job's file begins with. */
export const headerOf = (job: TrackedJob): Buffer => {
  const atMs = job.createdAt.getTime();
  const facts = { job: job.name, id: job.id, project: job.project, ...jobFacts(job) };
  return Buffer.concat([fileVersion(atMs), sessionStart(atMs, 0), text(atMs, 0, "job", tableOf(facts))]);
};

function trialRecords(event: JobStreamEvent): Buffer[] {
  const trial = trialOf(event);
  if (trial?.measured == null) return [];
  const figures = Object.entries(trialFigures(trial)).map(([name, value]) => [`trials/${name}`, value]);
  return [
    scalars(
      Date.parse(event.at),
      trial.candidate.rank,
      Object.fromEntries(figures) as Record<string, number>,
    ),
  ];
}

/**
 * The records of an event. They follow from the job's log and from nothing else, so that whoever writes an event's
 * records writes the same bytes.
 */
export function recordsOf(job: TrackedJob, event: JobStreamEvent): Buffer[] {
  if (event.type === "trial") return trialRecords(event);
  const [first, ...others] = metricsOf(job, event);
  if (first === undefined) return [];
  const { step, atMs } = first;
  const attempt = beginningAttempt(job, event);
  return [
    ...(attempt !== undefined && attempt.number > 1 ? [sessionStart(atMs, step)] : []),
    ...(attempt?.plan === undefined ? [] : [text(atMs, step, "plan", tableOf(planFacts(attempt.plan)))]),
    scalars(atMs, step, Object.fromEntries([first, ...others].map(({ name, value }) => [name, value]))),
  ];
}
