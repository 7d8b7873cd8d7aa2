import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import { formatBytes, parsePlanLabel, looksLikePlanLabel, planLabel, ProblemError, resolveJob, worldSize, type JobSpec, type Plan } from "@internevo/domain";
import type { Command } from "commander";
import { integerArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { readJobFile } from "../job-input.ts";
import { memoryPicture } from "../memory/picture.ts";
import { planMemory, trainerProgram } from "../memory/plan-memory.ts";
import { linesOf } from "../memory/regions.ts";
import { StepClock } from "../memory/step-clock.ts";
import { memoryTable } from "../memory/table.ts";
import { choosePlan } from "../plan-argument.ts";
import { jobId } from "../resolve.ts";
import { loadProfile } from "./plan.ts";

interface MemoryOptions {
  readonly plan?: string;
  readonly profile?: string;
  readonly rank?: number;
  readonly svg?: string;
  readonly all?: boolean;
}

const isFile = (text: string): boolean => text === "-" || /\.(ya?ml|json)$/i.test(text) || existsSync(text);

/** The plan that is asked for: as tables show it, or by file, or by its rank in the search, for which a profile is needed. */
async function planOf(spec: JobSpec, text: string, profile: string | undefined): Promise<Plan> {
  if (looksLikePlanLabel(text)) return parsePlanLabel(text);
  return choosePlan(text, "--plan", spec, await loadProfile(profile ?? spec.cluster.profile, profile === undefined ? "cluster.profile" : "--profile"));
}

/** A job's file and the plan asked for, else the best; or a job that was submitted, and the plan it chose. */
export async function findPlan(text: string, { plan, profile }: Pick<MemoryOptions, "plan" | "profile">, context: Context): Promise<{ spec: JobSpec; plan: Plan }> {
  if (isFile(text)) {
    const spec = resolveJob(await readJobFile(text));
    return { spec, plan: await planOf(spec, plan ?? "1", profile) };
  }
  const client = await context.client();
  const { spec, chosen, name } = await client.getJob(await jobId(client, text, context.signal), { signal: context.signal });
  if (plan !== undefined) return { spec, plan: await planOf(spec, plan, profile) };
  if (chosen === null) {
    throw new ProblemError("conflict", `${name} has chosen no plan yet`, [{ field: "job", value: text, message: "has no plan", remedy: "wait until its trials are over, or give --plan" }]);
  }
  return { spec, plan: chosen.plan };
}

/** The pipeline stage of a rank; ranks of a stage need the same memory. @throws ProblemError `bad-request`. */
function stageOf(plan: Plan, rank: number | undefined): number | null {
  if (rank === undefined) return null;
  const ranks = worldSize(plan);
  if (rank >= ranks) throw new ProblemError("bad-request", `the plan has no rank ${rank}`, [{ field: "--rank", value: rank, message: `is not below the plan's ${ranks} ranks`, remedy: `give a rank from 0 to ${ranks - 1}` }]);
  return Math.floor(rank / (ranks / plan.pipelineParallel));
}

export function addMemory(program: Command, context: Context): void {
  program
    .command("memory")
    .description("where everything lies in a rank's memory, and when in a step it is in use: a table, and a picture. Offline for a job file")
    .argument("<job>", "job file, YAML or JSON (- for standard input); or a job's id, the beginning of it, or its name")
    .option("--plan <plan>", "as tables show it, a JSON file, or its rank in the job's own search; default: the job's chosen plan, of a file the best")
    .option("--profile <name or file>", "what was measured of the cluster, to find the plan with; default: the job's")
    .option("--rank <rank>", "memory of this rank; default: the fullest", integerArgument(0, 2 ** 31 - 1))
    .option("--svg <file>", "write the picture: address against time of one step")
    .option("--all", "list every region, however many there are")
    .action(async (text: string, options: MemoryOptions) => {
      const { spec, plan } = await findPlan(text, options, context);
      const planned = await planMemory({ spec, plan, stage: stageOf(plan, options.rank), program: trainerProgram(context.env), signal: context.signal });
      const { memoryMap: map, stages } = planned;
      const output = context.output();
      const clock = new StepClock(map);
      const lines = linesOf(map, clock);
      const stage = stages[map.stage];
      const runtime = stage?.memory["runtime"] ?? 0;
      const who = `${options.rank === undefined ? (plan.pipelineParallel > 1 ? `stage ${map.stage}, the fullest` : "every rank") : `rank ${options.rank}, stage ${map.stage}`}${stage ? `: ${stage.layers} layers` : ""}`;
      const summary = `${formatBytes(map.arenaBytes)} planned, ${map.pieces.length} pieces; ${who}`;
      if (options.svg !== undefined) {
        const title = `${spec.model.name}, ${spec.sequenceLengthTokens.toLocaleString("en").replaceAll(",", " ")} tokens: memory of one rank`;
        await writeFile(options.svg, memoryPicture(map, lines, clock, { title, subtitle: `${planLabel(plan)} · ${summary}` }));
      }
      if (output.json) output.document({ job: spec.name, plan, rank: options.rank ?? null, memory: stage?.memory ?? planned.memory, plannedPeakBytes: stage?.plannedPeakBytes ?? planned.plannedPeakBytes, memoryMap: map });
      else {
        output.data(`${output.colors.bold(spec.name)}: ${planLabel(plan)}\n${summary}; beside it ${formatBytes(runtime)} of the program itself\n\n${memoryTable(lines, { all: options.all === true, colors: output.colors })}`);
      }
      if (options.svg !== undefined) output.note(`the picture is in ${resolve(options.svg)}`);
    });
}
