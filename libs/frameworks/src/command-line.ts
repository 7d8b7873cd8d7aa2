import { nearestWord, shellWord } from "@internevo/domain";
import { shellScript } from "./shell.ts";
import type { TakenAs } from "./framework.ts";
import { isWithoutEffect, type Judges } from "./judgements.ts";
import { Faults } from "./problems.ts";

/** How many values an option takes: none, one, or all up to the next option. */
export type Arity = "flag" | "one" | "some";

/** What is known of a program's options. */
export interface OptionTable {
  /** Those that are read. */
  readonly read: Readonly<Record<string, Arity>>;
  /** Those that say nothing about time or memory of a step. */
  readonly ignored: Readonly<Record<string, Arity>>;
  /** Those that make of it something that no plan stands for, with the reason. */
  readonly refused: Readonly<Record<string, string>>;
  /** For those of {@link ignored} that have an effect with some values. */
  readonly judges: Judges;
}

/** Options by their arity, as one text of names each. */
export function optionNames(names: {
  readonly flag?: string;
  readonly one?: string;
  readonly some?: string;
}): Record<string, Arity> {
  const entries = (Object.entries(names) as [Arity, string][]).flatMap(([arity, text]) =>
    text
      .trim()
      .split(/\s+/)
      .map((name) => [name, arity] as const),
  );
  return Object.fromEntries(entries);
}

/** Why options are refused, by their names: each reason with a text of names. */
export const refusalsOf = (
  refusals: readonly (readonly [why: string, names: string])[],
): Record<string, string> =>
  Object.fromEntries(
    refusals.flatMap(([why, names]) =>
      names
        .trim()
        .split(/\s+/)
        .map((name) => [name, why] as const),
    ),
  );

export interface ReadOptions {
  /** Ranks as the launcher's options say; null where they do not. */
  readonly nodes: number | null;
  readonly gpusPerNode: number | null;
  readonly options: Options;
  readonly ignored: string[];
  readonly takenAs: TakenAs[];
}

/** Numbers as Python reads them: a point and an exponent only where no whole number is asked for. */
const DIGITS = String.raw`\d+(?:_\d+)*`;
const DECIMAL = new RegExp(
  String.raw`^\s*[-+]?(?:${DIGITS}\.?(?:${DIGITS})?|\.${DIGITS})(?:[eE][-+]?${DIGITS})?\s*$`,
);
const WHOLE = new RegExp(String.raw`^\s*[-+]?${DIGITS}\s*$`);
export const isWhole = (text: string): boolean => WHOLE.test(text);
export const isDecimal = (text: string): boolean => DECIMAL.test(text);

/** The options of one command. */
export class Options {
  readonly #values: ReadonlyMap<string, readonly string[]>;
  readonly faults: Faults;

  constructor(values: ReadonlyMap<string, readonly string[]>, faults: Faults) {
    this.#values = values;
    this.faults = faults;
  }

  has(name: string): boolean {
    return this.#values.has(name);
  }

  all(name: string): readonly string[] | undefined {
    return this.#values.get(name);
  }

  text(name: string): string | undefined {
    return this.#values.get(name)?.[0];
  }

  number(name: string, least = -Infinity): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const value = DECIMAL.test(text) ? Number(text.replaceAll("_", "")) : Number.NaN;
    if (Number.isFinite(value) && value >= least) return value;
    const parameter = /^\$(\d+)$/.exec(text)?.[1];
    const unset =
      parameter === undefined ? `set ${text.slice(1)}` : `give a default, such as \${${parameter}:-2},`;
    const remedy = text.startsWith("$")
      ? `${unset} in the file, or write the number`
      : `give a number${least > -Infinity ? ` from ${least}` : ""}`;
    this.faults.add(name, text, "is not a number that is possible here", remedy);
    return undefined;
  }

  integer(name: string, least = 1): number | undefined {
    const value = this.number(name, least);
    if (value === undefined) return undefined;
    if (Number.isSafeInteger(value) && isWhole(this.text(name) ?? "")) return value;
    this.faults.add(name, this.text(name), "is not a whole number", "give a whole number");
    return undefined;
  }

  /** As {@link integer}; missing is a fault. */
  needed(name: string): number {
    if (!this.has(name)) this.faults.add(name, null, "is missing", "add it");
    return this.integer(name) ?? Number.NaN;
  }

  choice<Value extends string>(name: string, choices: readonly Value[]): Value | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const found = choices.find((each) => each === text);
    if (found === undefined)
      this.faults.add(name, text, "is none of its choices", `use one of ${choices.join(", ")}`);
    return found;
  }
}

