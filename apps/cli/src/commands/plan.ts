import { readFile } from "node:fs/promises";
import { findShippedProfile, parseProfile, SHIPPED_PROFILES } from "@internevo/cost-model";
import { PlanSchema, ProblemError, resolveJob, validate, type JobSpec, type Plan, type PlanningResult, type ProblemCode, type Profile } from "@internevo/domain";
import { planJob } from "@internevo/search";
import type { Command } from "commander";
import { Option } from "commander";
import { Type } from "typebox";
import { integerArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { EXIT, type ExitCode } from "../exit-codes.ts";
import { readJobFile } from "../job-input.ts";
import type { Output } from "../output.ts";
import { planningText } from "../planning-view.ts";

export interface PlanCommandOptions {
  /** Path of a job file, `-` for standard input. */
  readonly job: string;
  readonly top: number;
  /** Name of a shipped profile, or path of a profile file; default: the job's. */
  readonly profile?: string;
  readonly memoryModel?: JobSpec["memoryModel"];
  /** Path of a plan whose rank is asked for. */
  readonly locate?: string;
}

/** @param missing the code for a file that is not there; one that is there and cannot be used is `invalid`. */
async function readJson(path: string, field: string, { missing, invalid }: Readonly<Record<"missing" | "invalid", ProblemCode>>, what: string): Promise<unknown> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const message = code === "ENOENT" ? "does not exist" : code === "EISDIR" ? "is a directory" : `cannot be read (${code ?? String(error)})`;
    throw new ProblemError(code === "ENOENT" ? missing : invalid, `${what} ${path} ${message}`, [{ field, value: path, message, remedy: `give the path of ${what} in JSON` }], { cause: error });
  }
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new ProblemError(invalid, `${path} is not JSON`, [{ field, value: path, message: (error as Error).message, remedy: "mend the file" }], { cause: error });
  }
}

/** A shipped profile by name, else a profile file. @throws ProblemError `profile-missing` or `profile-invalid`. */
export async function loadProfile(nameOrPath: string | null, field: string): Promise<Profile> {
  const shipped = `a shipped profile (${SHIPPED_PROFILES.join(", ")}) or the path of a profile file`;
  if (nameOrPath === null) {
    throw new ProblemError("profile-missing", "the job names no profile, and planning offline measures nothing", [{ field, value: null, message: "is missing", remedy: `give --profile, or cluster.profile in the job: ${shipped}` }]);
  }
  const found = findShippedProfile(nameOrPath);
  if (found) return found;
  if (!nameOrPath.includes("/") && !nameOrPath.endsWith(".json")) {
    throw new ProblemError("profile-missing", `there is no profile ${nameOrPath}`, [{ field, value: nameOrPath, message: "is neither a shipped profile nor a file", remedy: `give ${shipped}` }]);
  }
  return parseProfile(await readJson(nameOrPath, field, { missing: "profile-missing", invalid: "profile-invalid" }, "a profile"), `the profile ${nameOrPath}`);
}

const { recompute: _recompute, forwardOverlap, backwardOverlap, gradientSharding, ...required } = PlanSchema.properties;
/** A plan as tables write it: recomputation as true or as 1, and what has a default may be left out. */
const WrittenPlanSchema = Type.Object(
  {
    ...required,
    recompute: Type.Union([Type.Boolean(), Type.Literal(0), Type.Literal(1)]),
    gradientSharding: Type.Optional(gradientSharding),
    forwardOverlap: Type.Optional(forwardOverlap),
    backwardOverlap: Type.Optional(backwardOverlap),
  },
  { additionalProperties: false },
);

async function loadPlan(path: string, profile: Profile): Promise<Plan> {
  const document = await readJson(path, "--locate", { missing: "plan-invalid", invalid: "plan-invalid" }, "a plan");
  // A candidate of `--json` output holds its plan.
  const plan = typeof document === "object" && document !== null && "plan" in document ? document.plan : document;
  const written = validate(WrittenPlanSchema, plan, "plan-invalid", `the plan ${path}`);
  return { gradientSharding: 1, ...profile.executor, ...written, recompute: Boolean(written.recompute) };
}

/**
 * Plans a job from its file alone: no service is needed.
 * @throws ProblemError for a job, profile or plan that cannot be read or is not valid.
 */
export async function planCommand(options: PlanCommandOptions): Promise<PlanningResult> {
  const job = resolveJob(await readJobFile(options.job));
  const profile = await loadProfile(options.profile ?? job.cluster.profile, options.profile === undefined ? "cluster.profile" : "--profile");
  const locate = options.locate === undefined ? undefined : await loadPlan(options.locate, profile);
  return planJob(job, profile, {
    top: options.top,
    ...(options.memoryModel ? { memoryModel: options.memoryModel } : {}),
    ...(locate ? { locate } : {}),
  });
}

/** Writes a result: one JSON document, or tables. @returns the exit status: 3 when no plan is feasible. */
export function showPlanning(result: PlanningResult, output: Output): ExitCode {
  if (output.json) output.document(result);
  else {
    output.data(planningText(result, output.colors));
    for (const warning of result.warnings) output.note(`note: ${warning}`);
  }
  return result.counts.feasible > 0 ? EXIT.ok : EXIT.noFeasiblePlan;
}

export function addPlan(program: Command, context: Context): void {
  program
    .command("plan")
    .description("search the plans of a job, offline: no service is needed")
    .argument("<job>", "job file, YAML or JSON; - for standard input")
    .option("--top <k>", "how many of the best plans", integerArgument(1, 10_000), 10)
    .option("--profile <name or file>", `what was measured of the cluster: ${SHIPPED_PROFILES.join(", ")}, or a file; default: the job's`)
    .addOption(new Option("--memory-model <model>", "how memory is predicted; default: the job's").choices(["executor", "paper"]))
    .option("--locate <plan>", "JSON file of a plan: say its rank, or why it is rejected")
    .action(async (job: string, options: Omit<PlanCommandOptions, "job">) => {
      context.setExitCode(showPlanning(await planCommand({ job, ...options }), context.output()));
    });
}
