import { resolve } from "node:path";
import { ApiConnectionError } from "@internevo/client";
import {
  formatBytes,
  formatCounted,
  looksLikePlanLabel,
  parsePlanLabel,
  planLabel,
  plannedMemoryBytes,
  ProblemError,
  termWords,
  worldSize,
  trainedPlan,
  type JobSpec,
  type MemoryLines,
  type Plan,
  type Profile,
} from "@internevo/domain";
import { planOfJob, type PlanOfJob } from "@internevo/plan";
import { StepClock } from "@internevo/simulator";
import type { Command } from "commander";
import { integerArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { assertWritable, writeWhole } from "../files.ts";
import { memoryPicture } from "../memory/picture.ts";
import {
  planMemory,
  trainerProgram,
  type PlanMemoryOptions,
  type PlannedMemory,
} from "../memory/plan-memory.ts";
import { tooLittleMemory } from "../memory/does-not-fit.ts";
import { linesOf } from "../memory/regions.ts";
import { memoryTable } from "../memory/table.ts";
import { jobProfile, type ProfileContext } from "../named-profile.ts";
import { JOB_HELP, namedJob, rankedPlan } from "../named-job.ts";
import {
  addPlanningOptions,
  hasPlanningOptions,
  searchedJob,
  type PlanningOptions,
} from "../planning-options.ts";
import { choosePlan, PLAN_HELP, readPlan, type PlanArgument } from "../plan-argument.ts";

interface MemoryOptions extends PlanningOptions {
  readonly plan?: string;
  readonly profile?: string;
  readonly rank?: number;
  readonly svg?: string;
  readonly all?: boolean;
}

/**
 * The plan that is asked for: as tables show it, or by file, or by its rank in the search, for which a
 * profile is needed.
 */
async function planOf(
  spec: JobSpec,
  { text, field, plan }: PlanArgument,
  profile: string | undefined,
  context: Context,
): Promise<PlanOfJob> {
  if (plan !== undefined) return planOfJob(plan, spec, field);
  if (looksLikePlanLabel(text)) return planOfJob(readPlan(parsePlanLabel, text, field), spec, field);
  return choosePlan(text, field, spec, await jobProfile(spec, profile, context), context);
}

/**
 * The profile that is given, or that the job names and that can be read here; null when there is none: a
 * submitted job's is stored where it ran.
 */
export async function profileOf(
  spec: JobSpec,
  profile: string | undefined,
  context: ProfileContext,
): Promise<Profile | null> {
  try {
    return await jobProfile(spec, profile, context);
  } catch (error) {
    const isMissing =
      error instanceof ApiConnectionError ||
      (error instanceof ProblemError && error.code === "profile-missing");
    if (profile === undefined && isMissing) return null;
    throw error; // it is here, and damaged
  }
}

/**
 * A job's file and the plan asked for, else the best; or a job that was submitted, and the plan that it trains with.
 * Where options change the search, the best of a submitted job too.
 * @param field the argument that names the plan, for errors
 * @returns `profile`: the one that was given, or that a submitted job was planned with; `isBest`: nobody named
 *   or chose the plan.
 */
export async function findPlan(
  text: string,
  {
    plan,
    profile,
    ...changed
  }: PlanningOptions & { readonly plan?: string | undefined; readonly profile?: string | undefined },
  context: Context,
  field = "--plan",
): Promise<{ spec: JobSpec; plan: PlanOfJob; profile: string | undefined; isBest: boolean }> {
  const named = await namedJob(text, profile, context);
  const { spec, profile: used, submitted } = named;
  const searched = searchedJob(spec, changed);
  const asked = plan ?? (submitted === null || hasPlanningOptions(changed) ? "1" : undefined);
  if (asked !== undefined)
    return {
      spec,
      plan: await planOf(
        searched,
        { text: asked, field, plan: rankedPlan(asked, named, { ...changed, profile }) },
        used,
        context,
      ),
      profile: used,
      isBest: plan === undefined,
    };
  const trained = submitted && trainedPlan(submitted);
  if (trained === null) {
    throw new ProblemError("conflict", `${spec.name} has chosen no plan yet`, [
      {
        field: "job",
        value: text,
        message: "has no plan",
        remedy: "wait until its trials are over, or name a plan",
      },
    ]);
  }
  return { spec, plan: planOfJob(trained, spec), profile: used, isBest: false };
}

/**
 * The pipeline stage of a rank; ranks of a stage need the same memory. @throws ProblemError `bad-request`.
 */
function stageOf(plan: Plan, rank: number | undefined): number | null {
  if (rank === undefined) return null;
  const ranks = worldSize(plan);
  if (rank >= ranks)
    throw new ProblemError("bad-request", `the plan has no rank ${rank}`, [
      {
        field: "--rank",
        value: rank,
        message: `is not below the plan's ${ranks} ranks`,
        remedy: `give a rank from 0 to ${ranks - 1}`,
      },
    ]);
  return Math.floor(rank / (ranks / plan.pipelineParallel));
}

/** Whose memory is shown: of the stage that is the fullest, or of a rank that was asked for. */
function whoseMemory(stages: number, rank: number | undefined, stage: number): string {
  if (rank !== undefined) return `rank ${rank}, stage ${stage}`;
  return stages > 1 ? `stage ${stage}, the fullest` : "every rank";
}

export function addMemory(program: Command, context: Context): void {
  const command = program
    .command("memory")
    .description(
      "where everything lies in a rank's memory, and when in a step " +
        "it is in use: a table, and a picture. Offline for a job file",
    )
    .argument("<job>", JOB_HELP)
    .option("--plan <plan>", `${PLAN_HELP}; default: the plan that the job trains with, of a file the best`)
    .option(
      "--profile <name or file>",
      "what was measured of the cluster: the plan is found with it, and it says what the program itself takes; default: the job's",
    )
    .option("--rank <rank>", "memory of this rank; default: the fullest", integerArgument(0, 2 ** 31 - 1))
    .option("--svg <file>", "write the picture: address against time of one step")
    .option("--all", "list every region, however many there are");
  addPlanningOptions(command).action((text: string, options: MemoryOptions) =>
    showMemory(text, options, context),
  );
}

/** Lines of memory that lie outside the arena, and so have no region in it. */
const BESIDE_ARENA = ["timeline", "communicators"] as const;

export interface Totals {
  readonly arenaBytes: number;
  /** Null: no profile says it. */
  readonly programBytes: number | null;
  /** What a rank needs beside its arena and the program itself, by the names of memory's lines. */
  readonly besideArena: MemoryLines;
  readonly checkpointStagingBytes: number;
  readonly totalBytes: number;
  /** As `internevo plan` counts. */
  readonly totalAsPlannedBytes: number;
}

/**
 * The trainer's lines with the program itself as the profile has it, as the planner counts it. What the
 * trainer says of it before its first step is far too little: libraries and communicators come with the
 * ranks.
 */
function withProgram(
  arenaBytes: number,
  { runtime: _beforeItsFirstStep, ...lines }: MemoryLines,
  profile: Profile | null,
): { memory: MemoryLines; totals: Totals } {
  const programBytes = profile?.device.runtimeBytes ?? null;
  const checkpointStagingBytes = lines["checkpointStaging"] ?? 0;
  const besideArena = Object.fromEntries(BESIDE_ARENA.map((name) => [name, lines[name] ?? 0]));
  const besideArenaBytes = Object.values(besideArena).reduce((sum, bytes) => sum + bytes, 0);
  const totalBytes = arenaBytes + besideArenaBytes + (programBytes ?? 0);
  return {
    memory: programBytes === null ? lines : { ...lines, runtime: programBytes },
    totals: {
      arenaBytes,
      programBytes,
      besideArena,
      checkpointStagingBytes,
      totalBytes,
      totalAsPlannedBytes: totalBytes - checkpointStagingBytes,
    },
  };
}

/** The memory of one rank, and what it comes to. */
interface Accounted {
  readonly planned: PlannedMemory;
  readonly stageLayers: number | undefined;
  readonly memory: MemoryLines;
  readonly totals: Totals;
}

function accountOf(planned: PlannedMemory, profile: Profile | null): Accounted {
  const { memoryMap: map, stages } = planned;
  const stage = stages[map.stage];
  const lines = stage?.memory ?? planned.memory;
  return { planned, stageLayers: stage?.layers, ...withProgram(map.arenaBytes, lines, profile) };
}

/**
 * Asks the trainer. What a program takes that runs is the profile's to say, and not the trainer's that only plans: so
 * where a profile is known, what fits is decided here, as the planner does. Checkpoints have their staging where
 * there is room for it.
 */
async function accountFor(
  asked: Omit<PlanMemoryOptions, "memoryLimitBytes" | "hasCheckpointStaging">,
  profile: Profile | null,
  limitBytes: number,
): Promise<Accounted & { readonly lacksStaging: boolean }> {
  if (profile === null) return { ...accountOf(await planMemory(asked), null), lacksStaging: false };
  const unbound = { ...asked, memoryLimitBytes: null };
  const whole = accountOf(await planMemory(unbound), profile);
  const { totalBytes, checkpointStagingBytes } = whole.totals;
  const lacksStaging = totalBytes > limitBytes && checkpointStagingBytes > 0;
  if (!lacksStaging) return { ...whole, lacksStaging };
  const without = await planMemory({ ...unbound, hasCheckpointStaging: false });
  return { ...accountOf(without, profile), lacksStaging };
}

/** What the planner counts: of the fullest rank, which may be another one than is shown. */
function plannedText(
  { checkpointStagingBytes: staging, totalAsPlannedBytes }: Totals,
  lacksStaging: boolean,
  fuller: Accounted | null,
): string {
  if (fuller !== null)
    return (
      "`internevo plan` counts the fullest rank, which is of " +
      `stage ${fuller.planned.memoryMap.stage}: ${formatBytes(fuller.totals.totalAsPlannedBytes)}`
    );
  return staging > 0
    ? `\`internevo plan\` counts ${formatBytes(totalAsPlannedBytes)}, without the ${formatBytes(staging)} of checkpoint staging`
    : `\`internevo plan\` counts the same${lacksStaging ? "; without room for their staging, checkpoints are written in the step loop" : ""}`;
}

/**
 * What a rank's memory comes to, part by part.
 * @param planned what the planner counts, as {@link plannedText} says it
 */
export function totalsText(
  { programBytes, besideArena, totalBytes }: Totals,
  profile: Pick<Profile, "name"> | null,
  planned: string,
): string {
  const beside = Object.entries(besideArena)
    .filter(([, bytes]) => bytes > 0)
    .map(([name, bytes]) => `${formatBytes(bytes)} of ${termWords(name)}`);
  const with_ = (parts: readonly string[]): string =>
    parts.length === 0 ? "" : `with ${parts.join(" and ")}, `;
  if (profile === null || programBytes === null)
    return (
      `${with_(beside)}a rank needs more than these ${formatBytes(totalBytes)}: ` +
      "the program itself is not counted, because no profile says what it takes (--profile)"
    );
  const program = `${formatBytes(programBytes)} of the program itself, as the profile ${profile.name} has it,`;
  const comma = beside.length > 0 ? "," : "";
  return `with ${[program, ...beside].join(" and ")}${comma} ${formatBytes(totalBytes)}; ${planned}`;
}

/** The account of the fullest rank, where a profile is known and it needs more than the one that is shown. */
async function fullerThan(
  shown: Accounted,
  asked: Parameters<typeof accountFor>[0],
  profile: Profile | null,
  limitBytes: number,
): Promise<Accounted | null> {
  if (asked.stage === null || profile === null) return null;
  const fullest = await accountFor({ ...asked, stage: null }, profile, limitBytes);
  return fullest.totals.totalAsPlannedBytes > shown.totals.totalAsPlannedBytes ? fullest : null;
}

async function showMemory(text: string, options: MemoryOptions, context: Context): Promise<void> {
  if (options.svg !== undefined) await assertWritable(options.svg, "--svg");
  const { spec, plan, profile } = await findPlan(text, options, context);
  const limitBytes = plannedMemoryBytes(searchedJob(spec, options));
  const known = await profileOf(spec, profile, context);
  const asked = {
    spec,
    plan,
    stage: stageOf(plan, options.rank),
    program: trainerProgram(context.env),
    signal: context.signal,
  };
  const account = await accountFor(asked, known, limitBytes);
  const { planned, stageLayers, memory, totals, lacksStaging } = account;
  const { memoryMap: map } = planned;
  const output = context.output();
  const clock = new StepClock(map);
  const lines = linesOf(map, clock);
  const who = `${whoseMemory(plan.pipelineParallel, options.rank, map.stage)}${stageLayers === undefined ? "" : `: ${formatCounted(stageLayers, "layer")}`}`;
  const summary =
    `${formatBytes(map.arenaBytes)} planned by offset in ` +
    `${formatCounted(map.pieces.length, "piece")}; ${who}`;
  if (options.svg !== undefined) {
    const title = `${spec.model.name}, ${formatCounted(spec.sequenceLengthTokens, "token")}: memory of one rank`;
    await writeWhole(
      options.svg,
      memoryPicture(map, lines, clock, { title, subtitle: `${planLabel(plan)} · ${summary}` }),
      "--svg",
    );
  }
  if (output.json)
    output.document({
      job: spec.name,
      plan,
      rank: options.rank ?? null,
      memory,
      plannedPeakBytes: totals.totalBytes,
      totals,
      memoryMap: map,
    });
  else {
    const counted = plannedText(totals, lacksStaging, await fullerThan(account, asked, known, limitBytes));
    output.data(
      `${output.colors.bold(spec.name)}: ${planLabel(plan)}\n${summary}\n${totalsText(totals, known, counted)}\n\n${memoryTable(lines, { all: options.all === true, colors: output.colors })}`,
    );
  }
  if (options.svg !== undefined) output.note(`the picture is in ${resolve(options.svg)}`);
  // What it needs is shown first: that is how one finds what to change.
  if (known !== null && totals.totalAsPlannedBytes > limitBytes) {
    const needed = Object.entries(memory).map(([name, bytes]) => ({ name, bytes }));
    throw tooLittleMemory(totals.totalAsPlannedBytes, limitBytes, needed, spec);
  }
}
