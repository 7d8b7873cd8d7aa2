import { estimatesOf } from "@internevo/advisor";
import { GIVEN_PROFILE_WORDS } from "@internevo/cost-model";
import {
  MEMORY_MODELS,
  resolveJob,
  TIME_MODELS,
  type MemoryModelName,
  type PlanningResult,
  type TimeModelName,
} from "@internevo/domain";
import { planJob } from "@internevo/search";
import type { Command } from "commander";
import { Option } from "commander";
import { integerArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { measuredByFile } from "../estimates.ts";
import { EXIT, type ExitCode } from "../exit-codes.ts";
import { withDocuments } from "../job-documents.ts";
import { readJobFile } from "../job-input.ts";
import { NOTES_OPTION, showNotes, type Output } from "../output.ts";
import { jobProfile, type ProfileContext } from "../named-profile.ts";
import { choosePlan, PLAN_HELP } from "../plan-argument.ts";
import { addPlanningOptions, searchedJob, type PlanningOptions } from "../planning-options.ts";
import { planningText } from "../planning-view.ts";

const SHOWN = ["families", "plans"] as const;
type Shown = (typeof SHOWN)[number];

export interface PlanCommandOptions extends PlanningOptions {
  /** Path of a job file, `-` for standard input. */
  readonly job: string;
  readonly top: number;
  /** A shipped profile, a file, or a stored profile; default: the job's. */
  readonly profile?: string;
  readonly memoryModel?: MemoryModelName;
  readonly timeModel?: TimeModelName;
  /** What is listed: the best of each family, or the best plans whatever their family. */
  readonly show?: Shown;
  /** A plan whose rank is asked for: a JSON file, as tables show it, or a rank. */
  readonly locate?: string;
}

/**
 * Plans a job from its file alone: no service is needed, but for a profile that is stored.
 * @throws ProblemError for a job, profile or plan that cannot be read or is not valid.
 */
export async function planCommand(
  options: PlanCommandOptions,
  context: ProfileContext & Pick<Context, "computing">,
): Promise<PlanningResult> {
  const { memoryModel, timeModel } = options;
  const written = await withDocuments(resolveJob(await readJobFile(options.job)));
  const job = {
    ...searchedJob(written, options),
    ...(memoryModel ? { memoryModel } : {}),
    ...(timeModel ? { timeModel } : {}),
  };
  const profile = await jobProfile(job, options.profile, context);
  const locate =
    options.locate === undefined
      ? undefined
      : await choosePlan(options.locate, "--locate", job, profile, context);
  return context.computing(() => {
    const found = planJob(job, profile, {
      top: options.top,
      ...(options.show === "plans" ? { plans: options.top } : {}),
      ...(locate ? { locate } : {}),
    });
    // The published planner reads other measurements than ours, and estimates none.
    if (job.timeModel === "published") return found;
    const estimates = estimatesOf(job, [job], profile, measuredByFile(options.job, job, options.profile));
    return { ...found, ...(estimates === undefined ? {} : { estimates }) };
  });
}

/**
 * Writes a result: one JSON document, or tables. @param notes whether to say what the figures rest on.
 * @returns the exit status: 3 when no plan is feasible.
 */
export function showPlanning(result: PlanningResult, output: Output, notes: boolean): ExitCode {
  if (output.json) output.document(result);
  else {
    output.data(planningText(result, output.colors));
    showNotes(result.warnings, output, notes);
  }
  return result.counts.feasible > 0 ? EXIT.ok : EXIT.noFeasiblePlan;
}

export function addPlan(program: Command, context: Context): void {
  const command = program
    .command("plan")
    .description("search the plans of a job, offline: no service is needed")
    .argument("<job>", "job file, YAML or JSON; - for standard input")
    .option("--top <k>", "how many of the best plans", integerArgument(1, 10_000), 10)
    .addOption(
      new Option(
        "--show <what>",
        "families: of all plans with the same ranks, shards and batches the best, by whose ranks other commands name plans; plans: single plans",
      )
        .choices(SHOWN)
        .default("families"),
    )
    .option(
      "--profile <name or file>",
      `what was measured of the cluster: ${GIVEN_PROFILE_WORDS}, a file, or a stored one; default: the job's`,
    )
    .addOption(
      new Option("--memory-model <model>", "how memory is predicted; default: the job's").choices(
        MEMORY_MODELS,
      ),
    )
    .addOption(
      new Option("--time-model <model>", "how time is predicted; default: the job's").choices(TIME_MODELS),
    )
    .option("--locate <plan>", `${PLAN_HELP}: say its rank, or why it is rejected`);
  addPlanningOptions(command)
    .option(...NOTES_OPTION)
    .action(
      async (
        job: string,
        { notes = false, ...options }: Omit<PlanCommandOptions, "job"> & { notes?: boolean },
      ) => {
        context.setExitCode(
          showPlanning(await planCommand({ job, ...options }, context), context.output(), notes),
        );
      },
    );
}
