import { Test as hasFormat } from "typebox/format";
import { nearestWord } from "./nearest.ts";
import type { ProblemDetail } from "./problem.ts";
import {
  forbiddenIn,
  LABEL_NAME,
  LINE_PATTERN,
  printable,
  TIME_OF_DAY,
  VISIBLE_NAME_PATTERN,
} from "./text.ts";

/** The part of JSON Schema that the product's schemas are written in. */
interface JsonSchema {
  readonly type?: "object" | "array" | "string" | "integer" | "number" | "boolean" | "null";
  readonly anyOf?: readonly JsonSchema[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly patternProperties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | JsonSchema;
  readonly maxProperties?: number;
  readonly items?: JsonSchema;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly format?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly exclusiveMaximum?: number;
}

type Path = readonly string[];

export const WHOLE_DOCUMENT = "(whole document)";
const fieldOf = (path: Path): string => (path.length === 0 ? WHOLE_DOCUMENT : path.map(printable).join("."));

const TYPE_WORDS = {
  object: "a group of fields",
  array: "a list",
  string: "text",
  integer: "an integer",
  number: "a number",
  boolean: "true or false",
  null: "null",
} as const;

const listed = (words: readonly string[], last: "or" | "nor"): string =>
  words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} ${last} ${words.at(-1) as string}`;
const literal = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

/** The values that a schema is a choice of; undefined when it is more than that. */
function choicesOf(schema: JsonSchema): readonly unknown[] | undefined {
  if (schema.const !== undefined) return [schema.const];
  if (schema.enum) return schema.enum;
  const inner = schema.anyOf?.map(choicesOf);
  return inner?.every((choices) => choices !== undefined) ? inner.flat() : undefined;
}

function hasType(value: unknown, type: NonNullable<JsonSchema["type"]>): boolean {
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
    case "integer":
      return Number.isInteger(value);
    case "number":
      return Number.isFinite(value);
    case "string":
    case "boolean":
      return typeof value === type;
  }
}

/** `from 1 to 9`, `of 1 or more`, `above 0`; empty without bounds. */
function boundsOf({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }: JsonSchema): string {
  if (minimum !== undefined && maximum !== undefined) return ` from ${minimum} to ${maximum}`;
  const parts = [
    ...(minimum === undefined ? [] : [`of ${minimum} or more`]),
    ...(exclusiveMinimum === undefined ? [] : [`above ${exclusiveMinimum}`]),
    ...(maximum === undefined ? [] : [`of at most ${maximum}`]),
    ...(exclusiveMaximum === undefined ? [] : [`below ${exclusiveMaximum}`]),
  ];
  return parts.length === 0 ? "" : ` ${parts.join(", ")}`;
}

/** Fields that stand for all of a group. */
const NAMED_FIELDS = 4;

/** What a schema asks for, in words that follow "give". */
function wanted(schema: JsonSchema): string {
  const choices = choicesOf(schema);
  if (choices) return listed(choices.map(literal), "or");
  if (schema.anyOf) return listed([...new Set(schema.anyOf.map(wanted))], "or");
  if (schema.type === "object" && schema.properties !== undefined) {
    const names = schema.required?.length ? schema.required : Object.keys(schema.properties);
    return `a group of fields: ${names.slice(0, NAMED_FIELDS).join(", ")}${names.length > NAMED_FIELDS || names.length < Object.keys(schema.properties).length ? ", …" : ""}`;
  }
  return schema.type === undefined ? "another value" : `${TYPE_WORDS[schema.type]}${boundsOf(schema)}`;
}

function numberFault(schema: JsonSchema, value: number): string | undefined {
  if (schema.minimum !== undefined && value < schema.minimum) return `is less than ${schema.minimum}`;
  if (schema.exclusiveMinimum !== undefined && value <= schema.exclusiveMinimum)
    return `is not more than ${schema.exclusiveMinimum}`;
  if (schema.maximum !== undefined && value > schema.maximum) return `is more than ${schema.maximum}`;
  if (schema.exclusiveMaximum !== undefined && value >= schema.exclusiveMaximum)
    return `is not less than ${schema.exclusiveMaximum}`;
  return undefined;
}

const patterns = new Map<string, RegExp>();

/** The product's patterns are few, and read as JSON Schema says. */
function patternOf(pattern: string): RegExp {
  const known = patterns.get(pattern) ?? new RegExp(pattern, "u");
  patterns.set(pattern, known);
  return known;
}

/** Patterns that nobody has to read: they are told in words. */
const REMEDIES = new Map([TIME_OF_DAY, LABEL_NAME].map(({ pattern, remedy }) => [pattern, remedy]));

const patternRemedy = (pattern: string): string =>
  REMEDIES.get(pattern) ?? `give text that matches ${pattern}`;

function textFault(schema: JsonSchema, value: string): Pick<ProblemDetail, "message" | "remedy"> | undefined {
  const { minLength = 0, maxLength = Number.POSITIVE_INFINITY, pattern, format } = schema;
  if (value.length < minLength)
    return {
      message: value === "" ? "is empty" : `is shorter than ${minLength} characters`,
      remedy: minLength === 1 ? "give text" : `give text of at least ${minLength} characters`,
    };
  // Code points, as JSON Schema counts; the text is taken apart only when it may matter.
  if (value.length > maxLength && (value.length > 2 * maxLength || [...value].length > maxLength))
    return {
      message: `is longer than ${maxLength} characters`,
      remedy: `give text of at most ${maxLength} characters`,
    };
  if (format !== undefined && !hasFormat(format, value))
    return { message: `is not of the format ${format}`, remedy: `give text of the format ${format}` };
  if (pattern === undefined || patternOf(pattern).test(value)) return undefined;
  if (pattern === VISIBLE_NAME_PATTERN && forbiddenIn(value) === undefined)
    return {
      message: "holds a character that is not seen, or begins or ends with a space",
      remedy: "use letters, digits and signs that can be seen",
    };
  if (pattern !== LINE_PATTERN && pattern !== VISIBLE_NAME_PATTERN)
    return { message: "is not of the form that is asked for", remedy: patternRemedy(pattern) };
  const character = forbiddenIn(value);
  if (character === undefined) return { message: "is blank", remedy: "give text that can be seen" };
  return {
    message: `holds ${character}: a control character, or one that is no text`,
    remedy: "give one line of printable text",
  };
}

function unknownFieldRemedy(name: string, known: readonly string[], beside: object): string {
  if (name === "<<") return "merges of YAML (<<) are not read: write the fields themselves";
  // What `{ rate: 1,5e-4 }` leaves behind its comma.
  if (/^\d[\d.e+-]*$/i.test(name) && (beside as Record<string, unknown>)[name] === null)
    return "a decimal comma? Write numbers with a point, such as 1.5";
  if (known.length === 0) return "remove it";
  const isGiven = (one: string): boolean => Object.hasOwn(beside, one);
  // Of equally near fields, one that is not written beside it.
  const near = nearestWord(name, [...known.filter((one) => !isGiven(one)), ...known.filter(isGiven)]);
  const advice =
    near === undefined
      ? "remove it, or check its spelling."
      : `did you mean \`${near}\`${isGiven(near) ? ", which is given too" : ""}?`;
  return `${advice} (Fields: ${known.join(", ")})`;
}

