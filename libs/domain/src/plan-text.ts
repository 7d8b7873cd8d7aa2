import type { PlanConstraints } from "./plan-constraints.ts";
import type { Plan } from "./plan.ts";
import { ProblemError } from "./problem.ts";

const NUMBERS: Readonly<Record<string, keyof Plan>> = {
  b: "microBatchSize",
  n: "microBatches",
  pp: "pipelineParallel",
  dp: "dataParallel",
  tp: "tensorParallel",
  sp: "sequenceParallel",
  cp: "contextParallel",
  ps: "parameterSharding",
  gs: "gradientSharding",
  oss: "optimizerStateSharding",
  v: "pipelineChunks",
  k: "recomputeLayers",
};

/** What a whole plan must say; the rest has a default. */
const NEEDED = ["b", "n", "pp", "dp", "sp", "ps"] as const;

/** What a label may leave out, because plans do. */
const DEFAULTS: Partial<Plan> = { tensorParallel: 1, gradientSharding: 1, optimizerStateSharding: 1, recompute: false, forwardOverlap: "none", backwardOverlap: "none" };

/** Names that other programs have for the same factors. */
const ELSEWHERE: Readonly<Record<string, string>> = { mbs: "b", micro_batch_size: "b", ga: "n", gas: "n", vpp: "v", tensor_parallel: "tp", pipeline_parallel: "pp", data_parallel: "dp", context_parallel: "cp", sequence_parallel: "sp" };

const EXAMPLE = "b1 n4 a0 pp1 dp2 tp1 sp4 ps8 gs1 oss1 ovinter-layer/intra-layer";

const PART = String.raw`(?:[a-z]+\d+|ov[a-z-]+\/[a-z-]+)`;
const LABEL = new RegExp(String.raw`^\s*${PART}(?:\s+${PART})*\s*$`);

/** Whether a text is meant as a plan's label, or as a part of one, and not, say, as a file's name. */
export const looksLikePlanLabel = (text: string): boolean => LABEL.test(text);

/** Fields of a plan that a text gives: all of a plan, or some of them. */
export type PartialPlan = Partial<Plan>;

function fault(text: string, message: string, remedy: string): ProblemError {
  return new ProblemError("plan-invalid", `\`${text}\` is not a plan: ${message}`, [{ field: "plan", value: text, message, remedy }]);
}

/** "tp8 pp1" for "TP=8,PP=1"; undefined where that is not what the text is. */
function translated(text: string): string | undefined {
  const parts = text.trim().split(/[\s,;]+/).map((part) => /^-*([a-z_]+)\s*[=:]\s*(\d+)$/i.exec(part));
  if (parts.includes(null)) return undefined;
  const known = parts.map((part) => {
    const name = (part?.[1] ?? "").toLowerCase();
    const own = Object.hasOwn(NUMBERS, name) ? name : ELSEWHERE[name];
    return own === undefined ? undefined : `${own}${part?.[2] ?? ""}`;
  });
  return known.includes(undefined) ? undefined : known.join(" ");
}

/** Of what is left out by default, nothing is written down, so that equal plans are equal values. */
function withoutDefaults<Part extends PartialPlan>(plan: Part): Part {
  const { contextParallel, pipelineChunks, recomputeLayers, ...rest } = plan;
  return {
    ...rest,
    ...(contextParallel === undefined || contextParallel === 1 ? {} : { contextParallel }),
    ...(pipelineChunks === undefined || pipelineChunks === 1 ? {} : { pipelineChunks }),
    ...(recomputeLayers === undefined || recomputeLayers === 0 ? {} : { recomputeLayers }),
  } as Part;
}

