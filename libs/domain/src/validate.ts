import type { Static, TSchema } from "typebox";
import { Compile, type Validator } from "typebox/compile";
import type { ProblemDetail } from "./problem.ts";
import { ProblemError, type ProblemCode } from "./problem.ts";

const compiled = new WeakMap<TSchema, Validator>();

/** The field of a JSON pointer: `/model/heads` → `model.heads`. */
const fieldOf = (pointer: string): string => pointer.replace(/^\//, "").replaceAll("/", ".") || "(whole document)";

const valueAt = (value: unknown, pointer: string): unknown =>
  pointer
    .split("/")
    .slice(1)
    .reduce<unknown>((at, key) => (typeof at === "object" && at !== null ? (at as Record<string, unknown>)[key] : undefined), value);

interface SchemaError {
  readonly keyword: string;
  readonly instancePath: string;
  readonly params: Record<string, unknown>;
  readonly message: string;
}

function detailOf(error: SchemaError, value: unknown): ProblemDetail[] {
  const at = fieldOf(error.instancePath);
  const prefix = at === "(whole document)" ? "" : `${at}.`;
  if (error.keyword === "additionalProperties") {
    const names = (error.params["additionalProperties"] as string[] | undefined) ?? [];
    return names.map((name) => ({ field: prefix + name, value: valueAt(value, `${error.instancePath}/${name}`), message: "unknown field", remedy: "remove it, or check its spelling" }));
  }
  if (error.keyword === "required") {
    const names = (error.params["requiredProperties"] as string[] | undefined) ?? [];
    return names.map((name) => ({ field: prefix + name, message: "is missing", remedy: "add it" }));
  }
  return [{ field: at, value: valueAt(value, error.instancePath), message: error.message, remedy: "give a value that the schema allows" }];
}

/**
 * Checks a value from outside against a schema.
 * @throws ProblemError with `code` and one detail a fault: field, value, remedy.
 */
export function validate<S extends TSchema>(schema: S, value: unknown, code: ProblemCode, what: string): Static<S> {
  let validator = compiled.get(schema);
  if (!validator) {
    validator = Compile(schema);
    compiled.set(schema, validator);
  }
  if (validator.Check(value)) return value as Static<S>;
  const list = (validator.Errors(value) as unknown as SchemaError[]).filter((error) => error.keyword !== "boolean");
  // A union reports every branch: a fault inside a branch is more telling than "must match a schema in anyOf".
  const telling = list.filter((error) => error.keyword !== "anyOf");
  const details = (telling.length > 0 ? telling : list).slice(0, 20).flatMap((error) => detailOf(error, value));
  const first = details[0];
  throw new ProblemError(code, `${what} is not valid: ${first ? `${first.field}: ${first.message}` : "see details"}`, details);
}
