import { isOpenPlanChange, type PlanChange } from "@internevo/domain";
import type { PlanChoice } from "@internevo/contracts";
import type { InternEvoClient } from "@internevo/client";
import type { Command } from "commander";
import { integerArgument, shareArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { isPath, isRank, PLAN_HELP, readJson } from "../plan-argument.ts";
import { planChangeLines, planChangesTable } from "../plan-change-view.ts";
import { jobId, planChangeId } from "../resolve.ts";
import { JOB_ARGUMENT } from "./jobs.ts";

const LOOK_MILLISECONDS = 1000;

/** The plan that a text names, as the API takes it: whether it is one is for the API to say. */
async function choiceOf(text: string): Promise<PlanChoice> {
  if (isRank(text)) return Number(text);
  if (!isPath(text)) return text;
  const document = await readJson(
    text,
    "<plan>",
    { missing: "plan-invalid", invalid: "plan-invalid" },
    "a file with a plan in JSON",
  );
  // A candidate of `--json` output holds its plan.
  const plan =
    typeof document === "object" && document !== null && "plan" in document ? document.plan : document;
  return plan as PlanChoice;
}

/** Waits until a change has ended. */
async function untilEnded(
  client: InternEvoClient,
  { jobId: id, id: changeId }: PlanChange,
  signal: AbortSignal,
): Promise<PlanChange> {
  for (;;) {
    const { items } = await client.listPlanChanges(id, { signal });
    const change = items.find((one) => one.id === changeId);
    if (change && !isOpenPlanChange(change.state)) return change;
    await new Promise((resolve) => setTimeout(resolve, LOOK_MILLISECONDS));
    signal.throwIfAborted();
  }
}

interface Asked {
  readonly threshold?: number;
  readonly steps?: number;
  readonly wait?: true;
}

/** Another plan for a job that trains: asked for, made at a checkpoint, and judged by its steps. */
export function addPlanChange(program: Command, context: Context): void {
  const group = program
    .command("plan-change")
    .description(
      "change the plan that a job trains with, at a checkpoint, and back where it gains too little",
    );
  const show = (change: PlanChange): void => {
    const output = context.output();
    if (output.json) output.document(change);
    else output.data([`plan change ${change.id}`, ...planChangeLines(change)].join("\n"));
  };
  group
    .command("ask")
    .description("ask for a change: the ranks write a checkpoint, and go on under the new plan")
    .argument("<job>", JOB_ARGUMENT)
    .argument("<plan>", PLAN_HELP)
    .option(
      "--threshold <share>",
      "measured gain in step time below which the job goes back, e.g. 5%; default: 0, it must not be slower",
      shareArgument(-1, 1),
    )
    .option("--steps <count>", "steps that are compared; default: 10", integerArgument(1, 1000))
    .option("--wait", "stay until the change is judged")
    .action(async (name: string, text: string, { threshold, steps, wait }: Asked) => {
      const client = await context.client();
      const id = await jobId(client, name, context.signal);
      const change = await client.changePlan(
        id,
        {
          plan: await choiceOf(text),
          ...(threshold === undefined ? {} : { gainThreshold: threshold }),
          ...(steps === undefined ? {} : { compareSteps: steps }),
        },
        { signal: context.signal },
      );
      show(wait ? await untilEnded(client, change, context.signal) : change);
      if (!wait) context.output().note(`see what becomes of it with: internevo show ${id}`);
    });
  group
    .command("dismiss")
    .description("take a change back that was not made yet")
    .argument("<job>", JOB_ARGUMENT)
    .argument("<change>", "id of the change, or the beginning of it")
    .action(async (name: string, change: string) => {
      const client = await context.client();
      const id = await jobId(client, name, context.signal);
      const changeId = await planChangeId(client, id, change, context.signal);
      show(await client.dismissPlanChange(id, changeId, { signal: context.signal }));
    });
  group
    .command("list", { isDefault: true })
    .description("the changes of a job's plan, newest first")
    .argument("<job>", JOB_ARGUMENT)
    .action(async (name: string) => {
      const client = await context.client();
      const id = await jobId(client, name, context.signal);
      const { items } = await client.listPlanChanges(id, { signal: context.signal, limit: 200 });
      const output = context.output();
      if (output.json) output.document({ items });
      else output.data(items.length === 0 ? "no plan changes" : planChangesTable(items, output.colors));
    });
}
