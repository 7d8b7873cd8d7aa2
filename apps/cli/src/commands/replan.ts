import type { WorkloadChange, WorkloadCreate } from "@internevo/client";
import {
  constraintsOf,
  ProblemError,
  thresholdNote,
  writtenJob,
  type JobFile,
  type Proposal,
  type Workload,
} from "@internevo/domain";
import type { Command } from "commander";
import type { Context } from "../context.ts";
import { readJobFile } from "../job-input.ts";
import { addList, everyItem } from "../lists.ts";
import { withStoredProfile } from "../profile-file.ts";
import { workloadId } from "../resolve.ts";
import { callingName, jobDocument } from "../views.ts";
import { isBeingPlanned, noProposalsText, proposalsText, workloadsTable } from "../workload-views.ts";
import { addAnswers } from "./replan-answers.ts";
import { addSettings, settingsOf, WORKLOAD_ARGUMENT, type SettingOptions } from "./replan-settings.ts";

interface AddOptions extends SettingOptions {
  readonly name?: string;
  readonly cron: string;
  readonly idempotencyKey?: string;
}

/** The job that a proposal proposes, as a job file: the workload's, which may choose this plan alone. */
const proposedJob = ({ spec }: Workload, { proposed }: Proposal): JobFile => ({
  ...writtenJob(spec),
  plan: constraintsOf(proposed.plan),
});

export function addReplan(program: Command, context: Context): void {
  const replan = program
    .command("replan")
    .description("workloads that are planned again by a schedule, and what it found");
  addAdd(replan, context);
  addList(replan, context, {
    description: "list workloads with their next and last run",
    list: (client, query) => client.listWorkloads(query),
    none: "no workloads; add one with: internevo replan add JOB.yaml",
    table: workloadsTable,
  });
  addEdit(replan, context);
  addRun(replan, context);
  addProposals(replan, context);
  addAnswers(replan, context);
  addRemove(replan, context);
}

function show(workload: Workload, context: Context): void {
  const output = context.output();
  if (output.json) output.document(jobDocument(workload));
  else output.data(workloadsTable([workload], output.colors));
}

/** Shows a workload that was made or changed, and what whoever set its policy or threshold has to know of them. */
function showSet(workload: Workload, { policy, gainThreshold }: WorkloadChange, context: Context): void {
  show(workload, context);
  const note = policy === undefined && gainThreshold === undefined ? undefined : thresholdNote(workload);
  if (note !== undefined) context.output().note(`note: ${note}`);
}

function addAdd(replan: Command, context: Context): void {
  const add = replan
    .command("add")
    .description("plan a job's workload again by a schedule")
    .argument("<job>", "job file (YAML or JSON); - reads standard input")
    .option("--name <name>", "default: the job's name")
    .option("--cron <schedule>", "five fields", "0 3 * * *")
    .option("--idempotency-key <key>");
  addSettings(add).action(async (path: string, options: AddOptions) => {
    const file = await readJobFile(path);
    const client = await context.client();
    const job = await withStoredProfile(client, file, context.signal);
    const jobName = (job as { name?: unknown } | null)?.name;
    const body: WorkloadCreate = {
      name: options.name ?? (typeof jobName === "string" ? jobName : ""),
      job,
      cron: options.cron,
      timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
      ...settingsOf(options),
    };
    const workload = await client.createWorkload(body, {
      signal: context.signal,
      ...(options.idempotencyKey === undefined ? {} : { idempotencyKey: options.idempotencyKey }),
    });
    showSet(workload, body, context);
  });
}

interface EditOptions extends SettingOptions {
  readonly name?: string;
  readonly cron?: string;
  readonly job?: string;
}

function addEdit(replan: Command, context: Context): void {
  const change = async (text: string, made: WorkloadChange): Promise<void> => {
    const client = await context.client();
    const id = await workloadId(client, text, context.signal);
    showSet(await client.updateWorkload(id, made, { signal: context.signal }), made, context);
  };
  const edit = replan
    .command("edit")
    .description("change a workload; what is left out stays as it is")
    .argument("<workload>", WORKLOAD_ARGUMENT)
    .option("--name <name>", "another name")
    .option("--cron <schedule>", "five fields")
    .option("--job <file>", "another job file, of the same project; - reads standard input");
  addSettings(edit).action(async (text: string, options: EditOptions) => {
    const { name, cron, job } = options;
    const client = await context.client();
    const made: WorkloadChange = {
      ...(name === undefined ? {} : { name }),
      ...(cron === undefined ? {} : { cron }),
      ...(job === undefined
        ? {}
        : { job: await withStoredProfile(client, await readJobFile(job), context.signal) }),
      ...settingsOf(options),
    };
    if (Object.keys(made).length === 0)
      throw new ProblemError("bad-request", "replan edit changes nothing: no option says what", [
        {
          field: "options",
          value: "",
          message: "none was given",
          remedy: "name what changes, for example --policy apply; see internevo replan edit --help",
        },
      ]);
    await change(text, made);
  });
  for (const [name, description, enabled] of [
    ["pause", "plan a workload by its schedule no more, until it is resumed", false],
    ["resume", "let a paused workload go on", true],
  ] as const)
    replan
      .command(name)
      .description(description)
      .argument("<workload>", WORKLOAD_ARGUMENT)
      .action((text: string) => change(text, { enabled }));
}

function addRun(replan: Command, context: Context): void {
  replan
    .command("run")
    .description("plan a workload again now")
    .argument("<workload>", WORKLOAD_ARGUMENT)
    .action(async (text: string) => {
      const client = await context.client();
      const workload = await client.runWorkload(await workloadId(client, text, context.signal), {
        signal: context.signal,
      });
      show(workload, context);
      context
        .output()
        .note(
          "queued: what is stale is measured, then it is planned. See how " +
            `it went with: internevo replan proposals ${callingName(workload)}`,
        );
    });
}

function addProposals(replan: Command, context: Context): void {
  replan
    .command("proposals")
    .description("better plans that were found, newest first")
    .argument("<workload>", WORKLOAD_ARGUMENT)
    .action(async (text: string) => {
      const output = context.output();
      const client = await context.client();
      const id = await workloadId(client, text, context.signal);
      // Before the proposals: a run that ends in between is not taken for one without any.
      const workload = await client.getWorkload(id, { signal: context.signal });
      const proposals = await everyItem((cursor) =>
        client.listProposals(id, { signal: context.signal, ...cursor }),
      );
      if (output.json) output.document(proposals.map((one) => ({ ...one, job: proposedJob(workload, one) })));
      else if (proposals.length === 0) output.note(noProposalsText(workload));
      else {
        output.data(proposalsText(proposals, output.colors));
        if (isBeingPlanned(workload))
          output.note("a run is queued or running: what it finds is listed first");
      }
    });
}

function addRemove(replan: Command, context: Context): void {
  replan
    .command("remove")
    .description("forget a workload, its runs and its proposals")
    .argument("<workload>", WORKLOAD_ARGUMENT)
    .action(async (text: string) => {
      const client = await context.client();
      const id = await workloadId(client, text, context.signal);
      await client.deleteWorkload(id, { signal: context.signal });
      const output = context.output();
      if (output.json) output.document({ removed: id });
      else output.data(id);
    });
}
