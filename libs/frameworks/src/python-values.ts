import type { SyntaxNode } from "@lezer/common";

/** A value that only running the module tells, and what is to blame. */
export class NeedsRun {
  /** Null: no single line. */
  readonly line: number | null;
  readonly expression: string;

  constructor(line: number | null, expression: string) {
    this.line = line;
    this.expression = expression.length > 200 ? `${expression.slice(0, 200)}…` : expression;
  }

  /** What is wrong with it where a value is needed, and what to do. */
  get fault(): { readonly message: string; readonly remedy: string } {
    const place = this.line === null ? "" : ` (line ${this.line})`;
    return {
      message: `needs the module to be run${place}`,
      remedy:
        `write it${place === "" ? "" : " there"} as numbers, texts, dict(...) ` +
        "and variables of this file, without conditions, loops and calls",
    };
  }

  toJSON(): string {
    return this.expression;
  }
}

/** What a configuration in Python is made of. Tuples are lists, and dictionaries have texts as keys. */
export type PythonValue = null | boolean | number | string | NeedsRun | PythonValue[] | PythonRecord;
export type PythonRecord = { [key: string]: PythonValue };
export type Container = PythonValue[] | PythonRecord;

/** Values and characters of one variable, and characters of one text: variables can double each other. */
export const MOST_SIZE = 1 << 20;
export const MOST_CHARACTERS = 1 << 16;
/** Entries of containers that a module may have copied or counted in all, each time that it does so. */
export const MOST_COPIED = 1 << 17;

export const isContainer = (value: PythonValue | undefined): value is Container =>
  typeof value === "object" && value !== null && !(value instanceof NeedsRun);
export const childrenOf = (container: Container): PythonValue[] =>
  Array.isArray(container) ? container : Object.values(container);
/** A record that has what a file says, and nothing that every object has. */
export const recordOf = (entries: readonly (readonly [string, PythonValue])[]): PythonRecord => {
  const record = Object.create(null) as PythonRecord;
  for (const [key, value] of entries) record[key] = value;
  return record;
};

export function partsOf(node: SyntaxNode): SyntaxNode[] {
  const found: SyntaxNode[] = [];
  for (let child = node.firstChild; child; child = child.nextSibling)
    if (!/^[()[\]{},]$/.test(child.name) && child.name !== "Comment") found.push(child);
  return found;
}

/** Python's numbers where ours are the same; undefined elsewhere. */
export function arithmetic(a: number, sign: string, b: number): number | undefined {
  switch (sign) {
    case "+":
      return a + b;
    case "-":
      return a - b;
    case "*":
      return a * b;
    case "/":
      return b === 0 ? undefined : a / b;
    // The remainder has the sign of the divisor.
    case "%":
    case "//": {
      if (b === 0) return undefined;
      const remainder = a % b;
      const isOther = remainder !== 0 && remainder < 0 !== b < 0;
      if (sign === "%") return isOther ? remainder + b : remainder;
      const quotient = (a - remainder) / b - (isOther ? 1 : 0);
      const floor = Math.floor(quotient);
      return quotient - floor > 0.5 ? floor + 1 : floor;
    }
    // Other powers are rounded in another way.
    case "**": {
      if (!Number.isInteger(a) || !Number.isInteger(b) || Math.abs(b) > 64 || (a === 0 && b < 0))
        return undefined;
      let power = 1;
      for (let times = Math.abs(b); times > 0; times -= 1) power *= a;
      if (!Number.isSafeInteger(power)) return undefined;
      return b < 0 ? 1 / power : power;
    }
    default:
      return undefined;
  }
}

export function comparison(a: PythonValue, sign: string, b: PythonValue): boolean | undefined {
  if (a instanceof NeedsRun || b instanceof NeedsRun || isContainer(a) || isContainer(b)) return undefined;
  const [left, right] = [a, b].map((each) => (typeof each === "boolean" ? Number(each) : each));
  if (sign === "==") return left === right;
  if (sign === "!=") return left !== right;
  if (typeof left !== "number" || typeof right !== "number") return undefined;
  switch (sign) {
    case "<":
      return left < right;
    case "<=":
      return left <= right;
    case ">":
      return left > right;
    case ">=":
      return left >= right;
    default:
      return undefined;
  }
}

/** A value as it is given out, with what it comes to when it is written out. */
export interface Known {
  readonly value: PythonValue;
  readonly size: number;
  readonly depth: number;
}
export const TOO_MUCH: Known = {
  value: new NeedsRun(null, "(values inside themselves, or more of them than any configuration has)"),
  size: 1,
  depth: 0,
};
