import type { Static, TSchema } from "typebox";
import { Compile, type Validator } from "typebox/compile";
import { faultsOf, firstOf, isTooMany, WHOLE_DOCUMENT } from "./faults.ts";
import { ProblemError, type ProblemCode } from "./problem.ts";

/** Faults that one error tells at most: a list of ten thousand wrong paths is one mistake. */
export const MOST_DETAILS = 20;

const compiled = new WeakMap<TSchema, Validator>();

function validatorOf(schema: TSchema): Validator {
  let validator = compiled.get(schema);
  if (!validator) {
    validator = Compile(schema);
    compiled.set(schema, validator);
  }
  return validator;
}

/**
 * Checks a value from outside against a schema.
 * @param what names the value in the error, for example `the job`.
 * @throws ProblemError with `code` and one detail a fault: field, value, remedy.
 */
export function validate<S extends TSchema>(
  schema: S,
  value: unknown,
  code: ProblemCode,
  what: string,
): Static<S> {
  const validator = validatorOf(schema);
  // A validator looks at every item before it counts them.
  if (!isTooMany(schema, value) && validator.Check(value)) return value as Static<S>;
  const details = firstOf(faultsOf(schema, value), MOST_DETAILS);
  // A schema of words that `faultsOf` does not know: the validator's own are better than none.
  if (details.length === 0)
    details.push(
      ...validator
        .Errors(value)
        .map(({ instancePath, message }) => ({
          field: instancePath === "" ? WHOLE_DOCUMENT : instancePath,
          message,
          remedy: "give a value that the schema allows",
        })),
    );
  const [first] = details;
  throw new ProblemError(
    code,
    `${what} is not valid: ${first ? `${first.field}: ${first.message}` : "see details"}`,
    details,
  );
}
