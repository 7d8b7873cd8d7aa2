import {
  formatBytes,
  NONE_DIVIDES_REMEDY,
  parsePlanLabel,
  parsePlanPart,
  planLabel,
  plannedMemoryBytes,
  PlanSchema,
  ProblemError,
  rejectionCounts,
  termWords,
  validate,
  type JobSpec,
  type PartialPlan,
  type Plan,
  type PlanningResult,
  type ProblemCode,
  type Profile,
  takenByHeadroom,
  tooLittleMemory,
} from "@internevo/domain";
import { planOfJob, type PlanOfJob } from "@internevo/plan";
import { existsSync } from "node:fs";
import { extname } from "node:path";
import { feasibleFamilies, planJob, unmetOf } from "@internevo/search";
import { Type } from "typebox";
import type { Context } from "./context.ts";
import { readText } from "./files.ts";

/** How the help of a command describes a plan that it takes. */
export const PLAN_HELP = "a plan: as tables show it, a JSON file, or its rank in the job's own search";

/** A profile is some megabytes at most. */
const MAXIMUM_JSON_BYTES = 1 << 26;

/**
 * @param missing the code for a file that is not there; one that is there and cannot be used is `invalid`.
 */
export async function readJson(
  path: string,
  field: string,
  { missing, invalid }: Readonly<Record<"missing" | "invalid", ProblemCode>>,
  what: string,
): Promise<unknown> {
  const text = await readText(path, {
    code: invalid,
    missing,
    field,
    what,
    maximumBytes: MAXIMUM_JSON_BYTES,
    filled: true,
  });
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new ProblemError(
      invalid,
      `${path} is not JSON`,
      [{ field, value: path, message: (error as Error).message, remedy: "mend the file" }],
      { cause: error },
    );
  }
}

const {
  recompute: _recompute,
  forwardOverlap,
  backwardOverlap,
  gradientSharding,
  ...required
} = PlanSchema.properties;
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

/**
 * What is there, or is written as only paths are, is a file: everything else was meant as a plan, also with a
 * dot in a number.
 */
export const isPath = (text: string): boolean =>
  text === "-" || /^[./~]/.test(text) || /^\.[a-z]\w*$/i.test(extname(text)) || existsSync(text);

/** The plan that a text is, under the name of the argument. @throws ProblemError `plan-invalid`. */
export function readPlan<Read>(parse: (text: string) => Read, text: string, field: string): Read {
  try {
    return parse(text);
  } catch (error) {
    throw error instanceof ProblemError
      ? new ProblemError(
          error.code,
          error.message,
          error.details.map((detail) => ({ ...detail, field })),
          { cause: error },
        )
      : error;
  }
}

/** A plan in a JSON file, or as tables show it ("b1 n4 a0 pp1 …"). @throws ProblemError `plan-invalid`. */
export async function loadPlan(text: string, field: string, profile: Profile): Promise<Plan> {
  if (!isPath(text)) return readPlan(parsePlanLabel, text, field);
  const document = await readJson(
    text,
    field,
    { missing: "plan-invalid", invalid: "plan-invalid" },
    'a file with a plan in JSON, or the plan itself as tables show it, in quotes: "b1 n4 a0 pp1 …"',
  );
  // A candidate of `--json` output holds its plan.
  const plan =
    typeof document === "object" && document !== null && "plan" in document ? document.plan : document;
  const written = validate(WrittenPlanSchema, plan, "plan-invalid", `the plan ${text}`);
  const { forwardOverlap, backwardOverlap } = profile.executor;
  return {
    gradientSharding: 1,
    forwardOverlap,
    backwardOverlap,
    ...written,
    recompute: Boolean(written.recompute),
  };
}

const MOST_RANKED = 10_000;
export const isRank = (text: string): boolean => /^\d+$/.test(text.trim());

