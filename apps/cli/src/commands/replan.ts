import type { WorkloadCreate } from "@internevo/client";
import { constraintsOf, writtenJob, type JobFile, type Proposal, type Workload } from "@internevo/domain";
import type { Command } from "commander";
import { integerArgument, numberArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { readJobFile } from "../job-input.ts";
import { addList, everyItem } from "../lists.ts";
import { withStoredProfile } from "../profile-file.ts";
import { workloadId } from "../resolve.ts";
import {
  callingName,
  isBeingPlanned,
  jobDocument,
  noProposalsText,
  proposalsText,
  workloadsTable,
} from "../views.ts";

const WORKLOAD_ARGUMENT = "id of the workload, the beginning of it, or its name";

interface AddOptions {
  readonly name?: string;
  readonly cron: string;
  readonly timeZone?: string;
  readonly gainThreshold?: number;
  readonly catchUpWindow?: number;
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
    documentOf: jobDocument,
  });
  addRun(replan, context);
  addProposals(replan, context);
  addRemove(replan, context);
}

function show(workload: Workload, context: Context): void {
  const output = context.output();
  if (output.json) output.document(jobDocument(workload));
  else output.data(workloadsTable([workload], output.colors));
}

function addAdd(replan: Command, context: Context): void {
  replan
    .command("add")
    .description("plan a job's workload again by a schedule")
    .argument("<job>", "job file (YAML or JSON); - reads standard input")
    .option("--name <name>", "default: the job's name")
    .option("--cron <schedule>", "five fields", "0 3 * * *")
    .option("--time-zone <zone>", "IANA name; default: this machine's")
    .option(
      "--gain-threshold <fraction>",
      "predicted gain in step time that makes a proposal",
      numberArgument(0, 1),
    )
    .option(
      "--catch-up-window <seconds>",
      "how late a missed run may still be made up",
      integerArgument(0, 31_536_000),
    )
    .option("--idempotency-key <key>")
    .action(async (path: string, options: AddOptions) => {
      const file = await readJobFile(path);
      const client = await context.client();
      const job = await withStoredProfile(client, file, context.signal);
      const jobName = (job as { name?: unknown } | null)?.name;
      const body: WorkloadCreate = {
        name: options.name ?? (typeof jobName === "string" ? jobName : ""),
        job,
        cron: options.cron,
        timeZone: options.timeZone ?? Intl.DateTimeFormat().resolvedOptions().timeZone,
        ...(options.gainThreshold === undefined ? {} : { gainThreshold: options.gainThreshold }),
        ...(options.catchUpWindow === undefined ? {} : { catchUpWindowSeconds: options.catchUpWindow }),
      };
      const workload = await client.createWorkload(body, {
        signal: context.signal,
        ...(options.idempotencyKey === undefined ? {} : { idempotencyKey: options.idempotencyKey }),
      });
      show(workload, context);
    });
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