/** What is too many is told alone: nobody reads what is wrong with each of them. */
function tooManyItems(
  { maxItems }: JsonSchema,
  list: readonly unknown[],
  path: Path,
): ProblemDetail | undefined {
  if (maxItems === undefined || list.length <= maxItems) return undefined;
  return {
    field: fieldOf(path),
    message: `holds more than ${maxItems} item${maxItems === 1 ? "" : "s"}`,
    remedy: `give at most ${maxItems} item${maxItems === 1 ? "" : "s"}`,
  };
}

function tooManyFields({ maxProperties }: JsonSchema, value: object, path: Path): ProblemDetail | undefined {
  if (maxProperties === undefined || Object.keys(value).length <= maxProperties) return undefined;
  return {
    field: fieldOf(path),
    message: `holds more than ${maxProperties} field${maxProperties === 1 ? "" : "s"}`,
    remedy: `give at most ${maxProperties} field${maxProperties === 1 ? "" : "s"}`,
  };
}

function* objectFaults(
  schema: JsonSchema,
  value: Readonly<Record<string, unknown>>,
  path: Path,
): Generator<ProblemDetail> {
  const tooMany = tooManyFields(schema, value, path);
  if (tooMany) {
    yield tooMany;
    return;
  }
  const properties = schema.properties ?? {};
  for (const name of schema.required ?? []) {
    if (!Object.hasOwn(value, name) || value[name] === undefined) {
      const inner = properties[name];
      yield {
        field: fieldOf([...path, name]),
        message: "is missing",
        remedy: inner && inner.type !== "object" ? `add it: ${wanted(inner)}` : "add it",
      };
    }
  }
  const byPattern = Object.entries(schema.patternProperties ?? {});
  for (const name of Object.keys(value)) {
    const inner = value[name];
    const at = [...path, name];
    if (Object.hasOwn(properties, name)) {
      if (inner !== undefined) yield* faultsOf(properties[name] as JsonSchema, inner, at);
      continue;
    }
    const matching = byPattern.filter(([pattern]) => patternOf(pattern).test(name));
    for (const [, innerSchema] of matching) yield* faultsOf(innerSchema, inner, at);
    if (
      matching.length > 0 ||
      schema.additionalProperties === undefined ||
      schema.additionalProperties === true
    )
      continue;
    if (schema.additionalProperties !== false) {
      yield* faultsOf(schema.additionalProperties, inner, at);
      continue;
    }
    const [pattern] = byPattern.map(([one]) => one);
    yield pattern === undefined
      ? {
          field: fieldOf(at),
          value: inner,
          message: "unknown field",
          remedy: unknownFieldRemedy(name, Object.keys(properties), value),
        }
      : {
          field: fieldOf(at),
          value: inner,
          message: "has a name that is not of the form that is asked for",
          remedy: patternRemedy(pattern),
        };
  }
}

