import { ProblemError } from "@internevo/domain";
import { shellArithmetic } from "./shell-arithmetic.ts";
import { ASSIGNMENT, DECLARES, endsScript, PREFIXES, setBy, whyRefused } from "./shell-commands.ts";
import {
  parameterAt,
  parametersAfterSet,
  parametersAfterShift,
  type Parameters,
} from "./shell-parameters.ts";

function fault(line: number, value: string, message: string, remedy: string): ProblemError {
  return new ProblemError("bad-request", `line ${line}: ${message}`, [
    { field: `line ${line}`, value: value.slice(0, 200), message, remedy },
  ]);
}

interface Variable {
  readonly isArray: boolean;
  /** Null: not known here. */
  readonly words: readonly string[] | null;
}
const UNSET: Variable = { isArray: false, words: [] };
/** An array stays one, whatever is in it. */
const forgotten = (variable: Variable | undefined): Variable => ({
  isArray: variable?.isArray ?? false,
  words: null,
});

/** What a word is so far: a NAME, NAME+, or anything else. Nothing of a name is quoted. */
type Head = "" | "name" | "plus" | "else";

/** A word of a command. */
interface Word {
  readonly text: string;
  readonly assigns: boolean;
}

/** What stands for a $…: words, and whether their text is known here. */
interface Expanded {
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

/** Characters that the variables of a script may come to in all: they can double each other. */
const MOST_EXPANDED = 1 << 22;
type Separator = "\n" | ";" | "&" | "|" | "&&" | "||" | "";

/** Reads a script from its beginning to its end, once. */
class Script {
  readonly #text: string;
  readonly #variables = new Map<string, Variable>();
  readonly #arrays = new Set<string>();
  /** Whether a command may have set any variable; those that were set since are known. */
  #isLost = false;
  readonly commands: string[][] = [];
  end: ShellScript["end"] = null;
  /** Words of the command that is being read. */
  #words: Word[] = [];
  /** The place of the command among them, behind assignments that are its environment; -1: none so far. */
  #commandAt = -1;
  /** Whether the command declares variables; and whether it is written so that its arguments are not split. */
  #declares = false;
  #isDeclaration = false;
  #word: string | null = null;
  #head: Head = "";
  #isLiteral = true;
  #wordAssigns = false;
  #array: { readonly name: string; readonly adds: boolean; readonly words: string[] } | null = null;
  /** Assignments of the command so far: they hold for the next of its assignments. */
  #pending = new Map<string, Variable>();
  /** The next word says where output goes. */
  #redirects = false;
  #quoted = false;
  #before: Separator = "";
  /** Whether the commands before && and || all were assignments, which succeed. */
  #succeeds = true;
  #assignedInList: string[] = [];
  #parameters: Parameters = "caller's";
  #changesParameters = false;
  #at = 0;
  #line = 1;
  #expanded = 0;

  constructor(text: string) {
    this.#text = text.replaceAll("\r\n", "\n");
  }

  #fault(message: string, remedy: string, value = this.#text.slice(this.#at, this.#at + 20)): ProblemError {
    return fault(this.#line, value, message, remedy);
  }
  #variable(name: string): Variable | undefined {
    // Arguments of a command that declares are made before any of them is assigned.
    const isSequel = this.#inAssignment() && this.#commandAt < 0;
    return (isSequel ? this.#pending.get(name) : undefined) ?? this.#variableSet(name);
  }

  #variableSet(name: string): Variable | undefined {
    const variable = this.#variables.get(name);
    return variable ?? (this.#isLost ? { isArray: this.#arrays.has(name), words: null } : undefined);
  }

  /** The text of a variable where it stands alone: an array's first. */
  #scalar(name: string): string | undefined {
    const variable = this.#variable(name);
    return variable?.words?.[0];
  }