const NODES = ["--nnodes", "--num_nodes", "--num-nodes"];
const GPUS = ["--nproc-per-node", "--nproc_per_node", "--num_gpus", "--num-gpus"];

function launcherNumber(words: readonly string[], names: readonly string[], faults: Faults): number | null {
  for (const [index, word] of words.entries()) {
    const [name = "", inline] = word.split("=", 2);
    if (!names.includes(name)) continue;
    const text = inline ?? words[index + 1] ?? "";
    const value = isWhole(text) ? Number(text) : Number.NaN;
    if (text.startsWith("$")) return null;
    if (Number.isSafeInteger(value) && value >= 1) return value;
    faults.add(name, text, "is not a number of ranks", "give a whole number from 1");
  }
  return null;
}

/** Values of an option among the words behind it. */
function valuesBehind(words: readonly string[], at: number, arity: Arity): number {
  if (arity === "flag") return 0;
  let count = 0;
  while (
    at + count < words.length &&
    !(words[at + count] as string).startsWith("--") &&
    (arity === "some" || count < 1)
  )
    count += 1;
  return count;
}

/** Commands that only show the words behind them. */
const SHOWS: ReadonlySet<string> = new Set(["echo", "printf"]);

/** The different commands that start a program. */
function launchesOf(
  commands: readonly (readonly string[])[],
  program: RegExp,
): readonly (readonly string[])[] {
  const launches = commands.filter(
    ([first = "", ...rest]) => !SHOWS.has(first) && [first, ...rest].some((word) => program.test(word)),
  );
  return [...new Map(launches.map((words) => [JSON.stringify(words), words])).values()];
}

/**
 * The words of the command that starts the program; a file of options alone is one without the program's name.
 * @throws ProblemError `bad-request` where there is none, or more than one.
 */
export function programCommand(text: string, program: RegExp, faults: Faults): readonly string[] {
  const { commands, end } = shellScript(text);
  const launches = launchesOf(commands, program);
  const command = launches[0] ?? commands.find(([first]) => first?.startsWith("--"));
  if (launches.length > 1)
    return faults.fail(
      launches[0]?.find((word) => program.test(word)) ?? "file",
      launches.length,
      `is started in ${launches.length} different ways`,
      "leave in the script the one that is meant",
    );
  if (command === undefined && end !== null)
    return faults.fail(
      `line ${end.line}`,
      end.command,
      "ends the script before a training program starts",
      `leave out ${end.command}, or give the script that starts the program`,
    );
  if (command === undefined)
    return faults.fail(
      "file",
      null,
      "starts no training program",
      "give the script that starts it, or a file of its options",
    );
  return command;
}

/** Words that a name has at least where its left-out ones are looked for: fewer are in too many names. */
const LEAST_WORDS = 3;

/** No option's name is longer. */
const MOST_NAME = 100;

/** The shortest known option that has all words of a name in their order, and more between them. */
function withMoreWords(name: string, known: readonly string[]): string | undefined {
  const words = name.slice(0, MOST_NAME).split("-").filter(Boolean);
  if (words.length < LEAST_WORDS) return undefined;
  const hasAll = (option: string): boolean => {
    let at = 0;
    for (const word of option.split("-").filter(Boolean)) if (word === words[at]) at += 1;
    return at === words.length;
  };
  const [shortest] = known.filter(hasAll).sort((a, b) => a.length - b.length);
  return shortest;
}