const isTold = (
  schema: JsonSchema,
): schema is JsonSchema & { readonly properties: Readonly<Record<string, JsonSchema>> } =>
  schema.type === "object" && schema.properties !== undefined;

/** Objects of a union are told apart by the fields that are a choice in each of them: `format`, `module`. */
function* unionOfObjectsFaults(
  branches: readonly JsonSchema[],
  value: Readonly<Record<string, unknown>>,
  path: Path,
): Generator<ProblemDetail> {
  const [first] = branches;
  const keys =
    first && branches.every(isTold)
      ? Object.keys(first.properties ?? {}).filter((key) =>
          branches.every(
            (branch) => branch.required?.includes(key) && choicesOf(branch.properties?.[key] ?? {}),
          ),
        )
      : [];
  for (const key of keys) {
    const choices = (branch: JsonSchema): readonly unknown[] =>
      choicesOf(branch.properties?.[key] ?? {}) ?? [];
    const all = [...new Set(branches.flatMap(choices))];
    if (branches.every((branch) => choices(branch).length === all.length)) continue;
    const given = Object.hasOwn(value, key) ? value[key] : undefined;
    const meant = branches.filter((branch) => choices(branch).includes(given));
    if (meant.length === 1) yield* faultsOf(meant[0] as JsonSchema, value, path);
    else if (meant.length > 1) yield* unionOfObjectsFaults(meant, value, path);
    else
      yield given === undefined
        ? {
            field: fieldOf([...path, key]),
            message: "is missing",
            remedy: `add it: ${listed(all.map(literal), "or")}`,
          }
        : choiceFault(all, given, [...path, key]);
    return;
  }
  yield* fewest(branches, value, path);
}

