import { resolve } from "node:path";
import { CostModel, GIVEN_PROFILE_WORDS } from "@internevo/cost-model";
import {
  documentsWords,
  estimatedProfileWords,
  formatCounted,
  formatInteger,
  formatPercent,
  formatSeconds,
  formatSignedPercent,
  laneEventsOf,
  planLabel,
  ProblemError,
  stepsOf,
  withoutTrainer,
  worldSize,
  type MeasuredTrace,
  type Plan,
} from "@internevo/domain";
import { isRunnable } from "@internevo/plan";
import { overlayTraces, simulateStep, stageShares, toTrace, type StageShares } from "@internevo/simulator";
import type { Command } from "commander";
import type { Context } from "../context.ts";
import { assertWritable, writeWhole } from "../files.ts";
import { NOTES_OPTION, showNotes, table, type Colors } from "../output.ts";
import { JOB_HELP } from "../named-job.ts";
import { jobProfile } from "../named-profile.ts";
import { PLAN_HELP, readJson } from "../plan-argument.ts";
import { addPlanningOptions, type PlanningOptions } from "../planning-options.ts";
import { findPlan } from "./memory.ts";

/** A step of more pieces than these takes longer to simulate, and to look at, than anybody waits. */
const MOST_PIECES = 2_000_000;

interface Simulated {
  readonly plan: Plan;
  readonly simulatedSeconds: number;
  /** By the closed form that plans are ranked with. */
  readonly predictedSeconds: number;
  readonly stages: readonly StageShares[];
}

interface SimulateOptions extends PlanningOptions {
  readonly profile?: string;
  readonly out?: string;
  readonly over?: string;
  readonly notes?: boolean;
}

function simulatedText(
  { plan, simulatedSeconds, predictedSeconds, stages }: Simulated,
  colors: Colors,
): string {
  const share = (seconds: number, of = simulatedSeconds): string =>
    of === 0 ? "–" : formatPercent(seconds / of);
  const rows = table<StageShares>(
    [
      { title: "STAGE", align: "right", value: ({ stage }) => String(stage) },
      { title: "COMPUTES", align: "right", value: ({ computeSeconds }) => share(computeSeconds) },
      { title: "STANDS STILL", align: "right", value: ({ exposedSeconds }) => share(exposedSeconds) },
      { title: "IDLE", align: "right", value: ({ idleSeconds }) => share(idleSeconds) },
      {
        title: "COMMUNICATION LANE",
        align: "right",
        value: ({ communicationSeconds }) => formatSeconds(communicationSeconds),
      },
      {
        title: "HIDDEN",
        align: "right",
        value: ({ hiddenSeconds, communicationSeconds }) => share(hiddenSeconds, communicationSeconds),
      },
    ],
    stages,
    colors,
  );
  return [
    `${colors.bold("plan")}      ${planLabel(plan)}`,
    `${colors.bold("a step")}    ${formatSeconds(simulatedSeconds)} simulated; ${formatSeconds(predictedSeconds)} by the formula that plans are ranked with (${formatSignedPercent((simulatedSeconds - predictedSeconds) / predictedSeconds)})`,
    "",
    rows,
  ].join("\n");
}

/** A measured timeline, and when each of its steps begins, microseconds, by its first rank. */
async function readMeasured(
  path: string,
): Promise<{ readonly trace: MeasuredTrace; readonly stepStarts: readonly number[] }> {
  const trace = (await readJson(
    path,
    "--over",
    { missing: "job-invalid", invalid: "job-invalid" },
    "a timeline that a job wrote, in JSON",
  )) as MeasuredTrace | null;
  const refuse = (message: string): ProblemError =>
    new ProblemError("job-invalid", `${path} is no timeline that a step can be laid over`, [
      {
        field: "--over",
        value: path,
        message,
        remedy: "give the file that a job with `timeline` wrote for an attempt or a trial",
      },
    ]);
  if (typeof trace !== "object" || trace === null || !Array.isArray(trace.traceEvents))
    throw refuse("has no traceEvents");
  let first: ReturnType<typeof laneEventsOf>[number] | undefined;
  try {
    first = laneEventsOf(trace).find((events) => events !== undefined);
  } catch (error) {
    throw refuse((error as Error).message);
  }
  const stepStarts = stepsOf(first ?? []).map(({ start }) => start * 1e6);
  if (stepStarts.length === 0) throw refuse("has no whole step: the ends of two steps are needed");
  return { trace, stepStarts };
}

