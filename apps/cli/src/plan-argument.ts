import { readFile } from "node:fs/promises";
import { looksLikePlanLabel, parsePlanLabel, PlanSchema, ProblemError, validate, type JobSpec, type Plan, type ProblemCode, type Profile } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { Type } from "typebox";

/** @param missing the code for a file that is not there; one that is there and cannot be used is `invalid`. */
export async function readJson(path: string, field: string, { missing, invalid }: Readonly<Record<"missing" | "invalid", ProblemCode>>, what: string): Promise<unknown> {
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

/** A plan in a JSON file, or as tables show it ("b1 n4 a0 pp1 …"). @throws ProblemError `plan-invalid`. */
export async function loadPlan(text: string, field: string, profile: Profile): Promise<Plan> {
  if (looksLikePlanLabel(text)) return parsePlanLabel(text);
  const document = await readJson(text, field, { missing: "plan-invalid", invalid: "plan-invalid" }, "a plan");
  // A candidate of `--json` output holds its plan.
  const plan = typeof document === "object" && document !== null && "plan" in document ? document.plan : document;
  const written = validate(WrittenPlanSchema, plan, "plan-invalid", `the plan ${text}`);
  return { gradientSharding: 1, ...profile.executor, ...written, recompute: Boolean(written.recompute) };
}

const MOST_RANKED = 10_000;

/** As {@link loadPlan}, or a number: the plan of that rank in the job's own search. @throws ProblemError `plan-invalid`. */
export async function choosePlan(text: string, field: string, job: JobSpec, profile: Profile): Promise<Plan> {
  if (!/^\d+$/.test(text.trim())) return loadPlan(text, field, profile);
  const rank = Number(text);
  const { candidates, counts } = rank >= 1 && rank <= MOST_RANKED ? planJob(job, profile, { top: rank }) : { candidates: [], counts: { feasible: 0 } };
  const plan = candidates[rank - 1]?.plan;
  if (plan !== undefined) return plan;
  const message = rank >= 1 && rank <= MOST_RANKED ? `there are ${candidates.length} to choose from (${counts.feasible} plans are feasible)` : `is not from 1 to ${MOST_RANKED}`;
  throw new ProblemError("plan-invalid", `there is no plan of rank ${text}: ${message}`, [{ field, value: text, message, remedy: "give a rank that `internevo plan --top` lists, a plan as tables show it, or a JSON file" }]);
}
