import type { JobSpec } from "./job.ts";
import { checkPlan } from "./job-file/plan-limits.ts";
import { didYouMean } from "./nearest.ts";
import type { PlanConstraints } from "./plan-constraints.ts";
import { PLAN_FIELDS, PLAN_ROWS, type PlanField, type PlanFieldValue } from "./plan-fields.ts";
import { BY_SYMBOL, ELSEWHERE } from "./plan-text.ts";
import { ProblemError } from "./problem.ts";

/*
 * Constraints of a plan as a command line writes them: "tp=8", "tp=4,8", "tp=8,pp=1", "gu=again",
 * "ov=inter-layer/intra-layer". Names are the symbols of labels or the fields' own names.
 */

/** The two overlaps go together, as labels have them. */
const OVERLAP = "ov";

const FIELDS: readonly PlanField[] = PLAN_ROWS.map(([field]) => field);
const SYMBOLS: readonly string[] = [...Object.keys(BY_SYMBOL), OVERLAP];

const fieldNamed = (name: string): PlanField | undefined =>
  Object.hasOwn(BY_SYMBOL, name) ? BY_SYMBOL[name] : FIELDS.find((field) => field === name);

/** How errors name a field: as labels write it, where they do. */
const shortName = (field: PlanField): string =>
  PLAN_ROWS.flatMap(([name, { symbol }]) => (name === field && symbol !== undefined ? [symbol] : []))[0] ??
  field;

function valueRemedy(field: PlanField): string {
  const { value } = PLAN_FIELDS[field];
  if (value === "flag") return "give 0 or 1";
  if ("choices" in value) return `give one of ${value.choices.join(", ")}`;
  return `give a whole number from ${value.least} to ${value.most}`;
}

/** The value of a field that a text is; undefined where it is none. */
function valueOf(field: PlanField, text: string): PlanFieldValue | undefined {
  const { value } = PLAN_FIELDS[field];
  if (value === "flag") return { "0": false, "1": true, false: false, true: true }[text];
  if ("choices" in value) return value.choices.find((choice) => choice === text);
  const given = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  return given >= value.least && given <= value.most ? given : undefined;
}

/** As a text gives it. */
const writtenValue = (value: PlanFieldValue): string =>
  typeof value === "string" ? value : String(Number(value));

type Values = Map<PlanField, PlanFieldValue[]>;

/** Reads one text after another, and says what is wrong in the words of the option that has it. */
class FixedFields {
  readonly #option: string;
  readonly values: Values = new Map();

  constructor(option: string) {
    this.#option = option;
  }

  #fault(text: string, message: string, remedy: string): ProblemError {
    return new ProblemError("plan-invalid", `${this.#option} ${text} fixes nothing: ${message}`, [
      { field: this.#option, value: text, message, remedy },
    ]);
  }

  read(text: string): void {
    const names = new Set<PlanField>();
    let name: string | undefined;
    for (const part of text.split(",").map((one) => one.trim())) {
      const [, written, value = part] = /^([^=]*)=(.*)$/.exec(part) ?? [];
      if (written === undefined && name === undefined)
        throw this.#fault(text, `${part === "" ? "it" : part} names no value`, this.#example(part));
      name = (written ?? name ?? "").trim();
      for (const [field, one] of this.#pairs(text, name, value.trim())) {
        // Another value of the same name is one more choice; the same name in another text is a slip.
        if (written !== undefined && (names.has(field) || this.values.has(field)))
          throw this.#fault(
            text,
            `${name} is given twice`,
            `give it once; ${shortName(field)}=${[...(this.values.get(field) ?? []), one].map(writtenValue).join(",")} leaves a choice`,
          );
        names.add(field);
        this.values.set(field, [...(this.values.get(field) ?? []), one]);
      }
    }
  }

  /** "tp8" is how labels write what is "tp=8" here. */
  #example(part: string): string {
    const [, symbol = "", digits = ""] = /^([a-z]+)(\d+)$/.exec(part) ?? [];
    return Object.hasOwn(BY_SYMBOL, symbol)
      ? `write ${symbol}=${digits}`
      : "write FIELD=VALUE, such as tp=8 or tp=4,8";
  }

  #pairs(text: string, name: string, value: string): (readonly [PlanField, PlanFieldValue])[] {
    if (name === OVERLAP) {
      const [forward = "", backward = ""] = value.split("/");
      return [this.#pair(text, "forwardOverlap", forward), this.#pair(text, "backwardOverlap", backward)];
    }
    const field = fieldNamed(name);
    if (field !== undefined) return [this.#pair(text, field, value)];
    const elsewhere = ELSEWHERE[name.toLowerCase().replace(/^-+/, "").replaceAll("-", "_")];
    const near =
      elsewhere === undefined
        ? didYouMean(name, [...SYMBOLS, ...FIELDS])
        : `did you mean ${elsewhere}? Otherwise `;
    throw this.#fault(
      text,
      `a plan has no field ${name}`,
      `${near}give one of ${SYMBOLS.join(", ")}, or a field's whole name, such as tensorParallel`,
    );
  }

  #pair(text: string, field: PlanField, value: string): readonly [PlanField, PlanFieldValue] {
    const own = valueOf(field, value);
    if (own === undefined) throw this.#fault(text, `"${value}" is no value of ${field}`, valueRemedy(field));
    return [field, own];
  }
}

/**
 * What texts fix of a plan; fields that none names are free.
 * @param option that has them, for errors
 * @throws ProblemError `plan-invalid` that names the text, what is wrong in it, and the nearest field
 */
export function readFixed(texts: readonly string[], option: string): PlanConstraints {
  const fixed = new FixedFields(option);
  for (const text of texts) fixed.read(text);
  return Object.fromEntries(
    [...fixed.values].map(([field, values]) => [field, values.length === 1 ? values[0] : values]),
  );
}

/**
 * The job with these fields of its plans fixed: they take the place of what its own `plan` says of the same
 * fields. @throws ProblemError `plan-invalid` for a text that says nothing, and for values that no plan of
 * the job has
 */
export function withFixed(job: JobSpec, texts: readonly string[], option: string): JobSpec {
  if (texts.length === 0) return job;
  const fixed = readFixed(texts, option);
  const details: Parameters<typeof checkPlan>[4] = [];
  checkPlan(fixed, job.cluster, job, job.model, details);
  const [first] = details;
  if (first !== undefined)
    throw new ProblemError(
      "plan-invalid",
      `no plan of the job has what ${option} asks for: ${first.field.replace(/^plan\./, "")} ${first.message}`,
      details.map(({ field, ...rest }) => ({ ...rest, field: `${option} ${field.replace(/^plan\./, "")}` })),
    );
  return { ...job, plan: { ...job.plan, ...fixed } };
}
