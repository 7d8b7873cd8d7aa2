import type { PlanConstraints } from "./plan-constraints.ts";
import {
  labelPart,
  MOST_OF_A_FACTOR,
  PLAN_FIELDS,
  PLAN_ROWS,
  planValue,
  withoutDefaults,
  type PlanField,
  type PlanFieldValue,
} from "./plan-fields.ts";
import type { Plan } from "./plan.ts";
import { ProblemError } from "./problem.ts";

/** Fields by their symbols, "a" among them. */
export const BY_SYMBOL: Readonly<Record<string, PlanField>> = Object.fromEntries(
  PLAN_ROWS.flatMap(([field, { symbol }]) => (symbol === undefined ? [] : [[symbol, field]])),
);

/** What a whole plan must say; the rest has a default. */
const NEEDED = PLAN_ROWS.flatMap(([, row]) =>
  row.default === undefined && row.symbol !== undefined ? [row.symbol] : [],
);

/** What a label may leave out and a plan may not. */
const DEFAULTS = Object.fromEntries(
  PLAN_ROWS.flatMap(([field, row]) =>
    row.default === undefined || row.optional ? [] : [[field, row.default]],
  ),
) as Partial<Plan>;

const FORWARD = PLAN_FIELDS.forwardOverlap.value.choices;
const BACKWARD = PLAN_FIELDS.backwardOverlap.value.choices;
const OVERLAP = new RegExp(`^ov(${FORWARD.join("|")})/(${BACKWARD.join("|")})$`);

/** Names that other programs have for the same factors. */
export const ELSEWHERE: Readonly<Record<string, string>> = {
  mbs: "b",
  micro_batch_size: "b",
  ga: "n",
  gas: "n",
  vpp: "v",
  tensor_parallel: "tp",
  pipeline_parallel: "pp",
  data_parallel: "dp",
  context_parallel: "cp",
  sequence_parallel: "sp",
};

const choiceWords = (choices: readonly string[]): string =>
  `${choices.slice(0, -1).join(", ")} or ${choices.at(-1) ?? ""}`;

const EXAMPLE = "b1 n4 a0 pp1 dp2 tp1 sp4 ps8 gs1 oss1 ovinter-layer/intra-layer";

/** Symbols of fields whose values are words: "gu-again". */
const WORD_SYMBOLS = Object.entries(BY_SYMBOL).flatMap(([symbol, field]) =>
  typeof PLAN_FIELDS[field].value === "object" && "choices" in PLAN_FIELDS[field].value ? [symbol] : [],
);
const PART = String.raw`(?:[a-z]+\d+|ov[a-z-]+\/[a-z-]+|(?:${WORD_SYMBOLS.join("|")})-[a-z-]+)`;
/** Between the parts of a label: on a command line a comma needs no quotes. */
const BETWEEN = String.raw`(?:\s*,\s*|\s+)`;
const LABEL = new RegExp(String.raw`^\s*${PART}(?:${BETWEEN}${PART})*\s*$`);
const SEPARATOR = new RegExp(BETWEEN);

/** Whether a text is meant as a plan's label, or as a part of one, and not, say, as a file's name. */
export const looksLikePlanLabel = (text: string): boolean => LABEL.test(text);

/** Fields of a plan that a text gives: all of a plan, or some of them. */
export type PartialPlan = Partial<Plan>;

function fault(text: string, message: string, remedy: string): ProblemError {
  return new ProblemError("plan-invalid", `\`${text}\` is not a plan: ${message}`, [
    { field: "plan", value: text, message, remedy },
  ]);
}

/** "tp8 pp1" for "TP=8,PP=1"; undefined where that is not what the text is. */
function translated(text: string): string | undefined {
  const parts = text
    .trim()
    .split(/[\s,;]+/)
    .map((part) => /^-*([a-z_]+)\s*[=:]\s*(\d+)$/i.exec(part));
  if (parts.includes(null)) return undefined;
  const known = parts.map((part) => {
    const name = (part?.[1] ?? "").toLowerCase();
    const own = Object.hasOwn(BY_SYMBOL, name) ? name : ELSEWHERE[name];
    return own === undefined ? undefined : `${own}${part?.[2] ?? ""}`;
  });
  return known.includes(undefined) ? undefined : known.join(" ");
}

/** The field and its value that a part of a label gives: "tp8", "a1", "gu-again"; undefined where it is none. */
function valueOf(part: string): readonly [PlanField, PlanFieldValue] | undefined {
  const [, symbol = "", digits, word] = /^([a-z]+)(?:(\d+)|-([a-z-]+))$/.exec(part) ?? [];
  if (!Object.hasOwn(BY_SYMBOL, symbol)) return undefined;
  const field = BY_SYMBOL[symbol] as PlanField;
  const { value } = PLAN_FIELDS[field];
  if (word !== undefined) {
    const isChoice = typeof value === "object" && "choices" in value;
    const choice = isChoice ? value.choices.find((one) => one === word) : undefined;
    return choice === undefined ? undefined : [field, choice];
  }
  const given = Number(digits);
  if (value === "flag") return given <= 1 ? [field, given === 1] : undefined;
  return "least" in value && given >= value.least && given <= MOST_OF_A_FACTOR ? [field, given] : undefined;
}

