import { ProblemError } from "@internevo/domain";

interface Word {
  readonly text: string;
  readonly line: number;
}

function fault(line: number, value: string, message: string, remedy: string): ProblemError {
  return new ProblemError("bad-request", `line ${line}: ${message}`, [{ field: `line ${line}`, value, message, remedy }]);
}

const CONTROL: ReadonlySet<string> = new Set(["if", "for", "while", "until", "case", "select", "function"]);

type Variables = Map<string, readonly string[]>;

/** Longer arithmetic is none that people write. */
const MOST_ARITHMETIC = 1000;
/** Characters that the variables of a script may come to in all: they can double each other. */
const MOST_EXPANDED = 1 << 22;

/** Integers with + - * / and brackets, as $(( )) has them. */
function arithmetic(text: string, line: number, variables: Variables): string {
  const tooLong = (known: string): void => {
    if (known.length > MOST_ARITHMETIC) throw fault(line, text.slice(0, 40), `is arithmetic of more than ${MOST_ARITHMETIC} characters`, "write the number");
  };
  tooLong(text);
  const known = text.replace(/\$?\{?([A-Za-z_]\w*)\}?/g, (_whole, name: string) => one(name, line, variables));
  tooLong(known);
  const tokens = known.match(/\d+|[-+*/()]/g) ?? [];
  if (tokens.join("") !== known.replace(/\s/g, "") || tokens.length === 0) throw fault(line, text, "is arithmetic that is not understood", "write the number");
  let at = 0;
  const next = (): string | undefined => tokens[at++];
  const factor = (): number => {
    const token = next();
    if (token === "(") {
      const value = sum();
      next();
      return value;
    }
    return token === "-" ? -factor() : Number(token);
  };
  const product = (): number => {
    let value = factor();
    while (tokens[at] === "*" || tokens[at] === "/") value = next() === "*" ? value * factor() : Math.trunc(value / factor());
    return value;
  };
  const sum = (): number => {
    let value = product();
    while (tokens[at] === "+" || tokens[at] === "-") value = next() === "+" ? value + product() : value - product();
    return value;
  };
  const value = sum();
  if (at < tokens.length || !Number.isSafeInteger(value)) throw fault(line, text, "is arithmetic that is not understood", "write the number");
  return String(value);
}

function one(name: string, line: number, variables: Variables): string {
  const value = variables.get(name);
  if (value === undefined) throw fault(line, `$${name}`, `the variable ${name} is not set in this file`, `set it above, e.g. ${name}=8`);
  return value.join(" ");
}

