import { nearestWord } from "@internevo/domain";
import type { TakenAs } from "./framework.ts";
import { isWithoutEffect, type Judge, type Judges } from "./judgements.ts";
import { repeated, type Faults } from "./problems.ts";
import { NeedsRun } from "./python.ts";

type Record_ = Readonly<Record<string, unknown>>;
const isRecord = (value: unknown): value is Record_ =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof NeedsRun);

/** Switched off is as good as left out; a device that is none takes nothing. */
const isOff = (value: unknown): boolean =>
  value === false ||
  value === null ||
  value === 0 ||
  value === "" ||
  value === undefined ||
  (Array.isArray(value) && value.length === 0) ||
  (isRecord(value) && value["device"] === "none");

/**
 * Fields of one section of a configuration, read by name; what is not read can be told apart from what is not
 * known.
 */
export class Fields {
  readonly #record: Record_;
  readonly #path: string;
  readonly faults: Faults;

  constructor(record: unknown, faults: Faults, path = "") {
    this.#path = path;
    this.faults = faults;
    if (record instanceof NeedsRun)
      faults.add(path, record.expression, record.fault.message, record.fault.remedy);
    else if (record !== undefined && !isRecord(record))
      faults.add(path, record, "is not a section", "give its fields");
    // Of what a file says, and nothing that every object has.
    this.#record = isRecord(record)
      ? Object.assign(Object.create(null) as Record<string, unknown>, record)
      : {};
  }

  path(name: string): string {
    return this.#path === "" ? name : `${this.#path}.${name}`;
  }

  has(name: string): boolean {
    return this.#record[name] !== undefined && this.#record[name] !== null;
  }

  /** What is not known without running the configuration is a fault. */
  value(name: string): unknown {
    const value = this.#record[name];
    if (!(value instanceof NeedsRun)) return value;
    this.faults.add(this.path(name), value.expression, value.fault.message, value.fault.remedy);
    return undefined;
  }

  /** Whether it is known without running the configuration; what is not there is. */
  isKnown(name: string): boolean {
    return !(this.#record[name] instanceof NeedsRun);
  }

  section(name: string): Fields {
    return new Fields(this.#record[name], this.faults, this.path(name));
  }

  names(): string[] {
    return Object.keys(this.#record);
  }

  number(name: string, least = -Infinity): number | undefined {
    if (!this.has(name)) return undefined;
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (typeof value === "number" && Number.isFinite(value) && value >= least) return value;
    this.faults.add(
      this.path(name),
      value,
      "is not a number that is possible here",
      `give a number${least > -Infinity ? ` from ${least}` : ""}`,
    );
    return undefined;
  }

  integer(name: string, least = 1): number | undefined {
    const value = this.number(name, least);
    if (value === undefined || Number.isSafeInteger(value)) return value;
    this.faults.add(this.path(name), value, "is not a whole number", "give a whole number");
    return undefined;
  }

  needed(name: string): number {
    if (!this.has(name)) this.faults.add(this.path(name), null, "is missing", "add it");
    return this.integer(name) ?? Number.NaN;
  }

  boolean(name: string): boolean | undefined {
    if (!this.has(name)) return undefined;
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (typeof value === "boolean") return value;
    this.faults.add(this.path(name), value, "is neither true nor false", "give one of them");
    return undefined;
  }

  text(name: string): string | undefined {
    if (!this.has(name)) return undefined;
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (typeof value === "string") return value;
    this.faults.add(this.path(name), value, "is not a text", "give a text");
    return undefined;
  }

  choice<Value extends string>(name: string, choices: readonly Value[]): Value | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const found = choices.find((each) => each === text);
    if (found === undefined)
      this.faults.add(this.path(name), text, "is none of its choices", `use one of ${choices.join(", ")}`);
    return found;
  }

  /** What only running the file tells is a fault only where its value may be refused. */
  #isWithoutEffect(name: string, judge: Judge | undefined, takenAs: TakenAs[]): boolean {
    const judged = { faults: this.faults, takenAs };
    const value = this.#record[name];
    if (!(value instanceof NeedsRun)) return isWithoutEffect(this.path(name), value, judge, judged);
    if (judge === undefined) return true;
    const judgement = judge(value);
    if (judgement !== null && "as" in judgement)
      takenAs.push({ option: this.path(name), value: repeated(value.expression), ...judgement });
    else this.value(name);
    return false;
  }

  /**
   * Adds a fault for each field that is refused or not known; gives back those that are known and say nothing
   * about time or memory.
   */
  rest(
    read: string,
    ignored: string,
    refused: Readonly<Record<string, string>> = {},
    judges: Judges = {},
    takenAs: TakenAs[] = [],
  ): string[] {
    const wanted = read.trim().split(/\s+/);
    const other = ignored.trim().split(/\s+/);
    const found: string[] = [];
    for (const name of this.names()) {
      const value = this.#record[name];
      const reason = Object.hasOwn(refused, name) ? refused[name] : undefined;
      if (reason !== undefined) {
        if (isOff(value)) found.push(this.path(name));
        else this.faults.add(this.path(name), value, reason, "leave it out to ask for the rest");
      } else if (other.includes(name)) {
        if (this.#isWithoutEffect(name, Object.hasOwn(judges, name) ? judges[name] : undefined, takenAs))
          found.push(this.path(name));
      } else if (!wanted.includes(name)) {
        const meant = this.faults.isFull ? undefined : nearestWord(name, [...wanted, ...other]);
        this.faults.add(
          this.path(name),
          value,
          "is not known",
          meant === undefined
            ? "leave it out if it changes neither time nor memory"
            : `did you mean ${meant}? else leave it out, if it changes neither time nor memory`,
        );
      }
    }
    return found;
  }
}