/** How the parts of a label are written. */
function partsInWords(): string {
  const numbers = Object.keys(BY_SYMBOL).filter((symbol) => symbol !== "a" && !WORD_SYMBOLS.includes(symbol));
  const words = WORD_SYMBOLS.map((symbol) => {
    const { value } = PLAN_FIELDS[BY_SYMBOL[symbol] as PlanField];
    const choices = typeof value === "object" && "choices" in value ? value.choices : [];
    return choices.map((choice) => `${symbol}-${choice}`).join(" or ");
  });
  return `the parts are ${numbers.join(", ")} with a number behind each, a0 or a1, ${words.join(", ")}, and ovFORWARD/BACKWARD, e.g. "${EXAMPLE}"`;
}

/** The fields that a text names, each once. @throws ProblemError `plan-invalid` that names the part. */
function fieldsOf(text: string): PartialPlan {
  if (text.trim() === "")
    throw fault(text, "it is empty", `write a plan as tables show it, e.g. "${EXAMPLE}"`);
  const own = translated(text);
  if (own !== undefined)
    throw fault(text, "its parts are written as another program writes them", `write "${own}"`);
  const fields = new Map<keyof Plan, unknown>();
  for (const part of text.trim().split(SEPARATOR)) {
    const overlap = OVERLAP.exec(part);
    const named = overlap ? undefined : valueOf(part);
    const field = overlap ? "forwardOverlap" : named?.[0];
    if (field === undefined) {
      const remedy = part.startsWith("ov")
        ? `overlap is ovFORWARD/BACKWARD: ${choiceWords(FORWARD)}, then ${choiceWords(BACKWARD)}`
        : partsInWords();
      throw fault(text, `${part} is not known`, remedy);
    }
    if (fields.has(field)) throw fault(text, `${part} is the second of its kind`, "leave one of them out");
    if (overlap) fields.set("forwardOverlap", overlap[1]).set("backwardOverlap", overlap[2]);
    else fields.set(field, named?.[1]);
  }
  return Object.fromEntries(fields);
}

const missingOf = (fields: PartialPlan): string[] =>
  NEEDED.filter((name) => fields[BY_SYMBOL[name] as PlanField] === undefined);
const whole = (fields: PartialPlan): Plan => withoutDefaults({ ...DEFAULTS, ...fields } as Plan);

/** Whether a plan lacks nothing. */
export const isWholePlan = (plan: Plan | PartialPlan): plan is Plan =>
  missingOf(plan).length === 0 && plan.recompute !== undefined && plan.forwardOverlap !== undefined;

/**
 * Reads a plan as tables and logs write it (`planLabel`), in any order of its parts.
 * @throws ProblemError `plan-invalid` that names the part that is wrong, or those that are missing.
 */
export function parsePlanLabel(text: string): Plan {
  const fields = fieldsOf(text);
  const missing = missingOf(fields);
  if (missing.length === 0) return whole(fields);
  const message = `it lacks ${missing.map((name) => `${name} (${BY_SYMBOL[name] as string})`).join(", ")}`;
  throw new ProblemError(
    "plan-invalid",
    `\`${text.trim()}\` is not a whole plan: ${missing.join(", ")} ${missing.length === 1 ? "is" : "are"} missing`,
    [
      {
        field: "plan",
        value: text,
        message,
        remedy: `write all of it, as tables show it, e.g. "${EXAMPLE}"; why-not and a job's \`plan\` take a part of one too`,
      },
    ],
  );
}

/**
 * As {@link parsePlanLabel}, or the part of a plan that the text names. @throws ProblemError `plan-invalid`
 * that names the part that is wrong.
 */
export function parsePlanPart(text: string): Plan | PartialPlan {
  const fields = fieldsOf(text);
  return missingOf(fields).length === 0 ? whole(fields) : fields;
}

/**
 * What a plan, or a part of one, leaves a search to choose: of a whole plan nothing, of a part what it does
 * not name.
 */
export function constraintsOf(plan: Plan | PartialPlan): PlanConstraints {
  if (!isWholePlan(plan)) return plan;
  // All layers recomputed leave no number of them to name.
  const named = PLAN_ROWS.filter(
    ([field]) => !(field === "recomputeLayers" && plan.recompute && plan.recomputeLayers === undefined),
  );
  return Object.fromEntries(named.map(([field]) => [field, planValue(plan, field)]));
}

/** A part of a plan in the words of {@link parsePlanPart}. */
export function planPartLabel(part: PartialPlan): string {
  const named = PLAN_ROWS.flatMap(([field, { symbol }]) =>
    symbol === undefined || part[field] === undefined ? [] : [labelPart(symbol, part[field])],
  );
  return [
    ...named,
    ...(part.forwardOverlap === undefined
      ? []
      : [`ov${part.forwardOverlap}/${part.backwardOverlap ?? "none"}`]),
  ].join(" ");
}
