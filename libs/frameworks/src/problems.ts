import { ProblemError, listed, type ProblemDetail } from "@internevo/domain";

/** Faults that one error tells at most, and characters of a field's name or of a value. */
const MOST_DETAILS = 20;
const MOST_CHARACTERS = 200;

const shortened = (text: string): string =>
  text.length > MOST_CHARACTERS ? `${text.slice(0, MOST_CHARACTERS)}…` : text;

/** A value as a fault repeats it: so that it can be found, and in bounds. */
export function repeated(value: unknown): unknown {
  if (typeof value === "string") return shortened(value);
  if (typeof value !== "object" || value === null)
    return typeof value === "number" && !Number.isFinite(value) ? null : value;
  const text = JSON.stringify(value);
  return text.length > MOST_CHARACTERS ? shortened(text) : value;
}

/** Values that are tried for a remedy, and that it names. */
const MOST_TRIED = 10_000;
const MOST_NAMED = 4;

/** Whole numbers up to `most` that work, those nearest to what was given, as a remedy names them; empty where none does. */
export const nearestThatWork = (given: number, most: number, works: (value: number) => boolean): string =>
  listed(
    Array.from({ length: Math.min(most, MOST_TRIED) }, (_, index) => index + 1)
      .filter(works)
      .sort((a, b) => Math.abs(a - given) - Math.abs(b - given))
      .slice(0, MOST_NAMED)
      .sort((a, b) => a - b)
      .map(String),
    "or",
  );

/** Collects what is wrong with a configuration, so that all of it is said at once. */
export class Faults {
  readonly #details: ProblemDetail[] = [];
  readonly #what: string;
  #count = 0;

  constructor(what: string) {
    this.#what = what;
  }

  /** Whether what is found from now on is only counted. */
  get isFull(): boolean {
    return this.#count >= MOST_DETAILS;
  }

  add(field: string, value: unknown, message: string, remedy: string): void {
    if (!this.isFull)
      this.#details.push({
        field: field === "" ? "(nothing)" : shortened(field),
        value: repeated(value),
        message: shortened(message),
        remedy: shortened(remedy),
      });
    this.#count += 1;
  }

  /** @throws ProblemError `bad-request` when anything was added. */
  end(): void {
    const [first] = this.#details;
    if (first === undefined) return;
    const more = this.#count > 1 ? `, and ${this.#count - 1} more` : "";
    throw new ProblemError(
      "bad-request",
      `${this.#what}: ${first.field} ${first.message}${more}`,
      this.#details,
    );
  }

  /** Adds and ends. */
  fail(field: string, value: unknown, message: string, remedy: string): never {
    this.add(field, value, message, remedy);
    this.end();
    throw new Error("not reached");
  }
}

/** A factor must be a whole number from 1. */
export function quotient(faults: Faults, field: string, value: number, by: number, what: string): number {
  if (by > 0 && value % by === 0 && value >= by) return value / by;
  return faults.fail(field, value, `is no multiple of ${what}, which is ${by}`, `give a multiple of ${by}`);
}

/** `total` counts what the field's value must share out evenly; `what` names what is counted. */
export function sharedEvenly(faults: Faults, field: string, by: number, total: number, what: string): number {
  if (by > 0 && total % by === 0) return total / by;
  return faults.fail(field, by, `does not divide ${what}, which are ${total}`, `give a divisor of ${total}`);
}