/** Reads one `$…` at a place: its value as words, and the place behind it. */
function expand(script: string, at: number, line: number, variables: Variables): { words: readonly string[]; end: number } {
  if (script.startsWith("$((", at)) {
    const end = script.indexOf("))", at);
    if (end < 0) throw fault(line, script.slice(at, at + 20), "ends inside $((", "close it with ))");
    return { words: [arithmetic(script.slice(at + 3, end), line, variables)], end: end + 2 };
  }
  if (script.startsWith("$(", at)) {
    // What a command would print is not known; it matters only where a number is read.
    let depth = 0;
    let end = at + 1;
    do {
      if (end >= script.length) throw fault(line, script.slice(at, at + 20), "ends inside $(", "close it with )");
      if (script[end] === "(") depth += 1;
      if (script[end] === ")") depth -= 1;
      end += 1;
    } while (depth > 0);
    return { words: [script.slice(at, end)], end };
  }
  const [whole, name, rest, plain] = /^\$(?:\{([A-Za-z_]\w*|[@*#?0-9])([^}]*)\}|([A-Za-z_]\w*|[@*#?0-9]))/.exec(script.slice(at, at + 200)) ?? [];
  if (whole === undefined) throw fault(line, script.slice(at, at + 20), "is a substitution that is not understood", "write its value");
  const variable = name ?? plain ?? "";
  const end = at + whole.length;
  // What the script is called with is not part of the configuration.
  if (/^[@*#?0-9]$/.test(variable)) return { words: variable === "@" || variable === "*" ? [] : [whole], end };
  const value = variables.get(variable);
  const [, fallback] = /^:?-(.*)$/.exec(rest ?? "") ?? [];
  if (value === undefined && fallback !== undefined) return { words: [fallback.replace(/^(["'])(.*)\1$/, "$2")], end };
  if (rest !== undefined && rest !== "" && rest !== "[@]" && rest !== "[*]" && fallback === undefined) throw fault(line, whole, "is a substitution that is not understood", "write its value");
  // Of what the environment gives, much names files; whoever reads a number finds the name in its place.
  return { words: value ?? [`$${variable}`], end };
}

/**
 * The words of the commands of a shell script: comments, continued lines, quotes, variables that are set in the file, arrays
 * and integer arithmetic are understood; nothing is run. Control flow and substituted commands are not.
 * @throws ProblemError `bad-request` that names the line.
 */
export function shellCommands(script: string): string[][] {
  const variables: Variables = new Map();
  const commands: string[][] = [];
  let words: Word[] = [];
  let word: string | null = null;
  let array: string | null = null;
  let line = 1;
  let expanded = 0;
  const expandAt = (at: number): ReturnType<typeof expand> => {
    const found = expand(script, at, line, variables);
    expanded += found.words.reduce((sum, each) => sum + each.length + 1, 0);
    if (expanded > MOST_EXPANDED) throw fault(line, script.slice(at, at + 20), `makes the script longer than ${MOST_EXPANDED >> 20} MiB by its variables`, "write the values");
    return found;
  };
  const endWord = (): void => {
    if (word !== null) words.push({ text: word, line });
    word = null;
  };
  const endCommand = (): void => {
    endWord();
    let texts = words.map(({ text }) => text);
    if (texts[0] === "export" || texts[0] === "local") texts = texts.slice(1);
    // Assignments before a command are its environment, alone they are variables; both are known afterwards.
    while (texts[0] !== undefined && /^[A-Za-z_]\w*=/.test(texts[0])) {
      const [assignment = ""] = texts;
      variables.set(assignment.slice(0, assignment.indexOf("=")), [assignment.slice(assignment.indexOf("=") + 1)]);
      texts = texts.slice(1);
    }
    const [first] = texts;
    if (first !== undefined && CONTROL.has(first)) throw fault(line, texts.join(" "), `${first} decides what runs, and nothing is run here`, "write the arguments without conditions and loops");
    if (first !== undefined) commands.push(texts);
    words = [];
  };
  for (let at = 0; at < script.length; ) {
    const here = script[at] as string;
    if (here === "\\" && script[at + 1] === "\n") {
      endWord();
      line += 1;
      at += 2;
    } else if (here === "#" && word === null) {
      while (at < script.length && script[at] !== "\n") at += 1;
    } else if (here === "\n" || here === ";" || here === "&" || here === "|") {
      if (array === null) endCommand();
      else endWord();
      if (here === "\n") line += 1;
      at += 1;
    } else if (here === " " || here === "\t" || here === "\r") {
      endWord();
      at += 1;
    } else if (here === "(" && word !== null && /^[A-Za-z_]\w*\+?=$/.test(word)) {
      array = word;
      word = null;
      words = [];
      at += 1;
    } else if (here === ")" && array !== null) {
      endWord();
      const name = array.replace(/\+?=$/, "");
      const before = array.endsWith("+=") ? (variables.get(name) ?? []) : [];
      variables.set(name, [...before, ...words.map(({ text }) => text)]);
      array = null;
      words = [];
      at += 1;
    } else if (here === "'") {
      const end = script.indexOf("'", at + 1);
      if (end < 0) throw fault(line, script.slice(at, at + 20), "ends inside a quote", "close the quote");
      word = (word ?? "") + script.slice(at + 1, end);
      line += script.slice(at, end).split("\n").length - 1;
      at = end + 1;
    } else if (here === '"') {
      word ??= "";
      at += 1;
      while (script[at] !== '"') {
        if (at >= script.length) throw fault(line, word, "ends inside a quote", "close the quote");
        if (script[at] === "\\" && script[at + 1] === "\n") {
          at += 2;
          line += 1;
        } else if (script[at] === "$") {
          const { words: values, end } = expandAt(at);
          // "${ARRAY[@]}" is as many words as the array has.
          for (const value of values.slice(0, -1)) {
            word += value;
            endWord();
            word = "";
          }
          word += values.at(-1) ?? "";
          at = end;
        } else {
          word += script[at] as string;
          if (script[at] === "\n") line += 1;
          at += 1;
        }
      }
      at += 1;
    } else if (here === "$") {
      const { words: values, end } = expandAt(at);
      const parts = values.flatMap((value) => value.split(/\s+/)).filter((part) => part !== "");
      for (const [index, part] of parts.entries()) {
        if (index > 0) endWord();
        word = (word ?? "") + part;
      }
      at = end;
    } else if (script.startsWith("<<", at)) {
      throw fault(line, script.slice(at, at + 20), "writes a file from the script", "put that file beside this one, without variables");
    } else if (here === "`") {
      throw fault(line, script.slice(at, at + 20), "runs a command for its output", "write the output");
    } else {
      word = (word ?? "") + here;
      at += 1;
    }
  }
  if (array !== null) throw fault(line, array, "is an array without end", "close it with )");
  endCommand();
  return commands;
}

/** A word as a shell reads it back. */
export const shellWord = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`);