/** Its first items; the others are not looked for. */
export function firstOf<T>(items: Iterable<T>, most: number): T[] {
  const first: T[] = [];
  for (const item of items) if (first.push(item) === most) break;
  return first;
}

/** Faults of a branch that are counted: one with so many is not what somebody meant. */
const MOST_COUNTED = 40;

/** The branch that the value comes nearest to. */
function fewest(branches: readonly JsonSchema[], value: unknown, path: Path): ProblemDetail[] {
  const lists = branches.map((branch) => firstOf(faultsOf(branch, value, path), MOST_COUNTED));
  return lists.reduce((best, list) => (list.length < best.length ? list : best));
}

const choiceFault = (choices: readonly unknown[], value: unknown, path: Path): ProblemDetail => ({
  field: fieldOf(path),
  value,
  message:
    choices.length === 1
      ? `is not ${literal(choices[0])}`
      : `is not one of ${choices.map(literal).join(", ")}`,
  remedy: `use ${listed(choices.map(literal), "or")}`,
});

function* unionFaults(branches: readonly JsonSchema[], value: unknown, path: Path): Generator<ProblemDetail> {
  // A first fault says enough: a branch may have very many.
  if (branches.some((branch) => faultsOf(branch, value, path).next().done)) return;
  const isKind = (branch: JsonSchema): boolean =>
    branch.type === undefined ||
    hasType(value, branch.type) ||
    (typeof value === "number" && (branch.type === "integer" || branch.type === "number"));
  const meant = branches.filter((branch) => choicesOf(branch) === undefined && isKind(branch));
  if (meant.length === 0) {
    const words = [
      ...new Set(
        branches.map((branch) => {
          if (choicesOf(branch)) return wanted(branch);
          return branch.type ? TYPE_WORDS[branch.type] : "another value";
        }),
      ),
    ];
    yield {
      field: fieldOf(path),
      value,
      message: words.length === 1 ? `is not ${words[0]}` : `is neither ${listed(words, "nor")}`,
      remedy: `give ${listed(words, "or")}`,
    };
    return;
  }
  if (meant.every((branch) => branch.type === "object")) {
    yield* meant.length === 1
      ? faultsOf(meant[0] as JsonSchema, value, path)
      : unionOfObjectsFaults(meant, value as Readonly<Record<string, unknown>>, path);
    return;
  }
  const others = branches
    .flatMap((branch) => choicesOf(branch) ?? [])
    .filter((choice) => typeof choice === typeof value);
  for (const detail of fewest(meant, value, path)) {
    const isHere = detail.field === fieldOf(path);
    yield isHere && others.length > 0
      ? { ...detail, remedy: detail.remedy.replace(/^give /, `give ${others.map(literal).join(", ")}, or `) }
      : detail;
  }
}

/** What to do about a value of another type, where that is plain; undefined elsewhere. */
function typeRemedy(schema: JsonSchema, value: unknown, path: Path): string | undefined {
  if (schema.type === "object" && Array.isArray(value) && path.length === 0)
    return "write fields with their values (name: value), without a dash before them";
  if (typeof value !== "string" || (schema.type !== "integer" && schema.type !== "number")) return undefined;
  const number = value.trim() === "" ? Number.NaN : Number(value);
  return hasType(number, schema.type) && numberFault(schema, number) === undefined
    ? `drop the quotes: ${value.trim()}`
    : undefined;
}

/** Of ten thousand texts hardly one is wrong: the others are told apart without a path for each. */
const isGoodText = (schema: JsonSchema, value: unknown): boolean =>
  schema.type === "string" &&
  typeof value === "string" &&
  choicesOf(schema) === undefined &&
  textFault(schema, value) === undefined;