/** The fields that a text names, each once. @throws ProblemError `plan-invalid` that names the part. */
function fieldsOf(text: string): PartialPlan {
  if (text.trim() === "") throw fault(text, "it is empty", `write a plan as tables show it, e.g. "${EXAMPLE}"`);
  const own = translated(text);
  if (own !== undefined) throw fault(text, "its parts are written as another program writes them", `write "${own}"`);
  const fields = new Map<keyof Plan, unknown>();
  for (const part of text.trim().split(/\s+/)) {
    const overlap = /^ov(none|block|inter-layer|intra-layer)\/(none|block|intra-layer)$/.exec(part);
    const [, name = "", digits] = /^([a-z]+)(\d+)$/.exec(part) ?? [];
    const value = Number(digits);
    const field = overlap ? "forwardOverlap" : name === "a" && value <= 1 ? "recompute" : Object.hasOwn(NUMBERS, name) && Number.isSafeInteger(value) && value <= 2 ** 31 - 1 && (value >= 1 || name === "k") ? NUMBERS[name] : undefined;
    if (field === undefined) {
      const remedy = part.startsWith("ov") ? "overlap is ovFORWARD/BACKWARD: none, block, inter-layer or intra-layer, then none, block or intra-layer" : `the parts are ${Object.keys(NUMBERS).join(", ")} with a number behind each, a0 or a1, and ovFORWARD/BACKWARD, e.g. "${EXAMPLE}"`;
      throw fault(text, `${part} is not known`, remedy);
    }
    if (fields.has(field)) throw fault(text, `${part} is the second of its kind`, "leave one of them out");
    if (overlap) fields.set("forwardOverlap", overlap[1]).set("backwardOverlap", overlap[2]);
    else fields.set(field, field === "recompute" ? value === 1 : value);
  }
  return Object.fromEntries(fields);
}

const missingOf = (fields: PartialPlan): string[] => NEEDED.filter((name) => fields[NUMBERS[name] as keyof Plan] === undefined);
const whole = (fields: PartialPlan): Plan => withoutDefaults({ ...DEFAULTS, ...fields } as Plan);

/** Whether a plan lacks nothing. */
export const isWholePlan = (plan: Plan | PartialPlan): plan is Plan => missingOf(plan).length === 0 && plan.recompute !== undefined && plan.forwardOverlap !== undefined;

/**
 * Reads a plan as tables and logs write it (`planLabel`), in any order of its parts.
 * @throws ProblemError `plan-invalid` that names the part that is wrong, or those that are missing.
 */
export function parsePlanLabel(text: string): Plan {
  const fields = fieldsOf(text);
  const missing = missingOf(fields);
  if (missing.length === 0) return whole(fields);
  const message = `it lacks ${missing.map((name) => `${name} (${NUMBERS[name] as string})`).join(", ")}`;
  throw new ProblemError("plan-invalid", `\`${text.trim()}\` is not a whole plan: ${missing.join(", ")} ${missing.length === 1 ? "is" : "are"} missing`, [
    { field: "plan", value: text, message, remedy: `write all of it, as tables show it, e.g. "${EXAMPLE}"; why-not and a job's \`plan\` take a part of one too` },
  ]);
}

/** As {@link parsePlanLabel}, or the part of a plan that the text names. @throws ProblemError `plan-invalid` that names the part that is wrong. */
export function parsePlanPart(text: string): Plan | PartialPlan {
  const fields = fieldsOf(text);
  return missingOf(fields).length === 0 ? whole(fields) : fields;
}

/** What a plan, or a part of one, leaves a search to choose: of a whole plan nothing, of a part what it does not name. */
export function constraintsOf(plan: Plan | PartialPlan): PlanConstraints {
  if (!isWholePlan(plan)) return plan;
  const { contextParallel = 1, pipelineChunks = 1, recomputeLayers, recompute } = plan;
  return { ...plan, contextParallel, pipelineChunks, ...(recompute ? {} : { recomputeLayers: recomputeLayers ?? 0 }) };
}

/** A part of a plan in the words of {@link parsePlanPart}. */
export function planPartLabel(part: PartialPlan): string {
  const numbers = Object.entries(NUMBERS).flatMap(([name, field]) => (part[field] === undefined ? [] : [`${name}${String(part[field])}`]));
  const recompute = part.recompute === undefined ? [] : [`a${part.recompute ? 1 : 0}`];
  return [...numbers, ...recompute, ...(part.forwardOverlap === undefined ? [] : [`ov${part.forwardOverlap}/${part.backwardOverlap ?? "none"}`])].join(" ");
}