async function simulate(
  path: string,
  text: string | undefined,
  options: SimulateOptions,
  context: Context,
): Promise<void> {
  if (options.over !== undefined && options.out === undefined)
    throw new ProblemError("job-invalid", "--over needs --out", [
      {
        field: "--out",
        value: null,
        message: "is missing",
        remedy: "say where the two timelines are written",
      },
    ]);
  if (options.out !== undefined) await assertWritable(options.out, "--out");
  const measured = options.over === undefined ? undefined : await readMeasured(options.over);
  const {
    spec: job,
    plan,
    profile: name,
  } = await findPlan(path, { ...options, plan: text }, context, "plan");
  const profile = await jobProfile(job, name, context);
  const pieces = plan.microBatches * job.model.layers * 24;
  if (pieces > MOST_PIECES)
    throw new ProblemError(
      "job-invalid",
      `a step of ${formatCounted(plan.microBatches, "micro-batch", "micro-batches")} is too long to simulate`,
      [
        {
          field: "plan.microBatches",
          value: plan.microBatches,
          message:
            `makes a timeline of about ${formatInteger(pieces)} pieces with ` +
            `${formatCounted(job.model.layers, "layer")}; at most ${formatInteger(MOST_PIECES)} are drawn`,
          remedy:
            "simulate a job of fewer tokens a step: at most " +
            `${formatCounted(Math.floor(MOST_PIECES / job.model.layers / 24), "micro-batch", "micro-batches")}`,
        },
      ],
    );
  const { runnable, reason } = isRunnable(plan, job);
  const costs = new CostModel(job, profile);
  const { stepTimeSeconds, spans } = context.computing(() => simulateStep(costs, plan));
  const answer: Simulated = {
    plan,
    simulatedSeconds: stepTimeSeconds,
    predictedSeconds: costs.predict(plan).stepTimeSeconds,
    stages: stageShares(spans),
  };
  const output = context.output();
  const documents = documentsWords(job);
  if (output.json) output.document({ ...answer, ...(documents === undefined ? {} : { documents }) });
  else
    output.data(
      [simulatedText(answer, output.colors), documents, estimatedProfileWords(profile, job.cluster)]
        .filter((part) => part !== undefined)
        .join("\n\n"),
    );
  if (!runnable && reason !== null) output.note(`note: ${withoutTrainer(reason)}`);
  showNotes(costs.warnings, output, options.notes === true);
  if (options.out === undefined) return;
  const trace = toTrace(spans, worldSize(plan) / plan.pipelineParallel);
  await writeWhole(
    options.out,
    JSON.stringify(
      measured === undefined ? trace : overlayTraces(measured.trace.traceEvents, trace, measured.stepStarts),
    ),
    "--out",
  );
  output.note(`the timeline is in ${resolve(options.out)}; open it at https://ui.perfetto.dev`);
}

export function addSimulate(program: Command, context: Context): void {
  const command = program
    .command("simulate")
    .description(
      "a step of a plan event by event: what every stage computes, waits for " +
        "and hides; its timeline for Perfetto, also over a measured one. Offline for a job file",
    )
    .argument("<job>", JOB_HELP)
    .argument("[plan]", `${PLAN_HELP}; default: the plan that the job trains with, of a file the best`)
    .option(
      "--profile <name or file>",
      `what was measured of the cluster: ${GIVEN_PROFILE_WORDS}, a file, or a stored one; default: the job's`,
    )
    .option("--out <file>", "write the timeline there, for https://ui.perfetto.dev")
    .option(
      "--over <timeline>",
      "a timeline that a job of this plan wrote: the simulated step is laid over each of its steps",
    );
  addPlanningOptions(command)
    .option(...NOTES_OPTION)
    .action((path: string, plan: string | undefined, options: SimulateOptions) =>
      simulate(path, plan, options, context),
    );
}