/**
 * Everything that keeps a value from matching a schema, in words: each fault once, at the innermost field
 * that is wrong. Of a union only the branch is told that the value means.
 */
export function* faultsOf(schema: JsonSchema, value: unknown, path: Path = []): Generator<ProblemDetail> {
  const choices = choicesOf(schema);
  if (choices) {
    if (!choices.includes(value)) yield choiceFault(choices, value, path);
    return;
  }
  if (schema.anyOf) {
    yield* unionFaults(schema.anyOf, value, path);
    return;
  }
  const field = fieldOf(path);
  if (schema.type !== undefined && !hasType(value, schema.type)) {
    yield {
      field,
      value,
      message: `is not ${TYPE_WORDS[schema.type]}`,
      remedy: typeRemedy(schema, value, path) ?? `give ${wanted(schema)}`,
    };
    return;
  }
  if (typeof value === "number") {
    const message = numberFault(schema, value);
    if (message !== undefined) yield { field, value, message, remedy: `give ${wanted(schema)}` };
  } else if (typeof value === "string") {
    const fault = textFault(schema, value);
    if (fault) yield { field, value, ...fault };
  } else if (schema.type === "array") {
    const list = value as readonly unknown[];
    const tooMany = tooManyItems(schema, list, path);
    if (tooMany) {
      yield tooMany;
      return;
    }
    const { minItems = 0 } = schema;
    if (list.length < minItems)
      yield {
        field,
        value,
        message: list.length === 0 ? "is empty" : `holds fewer than ${minItems} items`,
        remedy: `give at least ${minItems} item${minItems === 1 ? "" : "s"}`,
      };
    if (schema.items)
      for (const [index, item] of list.entries())
        if (!isGoodText(schema.items, item)) yield* faultsOf(schema.items, item, [...path, String(index)]);
  } else if (schema.type === "object") {
    yield* objectFaults(schema, value as Readonly<Record<string, unknown>>, path);
  }
}

const bounded = new WeakMap<JsonSchema, boolean>();

/** Whether a schema bounds the number of items or fields somewhere. */
function isBounded(schema: JsonSchema): boolean {
  const known = bounded.get(schema);
  if (known !== undefined) return known;
  // One that holds itself is looked at once.
  bounded.set(schema, false);
  const { properties = {}, patternProperties = {}, items, anyOf = [] } = schema;
  const inner = [...Object.values(properties), ...Object.values(patternProperties), ...anyOf];
  const is =
    schema.maxItems !== undefined ||
    schema.maxProperties !== undefined ||
    [...inner, ...(items ? [items] : [])].some(isBounded);
  bounded.set(schema, is);
  return is;
}

/**
 * Whether a value holds more items or fields somewhere than its schema allows. It looks at no item of a list that is
 * too long, as a validator does. What a union means is left to {@link faultsOf}.
 */
export function isTooMany(schema: JsonSchema, value: unknown): boolean {
  if (typeof value !== "object" || value === null || !isBounded(schema)) return false;
  if (schema.anyOf) {
    const type = Array.isArray(value) ? "array" : "object";
    const [meant, ...others] = schema.anyOf.filter((branch) => branch.type === type);
    return meant !== undefined && others.length === 0 && isTooMany(meant, value);
  }
  if (Array.isArray(value))
    return (
      schema.type === "array" &&
      (tooManyItems(schema, value, []) !== undefined ||
        (schema.items !== undefined && value.some((item) => isTooMany(schema.items as JsonSchema, item))))
    );
  if (schema.type !== "object") return false;
  if (tooManyFields(schema, value, [])) return true;
  return Object.entries(schema.properties ?? {}).some(
    ([name, inner]) =>
      Object.hasOwn(value, name) && isTooMany(inner, (value as Readonly<Record<string, unknown>>)[name]),
  );
}