/** Why a job has no plan at all: what binds. */
function noPlan(job: JobSpec, { closest, counts, unmet }: PlanningResult): ProblemError {
  const limit = formatBytes(plannedMemoryBytes(job));
  if (unmet !== undefined)
    return new ProblemError("no-feasible-plan", "no plan meets what the job's `plan` asks for", [
      {
        field: "plan",
        value: job.plan,
        message: unmet,
        remedy: unmetOf(job)?.remedy ?? "give other values, or leave one of them free",
      },
    ]);
  if (closest === null) {
    const reasons = rejectionCounts(counts.rejected);
    return new ProblemError("no-feasible-plan", "no plan divides the job over the cluster", [
      {
        field: "cluster.nodes",
        value: job.cluster.nodes,
        message: `of ${job.cluster.gpusPerNode} GPUs share the job by no plan: ${reasons}`,
        remedy: NONE_DIVIDES_REMEDY,
      },
    ]);
  }
  const [line, bytes] = Object.entries(closest.memory).reduce((most, one) => (one[1] > most[1] ? one : most));
  const field = tooLittleMemory(job, closest.peakMemoryBytes);
  return new ProblemError("no-feasible-plan", `no plan fits ${limit} a GPU${takenByHeadroom(job)}`, [
    {
      field,
      value: field === "headroom" ? job.headroom : limit,
      message:
        `the least that any plan needs is ${formatBytes(closest.peakMemoryBytes)}, of ` +
        `which ${termWords(line)} ${formatBytes(bytes)} (${planLabel(closest.plan)})`,
      remedy:
        field === "headroom"
          ? "give less headroom, or the job more or larger GPUs"
          : "give the job more or larger GPUs, or a shorter sequence; " +
            "or another profile, where the runtime is what is too large",
    },
  ]);
}

/** A PLAN of a command line: its text, and the field that errors name. */
export interface PlanArgument {
  readonly text: string;
  readonly field: string;
  /** The plan that the text names, where that is known already. */
  readonly plan?: Plan | undefined;
}

/**
 * As {@link loadPlan}, or numbers: the plans of these ranks in the job's own search, of which there is one
 * for all of them.
 */
async function chooseAnyPlans(
  asked: readonly PlanArgument[],
  job: JobSpec,
  profile: Profile,
  { computing }: Pick<Context, "computing">,
): Promise<Plan[]> {
  const refuse = ({ text, field }: PlanArgument, message: string): ProblemError =>
    new ProblemError("plan-invalid", `there is no plan of rank ${text}: ${message}`, [
      {
        field,
        value: text,
        message,
        remedy: "give a rank that `internevo plan --top` lists, a plan as tables show it, or a JSON file",
      },
    ]);
  const rankOf = (one: PlanArgument): number | undefined => {
    if (one.plan !== undefined || !isRank(one.text)) return undefined;
    const rank = Number(one.text);
    if (rank < 1 || rank > MOST_RANKED) throw refuse(one, `ranks are from 1 to ${MOST_RANKED}`);
    return rank;
  };
  const ranks = asked.flatMap((one) => rankOf(one) ?? []);
  const ranked = new Map<number, Plan>();
  if (ranks.length > 0) {
    const result = computing(() => planJob(job, profile, { top: Math.max(...ranks), ranks }));
    if (result.counts.feasible === 0) throw noPlan(job, result);
    for (const { rank, plan } of result.candidates) ranked.set(rank, plan);
  }
  const plans: Plan[] = [];
  for (const one of asked) {
    const rank = rankOf(one);
    const plan =
      rank === undefined ? (one.plan ?? (await loadPlan(one.text, one.field, profile))) : ranked.get(rank);
    if (plan === undefined)
      throw refuse(one, `the last is ${computing(() => feasibleFamilies(job, profile))}`);
    plans.push(plan);
  }
  return plans;
}

/**
 * Plans of the job, by file, as tables show them, or by their ranks in the job's own search.
 * @throws ProblemError `plan-invalid`, also for a plan that does not divide the job; `no-feasible-plan` when
 * a rank is asked for and the job has no plan.
 */
export async function choosePlans(
  asked: readonly PlanArgument[],
  job: JobSpec,
  profile: Profile,
  context: Pick<Context, "computing">,
): Promise<PlanOfJob[]> {
  const plans = await chooseAnyPlans(asked, job, profile, context);
  return plans.map((plan, index) => planOfJob(plan, job, asked[index]?.field));
}

/** {@link choosePlans} of one. */
export async function choosePlan(
  text: string,
  field: string,
  job: JobSpec,
  profile: Profile,
  context: Pick<Context, "computing">,
): Promise<PlanOfJob> {
  const [plan] = await choosePlans([{ text, field }], job, profile, context);
  return plan as PlanOfJob;
}

/**
 * For the one question about plans that need not divide the job, nor be whole: why not. @throws ProblemError
 * as {@link choosePlan}, but not for that
 */
export async function chooseAnyPlan(
  text: string,
  field: string,
  job: JobSpec,
  profile: Profile,
  context: Pick<Context, "computing">,
): Promise<Plan | PartialPlan> {
  if (!isPath(text) && !isRank(text)) return readPlan(parsePlanPart, text, field);
  const [plan] = await chooseAnyPlans([{ text, field }], job, profile, context);
  return plan as Plan;
}
