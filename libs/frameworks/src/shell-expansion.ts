import type { ProblemError } from "@internevo/domain";
import { shellArithmetic } from "./shell-arithmetic.ts";
import { parameterAt, type Parameters } from "./shell-parameters.ts";
import type { Variable } from "./shell-variables.ts";

/** What stands for a $…: words, and whether their text is known here. */
export interface Expanded {
  readonly words: readonly string[];
  readonly isKnown: boolean;
  /** "$@" and "${ARRAY[@]}" are as many words as they have, also within quotes. */
  readonly isSeparate: boolean;
  readonly end: number;
}

const known = (words: readonly string[], end: number, isSeparate = false): Expanded => ({
  words,
  isKnown: true,
  isSeparate,
  end,
});
const unknown = (word: string, end: number): Expanded => ({
  words: [word],
  isKnown: false,
  isSeparate: false,
  end,
});
/** A `$…` in a script: where it stands, and what is known there. */
export interface Surroundings {
  readonly text: string;
  /** The place of the `$`. */
  readonly at: number;
  readonly isQuoted: boolean;
  /** It stands in an assignment's value, where nothing is split. */
  readonly isAssigned: boolean;
  readonly parameters: Parameters;
  variable(name: string): Variable | undefined;
  /** Sets a variable to its default, as `${NAME:=…}` does. */
  assign(name: string, value: string, whole: string): void;
  /** Counts what is made of words that are there already: characters, or words of an array. */
  count(made: number): void;
  fault(message: string, remedy: string, value?: string): ProblemError;
}

/** The text of a variable where it stands alone: an array's first. */
const scalar = (around: Surroundings, name: string): string | undefined => around.variable(name)?.words?.[0];

/** The place behind the bracket that closes the one before `at`. Quotes hide brackets. */
function closing(around: Surroundings, at: number, what: string): number {
  let depth = 1;
  for (let end = at; end < around.text.length; end += 1) {
    const here = around.text[end];
    if (here === "\\") end += 1;
    else if (here === "'" || here === '"') {
      const close = around.text.indexOf(here, end + 1);
      if (close < 0) break;
      end = close;
    } else if (here === "(") depth += 1;
    else if (here === ")") {
      depth -= 1;
      if (depth === 0) return end + 1;
    }
  }
  throw around.fault(`ends inside ${what}`, "close it with )");
}

