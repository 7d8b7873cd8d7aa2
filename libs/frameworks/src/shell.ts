import { ProblemError } from "@internevo/domain";
import { ASSIGNMENT, DECLARES, endsScript, PREFIXES, setBy, whyRefused } from "./shell-commands.ts";
import { expand, type Expanded } from "./shell-expansion.ts";
import { parametersAfterSet, parametersAfterShift } from "./shell-parameters.ts";
import { forgotten, ShellVariables, type Variable } from "./shell-variables.ts";

function fault(line: number, value: string, message: string, remedy: string): ProblemError {
  return new ProblemError("bad-request", `line ${line}: ${message}`, [
    { field: `line ${line}`, value: value.slice(0, 200), message, remedy },
  ]);
}

/** What a word is so far: a NAME, NAME+, or anything else. Nothing of a name is quoted. */
type Head = "" | "name" | "plus" | "else";

/** A word of a command. */
interface Word {
  readonly text: string;
  readonly assigns: boolean;
}

/** Characters that the variables of a script may come to in all: they can double each other. */
const MOST_EXPANDED = 1 << 22;
type Separator = "\n" | ";" | "&" | "|" | "&&" | "||" | "";

/** Reads a script from its beginning to its end, once. */
class Script {
  readonly #text: string;
  readonly #variables = new ShellVariables();
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
  /** What `${NAME:=…}` of the command sets. */
  #defaults = new Map<string, Variable>();
  /** The next word says where output goes. */
  #redirects = false;
  #before: Separator = "";
  /** Whether the commands before && and || all were assignments, which succeed. */
  #succeeds = true;
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
    const pending = isSequel ? this.#pending.get(name) : undefined;
    return pending ?? this.#defaults.get(name) ?? this.#variables.get(name);
  }

  /**
   * Where another assignment of the command is before it, or it says where output goes, the shell may have
   * another order.
   */
  #assignDefault(name: string, value: string, whole: string): void {
    if (name === "IFS")
      throw this.#fault("changes how words are split", "write the arguments without it", whole);
    if (this.#redirects || this.#pending.size > 0)
      throw this.#fault("is an assignment that is not understood", "write the assignment alone", whole);
    this.#defaults.set(name, { isArray: false, words: [value] });
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
    const before = this.#pending.get(name) ?? this.#variables.get(name);
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
    const defaults = this.#defaults;
    // The words of a command are made before its environment.
    if (defaults.size > 0 && this.#commandAt > 0)
      throw this.#fault(
        "is an assignment that is not understood",
        "write the assignment alone",
        [...defaults.keys()].join(" "),
      );
    if (this.#words.length === 0 && pending.size === 0 && separator === "\n") return;
    const command = this.#command();
    const mayBeNone = this.#commandAt >= 0 && this.#words[this.#commandAt]?.text.includes("$") === true;
    this.#words = [];
    this.#commandAt = -1;
    this.#declares = this.#isDeclaration = false;
    this.#pending = new Map();
    this.#defaults = new Map();
    const inPipe = this.#before === "|" || separator === "|";
    const isSure =
      (this.#before !== "&&" && this.#before !== "||") || (this.#before === "&&" && this.#succeeds);
    const [first, ...rest] = command;
    const refused = first === undefined ? null : whyRefused(first, rest);
    if (refused) throw this.#fault(...refused, command.join(" "));
    const declares = first !== undefined && DECLARES.has(first);
    if (!inPipe)
      for (const [name, variable] of defaults)
        this.#variables.set(name, isSure ? variable : forgotten(variable));
    // What a pipe's commands assign is gone with them; before a command, assignments are its environment.
    if (!inPipe && (first === undefined || declares || mayBeNone))
      for (const [name, variable] of pending)
        this.#variables.set(name, isSure ? variable : forgotten(variable));
    if (!inPipe && first !== undefined) this.#carryOut(first, rest, isSure);
    if (separator !== "&&" && separator !== "||" && separator !== "|")
      this.#variables.endList(separator === "&");
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

  /** What commands of the shell itself do to variables. */
  #carryOut(first: string, rest: readonly string[], isSure: boolean): void {
    if (first === "unset") {
      for (const word of rest) {
        const name = /^\w+/.exec(word)?.[0];
        if (name === undefined) continue;
        if (isSure && name === word && !rest.includes("-f")) this.#variables.unset(name);
        else this.#variables.forget(name);
      }
    }
    const names = setBy(first, rest);
    if (names === "any") this.#variables.forgetAll();
    else for (const name of names) this.#variables.forget(name);
    const { parameters } = this.#variables;
    if (first === "set") this.#variables.setParameters(parametersAfterSet(parameters, rest), isSure);
    if (first === "shift") {
      if (typeof parameters !== "string") this.#count(parameters.length);
      this.#variables.setParameters(parametersAfterShift(parameters, rest), isSure);
    }
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

  #expandCounted(isQuoted: boolean): Expanded {
    const found = expand({
      text: this.#text,
      at: this.#at,
      isQuoted,
      isAssigned: this.#inAssignment(),
      parameters: this.#variables.parameters,
      variable: (name) => this.#variable(name),
      assign: (...what) => this.#assignDefault(...what),
      count: (made) => this.#count(made),
      fault: (...what) => this.#fault(...what),
    });
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
        const { words, isSeparate } = this.#expandCounted(true);
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
    const { words, isKnown } = this.#expandCounted(false);
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
      const before = this.#pending.get(name) ?? this.#variables.get(name);
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