  /** In an assignment's value nothing is split. */
  #inAssignment(): boolean {
    return this.#array === null && this.#word !== null && this.#wordAssigns;
  }

  /** Whether a word that begins now may be an assignment. */
  #mayAssign(): boolean {
    if (this.#array !== null || this.#redirects) return false;
    return this.#commandAt < 0 || this.#isDeclaration;
  }

  #append(text: string, isQuoted: boolean): void {
    if (this.#word === null) {
      this.#wordAssigns = false;
      this.#head = "";
      this.#isLiteral = true;
    }
    this.#word = (this.#word ?? "") + text;
    if (isQuoted) this.#isLiteral = false;
    if (this.#wordAssigns) return;
    // NAME= is an assignment where no part of it is quoted.
    if (!isQuoted && text === "=" && (this.#head === "name" || this.#head === "plus"))
      this.#wordAssigns = this.#mayAssign();
    this.#head = isQuoted ? "else" : this.#headWith(text);
  }

  #headWith(letter: string): Head {
    if (this.#head === "") return /^[A-Za-z_]$/.test(letter) ? "name" : "else";
    if (this.#head !== "name") return "else";
    if (letter === "+") return "plus";
    return /^\w$/.test(letter) ? "name" : "else";
  }

  #endWord(): void {
    const word = this.#word;
    this.#word = null;
    if (word === null) return;
    if (this.#redirects) this.#redirects = false;
    else if (this.#array) this.#array.words.push(word);
    else {
      // A command that declares sees what its arguments have become.
      const assigns = this.#wordAssigns || (this.#declares && ASSIGNMENT.test(word));
      if (assigns) this.#assign(word);
      this.#words.push({ text: word, assigns });
      if (!assigns && this.#commandAt < 0) this.#beginCommand(word);
    }
    this.#wordAssigns = false;
  }

  #beginCommand(word: string): void {
    this.#commandAt = this.#words.length - 1;
    this.#declares = DECLARES.has(word);
    this.#isDeclaration = this.#declares && this.#isLiteral;
    // What is assigned before a command is its environment; where it may be none at all, that is not known.
    if (this.#declares) this.#pending.clear();
    else if (word.includes("$"))
      for (const [name, each] of this.#pending) this.#pending.set(name, forgotten(each));
  }

  #assign(word: string): void {
    const [whole = "", name = "", plus] = ASSIGNMENT.exec(word) ?? [];
    const value = word.slice(whole.length);
    const before = this.#pending.get(name) ?? this.#variableSet(name);
    if (name === "IFS")
      throw this.#fault("changes how words are split", "write the arguments without it", word);
    // A text is the first of an array.
    this.#count(before?.words?.length ?? 0);
    const [first = "", ...rest] = before?.words ?? [];
    const words =
      before?.words === null && (plus === "+" || before.isArray)
        ? null
        : [plus === "+" ? first + value : value, ...rest];
    // Some shells take "NAME=(…)" as an array.
    const mayBeArray = !this.#wordAssigns && value.startsWith("(");
    this.#pending.set(
      name,
      mayBeArray ? { isArray: true, words: null } : { isArray: before?.isArray ?? false, words },
    );
  }

  #endCommand(separator: Separator): void {
    this.#endWord();
    if (this.#redirects) throw this.#fault("redirects to nothing", "name the file");
    const pending = this.#pending;
    if (this.#words.length === 0 && pending.size === 0 && separator === "\n") return;
    const command = this.#command();
    const mayBeNone = this.#commandAt >= 0 && this.#words[this.#commandAt]?.text.includes("$") === true;
    this.#words = [];
    this.#commandAt = -1;
    this.#declares = this.#isDeclaration = false;
    this.#pending = new Map();
    const inPipe = this.#before === "|" || separator === "|";
    const isSure =
      (this.#before !== "&&" && this.#before !== "||") || (this.#before === "&&" && this.#succeeds);
    const [first, ...rest] = command;
    const refused = first === undefined ? null : whyRefused(first, rest);
    if (refused) throw this.#fault(...refused, command.join(" "));
    const declares = first !== undefined && DECLARES.has(first);
    // What a pipe's commands assign is gone with them; before a command, assignments are its environment.
    if (!inPipe && (first === undefined || declares || mayBeNone))
      for (const [name, variable] of pending) this.#set(name, isSure ? variable : forgotten(variable));
    if (!inPipe && first !== undefined) this.#carryOut(first, rest, isSure);
    this.#endList(separator);
    if (first !== undefined && !inPipe && isSure && separator !== "&" && endsScript(first, rest))
      this.end = { line: this.#line, command: first };
    // The arguments of set are no command, though they may name the program.
    if (first !== undefined && !declares && first !== "set") this.commands.push(command);
    const continues = this.#before === "&&" || this.#before === "||";
    this.#succeeds =
      first === undefined && !inPipe && (!continues || (this.#before === "&&" && this.#succeeds));
    this.#before = separator;
  }

  /** The words of the command without what leaves it as it is. */
  #command(): string[] {
    if (this.#commandAt < 0) return [];
    const words = this.#words.map(({ text }) => text);
    let at = this.#commandAt;
    while (PREFIXES.has(words[at] ?? "")) {
      at += 1;
      const word = words[at] ?? "";
      if (ASSIGNMENT.test(word) || DECLARES.has(word) || /^-(?![vV]$)/.test(word))
        throw this.#fault(
          "is an assignment that is not understood",
          "write the assignment alone",
          words.slice(at).join(" "),
        );
    }
    return words.slice(at);
  }

  /** What a list assigns that runs in the background may be assigned, or not. */
  #endList(separator: Separator): void {
    if (separator === "&") {
      for (const name of this.#assignedInList) this.#variables.set(name, forgotten(this.#variableSet(name)));
      if (this.#changesParameters) this.#parameters = "unknown";
    }
    if (separator === "&&" || separator === "||" || separator === "|") return;
    this.#assignedInList = [];
    this.#changesParameters = false;
  }

  #set(name: string, variable: Variable): void {
    this.#variables.set(name, variable);
    if (variable.isArray) this.#arrays.add(name);
    this.#assignedInList.push(name);
  }

  /** What commands of the shell itself do to variables. */
  #carryOut(first: string, rest: readonly string[], isSure: boolean): void {
    if (first === "unset") {
      for (const word of rest) {
        const name = /^\w+/.exec(word)?.[0];
        if (name === undefined) continue;
        if (isSure && name === word && !rest.includes("-f")) this.#set(name, UNSET);
        else this.#set(name, forgotten(this.#variableSet(name)));
      }
    }
    const names = setBy(first, rest);
    if (names === "any") {
      this.#isLost = true;
      this.#variables.clear();
      this.#setParameters("unknown", true);
    } else for (const name of names) this.#set(name, forgotten(this.#variableSet(name)));
    if (first === "set") this.#setParameters(parametersAfterSet(this.#parameters, rest), isSure);
    if (first === "shift" && typeof this.#parameters !== "string") this.#count(this.#parameters.length);
    if (first === "shift") this.#setParameters(parametersAfterShift(this.#parameters, rest), isSure);
  }

  #setParameters(parameters: Parameters, isSure: boolean): void {
    if (parameters === this.#parameters) return;
    this.#parameters = isSure ? parameters : "unknown";
    this.#changesParameters = true;
  }

  /** The place behind the bracket that closes the one before `at`. Quotes hide brackets. */
  #closing(at: number, what: string): number {
    let depth = 1;
    for (let end = at; end < this.#text.length; end += 1) {
      const here = this.#text[end];
      if (here === "\\") end += 1;
      else if (here === "'" || here === '"') {
        const close = this.#text.indexOf(here, end + 1);
        if (close < 0) break;
        end = close;
      } else if (here === "(") depth += 1;
      else if (here === ")") {
        depth -= 1;
        if (depth === 0) return end + 1;
      }
    }
    throw this.#fault(`ends inside ${what}`, "close it with )");
  }

  /** Reads one `$…`. */
  #expand(): Expanded {
    const at = this.#at;
    const text = this.#text;
    if (text.startsWith("$((", at)) return this.#expandArithmetic();
    // What a command would print is not known; it matters only where a number is read.
    if (text.startsWith("$(", at)) {
      const end = this.#closing(at + 2, "$(");
      return unknown(text.slice(at, end), end);
    }
    const [whole, name, rest, plain] =
      /^\$(?:\{([A-Za-z_]\w*|[@*#?0-9$!-])([^}]*)\}|([A-Za-z_]\w*|[@*#?0-9$!-]))/.exec(
        text.slice(at, at + 200),
      ) ?? [];
    const notUnderstood = (): ProblemError =>
      this.#fault("is a substitution that is not understood", "write its value", whole);
    if (whole === undefined) throw notUnderstood();
    const end = at + whole.length;
    const variableName = name ?? plain ?? "";
    if (!/^[A-Za-z_]/.test(variableName))
      return this.#expandParameter(variableName, rest ?? "", end, notUnderstood);
    const variable = this.#variable(variableName);
    if (rest === "[@]" || rest === "[*]") {
      // Of what the environment gives, much names files; whoever reads a number finds the name in its place.
      if (!variable || variable.words === null) return unknown(`$${variableName}`, end);
      return rest === "[@]"
        ? known(variable.words, end, true)
        : known(this.#quoted ? [variable.words.join(" ")] : variable.words, end);
    }
    return this.#expandScalar(variableName, rest, end, notUnderstood);
  }

  /** `$@`, `$1` and the like. */
  #expandParameter(name: string, rest: string, end: number, notUnderstood: () => ProblemError): Expanded {
    const parameters = this.#parameters;
    const whole = this.#text.slice(this.#at, end);
    const number = /^[1-9]\d*$/.test(name + rest) ? Number(name + rest) : null;
    if (parameters === "unknown" && (name === "@" || name === "*" || number !== null))
      throw this.#fault(
        "stands for parameters of the script that were changed in a way that is not known",
        "write the arguments in its place",
        whole,
      );
    if (name === "@" || name === "*") {
      // What the script is called with is not part of the configuration: none of it has any part either.
      const isPart = /^:\d+(?::\d+)?$/.test(rest) && parameters === "caller's";
      if (rest !== "" && !isPart) throw notUnderstood();
      const words = typeof parameters === "string" ? [] : parameters;
      return name === "*" && this.#quoted ? known([words.join(" ")], end) : known(words, end, name === "@");
    }
    if (typeof parameters !== "string") this.#count(Math.min(number ?? 0, parameters.length));
    const value = number === null ? undefined : parameterAt(parameters, number);
    return value === undefined ? unknown(whole, end) : known([value], end);
  }

  /** `$name`, or `${name-fallback}`. */
  #expandScalar(
    variableName: string,
    rest: string | undefined,
    end: number,
    notUnderstood: () => ProblemError,
  ): Expanded {
    const value = this.#scalar(variableName);
    if (rest === undefined || rest === "")
      return value === undefined ? unknown(`$${variableName}`, end) : known([value], end);
    const [, colon, fallback] = /^(:?)-(.*)$/s.exec(rest) ?? [];
    if (
      fallback === undefined ||
      /[$`\\{]/.test(fallback) ||
      (/\s/.test(fallback) && !this.#inAssignment()) ||
      (/["']/.test(fallback) && (this.#quoted || !/^(["'])[^"']*\1$/.test(fallback)))
    )
      throw notUnderstood();
    if (this.#variable(variableName)?.words === null) return unknown(`$${variableName}`, end);
    return known(
      [
        value === undefined || (value === "" && colon === ":")
          ? fallback.replace(/^(["'])(.*)\1$/s, "$2")
          : value,
      ],
      end,
    );
  }

  /** `$((…))`. */
  #expandArithmetic(): Expanded {
    const at = this.#at;
    const text = this.#text;
    const end = this.#closing(at + 2, "$((");
    if (text[end - 2] !== ")") throw this.#fault("is arithmetic that is not understood", "write the number");
    const inner = text.slice(at + 3, end - 2);
    const missing = [...inner.slice(0, 1000).matchAll(/[A-Za-z_]\w*/g)].find(
      ([name]) => this.#scalar(name) === undefined,
    );
    if (missing)
      throw this.#fault(
        `the variable ${missing[0]} is not set in this file`,
        `set it above, e.g. ${missing[0]}=8`,
        `$${missing[0]}`,
      );
    const value = shellArithmetic(inner, (name) => this.#scalar(name));
    if (value === undefined) throw this.#fault("is arithmetic that is not understood", "write the number");
    return known([String(value)], end);
  }

  /** Counts what is made of words that are there already: characters, or words of an array. */
  #count(made: number): void {
    this.#expanded += made;
    if (this.#expanded > MOST_EXPANDED)
      throw this.#fault(
        `makes the script longer than ${MOST_EXPANDED >> 20} MiB by its variables`,
        "write the values",
      );
  }

  #expandCounted(): Expanded {
    const found = this.#expand();
    this.#count(found.words.reduce((sum, each) => sum + each.length + 1, 0));
    this.#line += this.#text.slice(this.#at, found.end).split("\n").length - 1;
    this.#at = found.end;
    return found;
  }

  #doubleQuoted(): void {
    this.#at += 1;
    const hadWord = this.#word !== null;
    let isEmptyList = false;
    let hasText = false;
    this.#append("", true);
    while (this.#text[this.#at] !== '"') {
      const here = this.#text[this.#at];
      const next = this.#text[this.#at + 1];
      if (here === undefined) throw this.#fault("ends inside a quote", "close the quote", this.#word ?? "");
      if (here === "`") throw this.#fault("runs a command for its output", "write the output");
      if (here === "$" && (next === undefined || !/[\w{(@*#?$!-]/.test(next))) {
        this.#append(here, true);
        this.#at += 1;
        hasText = true;
      } else if (here === "$") {
        this.#quoted = true;
        const { words, isSeparate } = this.#expandCounted();
        this.#quoted = false;
        if (words.length === 0 && isSeparate) isEmptyList = true;
        else hasText = true;
        // "${ARRAY[@]}" is as many words as the array has.
        for (const [index, value] of (this.#inAssignment() ? [words.join(" ")] : words).entries()) {
          if (index > 0) {
            this.#endWord();
            this.#append("", true);
          }
          this.#append(value, true);
        }
      } else {
        if (here === "\n" || (here === "\\" && next === "\n")) this.#line += 1;
        const escapes = here === "\\" && next !== undefined && /["\\$`\n]/.test(next);
        if (escapes) this.#append(next === "\n" ? "" : next, true);
        else this.#append(here, true);
        hasText = true;
        this.#at += escapes ? 2 : 1;
      }
    }
    this.#at += 1;
    // An empty array is no word at all.
    if (
      isEmptyList &&
      !hasText &&
      !hadWord &&
      this.#word === "" &&
      /[\s;&|)]|^$/.test(this.#text[this.#at] ?? "")
    ) {
      this.#word = null;
    }
  }

  #unquotedVariable(): void {
    if (/[\s'"]|^$/.test(this.#text[this.#at + 1] ?? "")) {
      if (/['"]/.test(this.#text[this.#at + 1] ?? ""))
        throw this.#fault("is a quotation that is not understood", "write the text without $");
      this.#append("$", true);
      this.#at += 1;
      return;
    }
    const { words, isKnown } = this.#expandCounted();
    if (!isKnown || this.#inAssignment()) return this.#append(words.join(" "), true);
    for (const [index, value] of words.entries()) {
      if (index > 0) this.#endWord();
      for (const [, space = "", text = ""] of value.matchAll(/([ \t\n]*)([^ \t\n]*)/g)) {
        if (space !== "") this.#endWord();
        if (text !== "") this.#append(text, true);
      }
    }
  }

  #redirect(): void {
    const operator = /^&?(?:>>|>&|>\||<&|<>|>|<)/.exec(this.#text.slice(this.#at, this.#at + 3))?.[0] ?? "";
    if (/^\d+$/.test(this.#word ?? "") && operator[0] !== "&") this.#word = null;
    this.#endWord();
    if (this.#redirects) throw this.#fault("redirects to nothing", "name the file");
    this.#redirects = true;
    this.#at += operator.length;
    if (this.#text[this.#at] === "(") throw this.#fault("runs a command for its output", "write the output");
  }

  #step(): void {
    const text = this.#text;
    const here = text[this.#at] as string;
    const next = text[this.#at + 1];
    const inArray = this.#array !== null;
    if (here === "\\" && next === "\n") {
      this.#line += 1;
      this.#at += 2;
    } else if (here === "\\") {
      this.#append(next ?? "", true);
      this.#at += 2;
    } else if (here === "#" && this.#word === null) {
      while (this.#at < text.length && text[this.#at] !== "\n") this.#at += 1;
    } else if (text.startsWith("<<", this.#at)) {
      throw this.#fault("writes a file from the script", "put that file beside this one, without variables");
    } else if (here === ">" || here === "<" || (here === "&" && next === ">")) {
      this.#redirect();
    } else if (here === "\n" || here === ";" || here === "&" || here === "|") {
      if (inArray && here !== "\n") throw this.#fault("is an array without end", "close it with )");
      const separator =
        (here === "&" || here === "|") && next === here
          ? (`${here}${here}` as Separator)
          : (here as Separator);
      if (inArray) this.#endWord();
      else this.#endCommand(separator);
      if (here === "\n") this.#line += 1;
      this.#at += separator.length;
    } else if (here === " " || here === "\t" || here === "\r") {
      this.#endWord();
      this.#at += 1;
    } else if (
      here === "(" &&
      !inArray &&
      this.#inAssignment() &&
      /^[A-Za-z_]\w*\+?=$/.test(this.#word ?? "")
    ) {
      const [, name = "", plus] = ASSIGNMENT.exec(this.#word ?? "") ?? [];
      this.#word = null;
      this.#wordAssigns = false;
      this.#array = { name, adds: plus === "+", words: [] };
      this.#at += 1;
    } else if (here === ")" && this.#array) {
      this.#endWord();
      const { name, adds, words } = this.#array;
      const before = this.#pending.get(name) ?? this.#variableSet(name);
      if (adds) this.#count(before?.words?.length ?? 0);
      this.#pending.set(name, {
        isArray: true,
        words: adds && before ? before.words && [...before.words, ...words] : words,
      });
      this.#array = null;
      this.#at += 1;
    } else if (here === "(" || here === ")") {
      throw this.#fault("is a part that runs apart, or a function", "write the arguments without it");
    } else if (here === "'") {
      const end = text.indexOf("'", this.#at + 1);
      if (end < 0) throw this.#fault("ends inside a quote", "close the quote");
      this.#append(text.slice(this.#at + 1, end), true);
      this.#line += text.slice(this.#at, end).split("\n").length - 1;
      this.#at = end + 1;
    } else if (here === '"') {
      this.#doubleQuoted();
    } else if (here === "$") {
      this.#unquotedVariable();
    } else if (here === "`") {
      throw this.#fault("runs a command for its output", "write the output");
    } else if (
      (here === "{" && /^\{[^\s{}]*(?:,|\.\.)/.test(text.slice(this.#at, this.#at + 200))) ||
      (here === "[" && this.#word !== null
        ? this.#head === "name" &&
          this.#mayAssign() &&
          /^\[[^\]\n]*\]\+?=/.test(text.slice(this.#at, this.#at + 200))
        : here === "[" && inArray)
    ) {
      throw this.#fault("makes words, or sets a part of an array", "write them out");
    } else {
      this.#append(here, false);
      this.#at += 1;
    }
  }

  read(): void {
    while (this.#at < this.#text.length && this.end === null) this.#step();
    if (this.end !== null) return;
    if (this.#array !== null)
      throw this.#fault("is an array without end", "close it with )", this.#array.name);
    this.#endCommand("");
  }
}

export interface ShellScript {
  /** The words of each command. */
  readonly commands: readonly (readonly string[])[];
  /** The command that ends the script before its last line; null: none. */
  readonly end: { readonly line: number; readonly command: string } | null;
}

/**
 * The words of the commands of a shell script: comments, continued lines, quotes, variables that are set in
 * the file, arrays and integer arithmetic are understood; nothing is run. Control flow and substituted
 * commands are not. A variable that is not known here stays as `$NAME`.
 * @throws ProblemError `bad-request` that names the line.
 */
export function shellScript(script: string): ShellScript {
  const read = new Script(script);
  read.read();
  return read;
}