/** Reads one `$…`. */
export function expand(around: Surroundings): Expanded {
  const { at, text } = around;
  if (text.startsWith("$((", at)) return expandArithmetic(around);
  // What a command would print is not known; it matters only where a number is read.
  if (text.startsWith("$(", at)) {
    const end = closing(around, at + 2, "$(");
    return unknown(text.slice(at, end), end);
  }
  const [whole, name, rest, plain] =
    /^\$(?:\{([A-Za-z_]\w*|[@*#?0-9$!-])([^}]*)\}|([A-Za-z_]\w*|[@*#?0-9$!-]))/.exec(
      text.slice(at, at + 200),
    ) ?? [];
  const notUnderstood = (): ProblemError =>
    around.fault("is a substitution that is not understood", "write its value", whole);
  if (whole === undefined) throw notUnderstood();
  const end = at + whole.length;
  const variableName = name ?? plain ?? "";
  if (!/^[A-Za-z_]/.test(variableName))
    return expandParameter(around, variableName, rest ?? "", end, notUnderstood);
  const variable = around.variable(variableName);
  if (rest === "[@]" || rest === "[*]") {
    // Of what the environment gives, much names files; whoever reads a number finds the name in its place.
    if (!variable || variable.words === null) return unknown(`$${variableName}`, end);
    return rest === "[@]"
      ? known(variable.words, end, true)
      : known(around.isQuoted ? [variable.words.join(" ")] : variable.words, end);
  }
  return expandScalar(around, variableName, rest, end, notUnderstood);
}

/** `$@`, `$1` and the like. */
function expandParameter(
  around: Surroundings,
  name: string,
  rest: string,
  end: number,
  notUnderstood: () => ProblemError,
): Expanded {
  const { parameters } = around;
  const [, digits = "", behind = ""] = /^(\d*)(.*)$/s.exec(rest) ?? [];
  const number = /^[1-9]\d*$/.test(name + digits) ? Number(name + digits) : null;
  const whole = number === null ? around.text.slice(around.at, end) : `$${number}`;
  if (parameters === "unknown" && (name === "@" || name === "*" || number !== null))
    throw around.fault(
      "stands for parameters of the script that were changed in a way that is not known",
      "write the arguments in its place",
      around.text.slice(around.at, end),
    );
  if (name === "@" || name === "*") {
    // What the script is called with is not part of the configuration: none of it has any part either.
    const isPart = /^:\d+(?::\d+)?$/.test(rest) && parameters === "caller's";
    if (rest !== "" && !isPart) throw notUnderstood();
    const words = typeof parameters === "string" ? [] : parameters;
    return name === "*" && around.isQuoted ? known([words.join(" ")], end) : known(words, end, name === "@");
  }
  if (typeof parameters !== "string") around.count(Math.min(number ?? 0, parameters.length));
  if (number === null) return unknown(whole, end);
  const fallback = behind.includes("-") ? fallbackOf(around, behind) : undefined;
  // Without a default, what the caller gives is not known: much of it names files.
  const value = fallback !== undefined && parameters === "caller's" ? "" : parameterAt(parameters, number);
  if (value === undefined || (behind !== "" && fallback === undefined)) return unknown(whole, end);
  const count = typeof parameters === "string" ? 0 : parameters.length;
  const isMissing = number > count || (value === "" && fallback?.isForEmpty === true);
  return known([isMissing && fallback !== undefined ? fallback.text : value], end);
}

/** What stands for a variable that has no value. */
interface Fallback {
  readonly sign: string;
  /** It stands for an empty value too. */
  readonly isForEmpty: boolean;
  readonly text: string;
}

/** Of `${name-fallback}` and `${name=fallback}`; undefined where it is not understood. */
function fallbackOf({ isAssigned, isQuoted }: Surroundings, rest: string): Fallback | undefined {
  const [, colon, sign = "", text] = /^(:?)([-=])(.*)$/s.exec(rest) ?? [];
  if (
    text === undefined ||
    /[$`\\{]/.test(text) ||
    (/\s/.test(text) && !isAssigned && !isQuoted) ||
    (/["']/.test(text) && (isQuoted || !/^(["'])[^"']*\1$/.test(text)))
  )
    return undefined;
  return { sign, isForEmpty: colon === ":", text: text.replace(/^(["'])(.*)\1$/s, "$2") };
}

/** `$name`, `${name-fallback}`, or `${name=fallback}`. */
function expandScalar(
  around: Surroundings,
  variableName: string,
  rest: string | undefined,
  end: number,
  notUnderstood: () => ProblemError,
): Expanded {
  const value = scalar(around, variableName);
  if (rest === undefined || rest === "")
    return value === undefined ? unknown(`$${variableName}`, end) : known([value], end);
  const fallback = fallbackOf(around, rest);
  if (fallback === undefined) throw notUnderstood();
  const variable = around.variable(variableName);
  if (variable?.words === null) return unknown(`$${variableName}`, end);
  if (value !== undefined && (value !== "" || !fallback.isForEmpty)) return known([value], end);
  if (fallback.sign === "=") {
    if (variable?.isArray === true) throw notUnderstood();
    around.assign(variableName, fallback.text, around.text.slice(around.at, end));
  }
  return known([fallback.text], end);
}

/** `$((…))`. */
function expandArithmetic(around: Surroundings): Expanded {
  const { at, text } = around;
  const end = closing(around, at + 2, "$((");
  if (text[end - 2] !== ")") throw around.fault("is arithmetic that is not understood", "write the number");
  const inner = text.slice(at + 3, end - 2);
  const missing = [...inner.slice(0, 1000).matchAll(/[A-Za-z_]\w*/g)].find(
    ([name]) => scalar(around, name) === undefined,
  );
  if (missing)
    throw around.fault(
      `the variable ${missing[0]} is not set in this file`,
      `set it above, e.g. ${missing[0]}=8`,
      `$${missing[0]}`,
    );
  const value = shellArithmetic(inner, (name) => scalar(around, name));
  if (value === undefined) throw around.fault("is arithmetic that is not understood", "write the number");
  return known([String(value)], end);
}