/** The known option that a name is likely to mean. */
function meantBy(name: string, { read, ignored }: OptionTable): string | undefined {
  const known = [...Object.keys(read), ...Object.keys(ignored)];
  return withMoreWords(name, known) ?? nearestWord(name, known);
}

/**
 * Reads the options with which a script starts a program, or a file of options alone.
 * @param program matches the word that is the program; options of its launcher are before it.
 * @throws ProblemError `bad-request`: an option that is not known, is given twice, or is refused; with the
 * name that is likely meant.
 */
export function readOptions(text: string, program: RegExp, table: OptionTable, what: string): ReadOptions {
  const faults = new Faults(what);
  const command = programCommand(text, program, faults);
  const start = command.findIndex((word) => program.test(word)) + 1;
  const launcher = command.slice(0, start);
  const words = command.slice(start);
  const values = new Map<string, readonly string[]>();
  for (let at = 0; at < words.length;) {
    const [name = "", ...inline] = (words[at] as string).split("=");
    at += 1;
    // A script without arguments has no such parameter, which then is no word.
    if (/^\$[1-9]\d*$/.test(name) && inline.length === 0) continue;
    // An option's name begins with a dash, which no property has that every object has.
    const isOption = name.startsWith("-");
    const refused = isOption ? table.refused[name] : undefined;
    const arity = isOption ? (table.read[name] ?? table.ignored[name]) : undefined;
    if (refused !== undefined) {
      faults.add(
        name,
        words[at]?.startsWith("--") === false ? words[at] : true,
        refused,
        "leave it out to ask for the rest",
      );
      at += valuesBehind(words, at, "some");
      continue;
    }
    if (arity === undefined) {
      const meant = faults.isFull ? undefined : meantBy(name, table);
      faults.add(
        name,
        words[at - 1],
        name.startsWith("--") ? "is not known" : "is no option",
        meant === undefined
          ? "leave it out if it changes neither time nor memory"
          : `did you mean ${meant}? else leave it out, if it changes neither time nor memory`,
      );
      at += valuesBehind(words, at, "some");
      continue;
    }
    const count = inline.length > 0 ? 0 : valuesBehind(words, at, arity);
    const given = inline.length > 0 ? [inline.join("=")] : words.slice(at, at + count);
    at += count;
    if (arity !== "flag" && given.length === 0) faults.add(name, null, "has no value", "give one");
    if (arity === "flag" && given.length > 0)
      faults.add(name, given.join(" "), "takes no value", `write ${name} alone`);
    const before = values.get(name);
    if (arity !== "flag" && before !== undefined && before.join(" ") !== given.join(" "))
      faults.add(
        name,
        given.join(" "),
        `contradicts ${before.join(" ")}, which it was given before`,
        "give it once",
      );
    values.set(name, given);
  }
  const takenAs: TakenAs[] = [];
  const ignored = [...values]
    .filter(
      ([name, given]) =>
        !Object.hasOwn(table.read, name) &&
        isWithoutEffect(name, given.length === 0 || given.join(" "), table.judges[name], { faults, takenAs }),
    )
    .map(([name]) => name);
  const nodes = launcherNumber(launcher, NODES, faults);
  const gpusPerNode = launcherNumber(launcher, GPUS, faults);
  faults.end();
  return { nodes, gpusPerNode, options: new Options(values, faults), ignored, takenAs };
}

/** An option and its values, for writing. */
export type Argument = readonly [name: string, ...values: (string | number)[]];

/** A command with an option a line. */
export const commandText = (start: string, groups: readonly (readonly Argument[])[]): string =>
  [
    start,
    ...groups
      .filter((group) => group.length > 0)
      .map((group) =>
        group
          .map(([name, ...values]) => [name, ...values.map((value) => shellWord(String(value)))].join(" "))
          .join(" \\\n  "),
      ),
  ].join(" \\\n  ");
