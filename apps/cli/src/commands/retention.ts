import { setTimeout as wait } from "node:timers/promises";
import type {
  RetentionAmounts,
  RetentionChange,
  RetentionPreview,
  RetentionRun,
  RetentionTrial,
} from "@internevo/contracts";
import {
  formatCounted,
  formatMoment,
  lowered,
  ProblemError,
  removedWords,
  RETENTION_DAYS,
  RETENTION_KINDS,
  RETENTION_WORDS,
  retentionRunWords,
  type RetentionKind,
  type RetentionSettings,
} from "@internevo/domain";
import { InvalidArgumentError, Option, type Command } from "commander";
import { integerArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { table, type Colors, type Output } from "../output.ts";
import { jobId } from "../resolve.ts";
import { jobDocument } from "../views.ts";
import { JOB_ARGUMENT } from "./jobs.ts";

const FOREVER = "forever";
/** Commander takes a null for an empty text. */
type KindOptions = Partial<Record<RetentionKind, number | typeof FOREVER>>;

/** Days after a job's end, `30d` or `30`, or for ever. */
function daysArgument(text: string): number | typeof FOREVER {
  const { minimum, maximum } = RETENTION_DAYS;
  if (text.trim() === FOREVER) return FOREVER;
  const [, digits] = /^(\d{1,9})d?$/.exec(text.trim()) ?? [];
  if (digits === undefined || Number(digits) < minimum || Number(digits) > maximum)
    throw new InvalidArgumentError(`give days from ${minimum} to ${maximum}, such as 90d, or forever.`);
  return Number(digits);
}

/** An option for each kind. */
function withKinds(command: Command): Command {
  for (const kind of RETENTION_KINDS)
    command.addOption(
      new Option(
        `--${kind} <days>`,
        `${lowered(RETENTION_WORDS[kind])}: 90d after a job's end, or forever`,
      ).argParser(daysArgument),
    );
  return command;
}

/** What was given of each kind. */
const given = (options: KindOptions): [RetentionKind, number | typeof FOREVER][] =>
  RETENTION_KINDS.flatMap((kind) => {
    const days = options[kind];
    return days === undefined ? [] : [[kind, days]];
  });
const changeOf = (options: KindOptions): RetentionChange =>
  Object.fromEntries(given(options).map(([kind, days]) => [kind, days === FOREVER ? null : days]));
const trialOf = (options: KindOptions): RetentionTrial =>
  Object.fromEntries(given(options).map(([kind, days]) => [kind, String(days)]));

const kindsTable = (
  settings: RetentionSettings,
  totals: Readonly<Record<RetentionKind, RetentionAmounts>> | undefined,
  title: string,
  colors: Colors,
): string =>
  table<RetentionKind>(
    [
      { title: "KIND", value: (kind) => lowered(RETENTION_WORDS[kind]) },
      {
        title: "KEPT",
        value: (kind) => {
          const days = settings[kind];
          return days === null ? "for ever" : `${formatCounted(days, "day")} after the job's end`;
        },
      },
      ...(totals === undefined
        ? []
        : [
            {
              title,
              value: (kind: RetentionKind) => {
                const { jobs } = totals[kind];
                return jobs === 0 ? "–" : `${removedWords(totals[kind])} of ${formatCounted(jobs, "job")}`;
              },
            },
          ]),
    ],
    RETENTION_KINDS,
    colors,
  );

/** Nothing for who may not see what was removed of all projects. */
const runNotes = (run: RetentionRun | null | undefined): string[] =>
  run === undefined ? [] : [retentionRunWords(run), ...(run?.remarks ?? [])];

function addShow(group: Command, context: Context): void {
  group
    .command("show", { isDefault: true })
    .description("show for how long what ended jobs leave is kept, and what was removed last")
    .action(async () => {
      const output = context.output();
      const client = await context.client();
      const retention = await client.retention.show({ signal: context.signal });
      if (output.json) return output.document(retention);
      const { settings, lastRun } = retention;
      output.data(kindsTable(settings, lastRun?.removed, "REMOVED LAST", output.colors));
      for (const note of runNotes(lastRun)) output.note(note);
    });
}

function addSet(group: Command, context: Context): void {
  withKinds(
    group
      .command("set")
      .description(
        "change for how long kinds are kept; see what it does with preview; needs an admin of the installation",
      ),
  ).action(async (options: KindOptions) => {
    const output = context.output();
    const client = await context.client();
    const retention = await client.retention.change(changeOf(options), { signal: context.signal });
    if (output.json) output.document(retention);
    else output.data(kindsTable(retention.settings, undefined, "", output.colors));
  });
}

const jobsOf = ({ items }: RetentionPreview, colors: Colors): string =>
  table<RetentionPreview["items"][number]>(
    [
      { title: "JOB", value: ({ jobId: id }) => id.slice(0, 8) },
      { title: "NAME", value: ({ jobName }) => jobName },
      { title: "PROJECT", value: ({ project }) => project },
      { title: "ENDED", value: ({ endedAt }) => formatMoment(endedAt) },
      {
        title: "REMOVES",
        value: ({ removes }) => removes.map((part) => `${part.kind}: ${removedWords(part)}`).join("; "),
      },
    ],
    items,
    colors,
  );

function showPreview(preview: RetentionPreview, output: Output): void {
  output.data(kindsTable(preview.settings, preview.totals, "WOULD GO NOW", output.colors));
  if (preview.items.length > 0) output.data(`\n${jobsOf(preview, output.colors)}`);
  if (preview.nextCursor !== null) output.note("there are more jobs: ask for more with -n");
  if (!preview.isWhole) output.note("there is more than this: to look at all of it took too long");
  for (const remark of preview.remarks) output.note(remark);
}

function addPreview(group: Command, context: Context): void {
  withKinds(
    group
      .command("preview")
      .description("what would be removed now, by what is set or by the days that are given; removes nothing")
      .option("-n, --limit <count>", "jobs that are listed at most", integerArgument(1, 200), 50),
  ).action(async ({ limit, ...options }: KindOptions & { readonly limit: number }) => {
    const output = context.output();
    const client = await context.client();
    const preview = await client.retention.preview(trialOf(options), { limit, signal: context.signal });
    if (output.json) output.document(preview);
    else showPreview(preview, output);
  });
}

/** A replanner looks for what is asked within seconds. */
const PATIENCE_SECONDS = 60;
const LOOK_MILLISECONDS = 500;

/** Waits until a run has ended. @throws ProblemError `unavailable` where nobody begins it */
async function ended(context: Context, id: number): Promise<RetentionRun> {
  const client = await context.client();
  const late = performance.now() + 1000 * PATIENCE_SECONDS;
  for (;;) {
    const { lastRun } = await client.retention.show({ signal: context.signal });
    // A later one is there: this one has ended, and its own figures are told no more.
    if (lastRun && (lastRun.id > id || lastRun.endedAt !== null)) return lastRun;
    if (lastRun?.beganAt === null && performance.now() > late)
      throw new ProblemError("unavailable", `no replanner has begun the run in ${PATIENCE_SECONDS} s`, [
        {
          field: "run",
          value: id,
          message: "waits",
          remedy: "see whether a replanner runs (internevo status); it begins as soon as one does",
        },
      ]);
    await wait(LOOK_MILLISECONDS, undefined, { signal: context.signal });
  }
}

function addRun(group: Command, context: Context): void {
  group
    .command("run")
    .description("remove what is due now, for good; needs an admin of the installation")
    .option("--no-wait", "do not wait until it is removed")
    .action(async (options: { readonly wait: boolean }) => {
      const output = context.output();
      const client = await context.client();
      const asked = await client.retention.run({ signal: context.signal });
      const run = options.wait ? await ended(context, asked.id) : asked;
      if (output.json) return output.document(run);
      for (const kind of RETENTION_KINDS)
        if (run.removed[kind].jobs > 0)
          output.data(
            `removed ${lowered(RETENTION_WORDS[kind])} of ${formatCounted(run.removed[kind].jobs, "job")}: ${removedWords(run.removed[kind])}`,
          );
      for (const note of runNotes(run)) output.note(note);
    });
}

function addKeep(group: Command, context: Context): void {
  group
    .command("keep")
    .description("exempt a job: nothing of it is removed, whatever is set")
    .argument("<job>", JOB_ARGUMENT)
    .option("--off", "exempt it no more")
    .action(async (name: string, { off = false }: { readonly off?: boolean }) => {
      const output = context.output();
      const client = await context.client();
      const id = await jobId(client, name, context.signal);
      const job = await client.keepJob(id, !off, { signal: context.signal });
      if (output.json) output.document(jobDocument(job));
      else
        output.data(
          off ? `${job.name} is exempt from retention no more` : `${job.name} is exempt from retention`,
        );
    });
}

export function addRetention(program: Command, context: Context): void {
  const group = program
    .command("retention")
    .description("for how long the installation keeps what ended jobs leave: files, log lines, steps");
  addShow(group, context);
  addSet(group, context);
  addPreview(group, context);
  addRun(group, context);
  addKeep(group, context);
}
