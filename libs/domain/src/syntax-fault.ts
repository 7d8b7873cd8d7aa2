/** An error of a YAML parser: what `yaml` says of it. */
export interface ParserError {
  readonly code: string;
  readonly message: string;
  /** Place of the error, from 0. */
  readonly pos: readonly [start: number, end: number];
}

/** What keeps a text from being YAML, for whoever wrote it. */
export interface SyntaxFault {
  /** From 1; undefined where it is the whole text. */
  readonly line: number | undefined;
  /** Goes on after "line 4". */
  readonly message: string;
  readonly remedy: string;
  /** The line, and below it a mark; undefined without a line. */
  readonly excerpt: string | undefined;
}

/** Of a longer line so much is shown around its mark. */
const SHOWN = 100;

const indentOf = (line: string): number => line.length - line.trimStart().length;
const columns = (count: number): string => (count === 1 ? "one column" : `${count} columns`);
const isField = (line: string): boolean => /^\s*[^\s#][^:]*:(?:\s|$)/.test(line);

function excerptOf(text: string, column: number): string {
  const from = Math.max(0, column - SHOWN / 2);
  const shown = text.slice(from, from + SHOWN).replaceAll("\t", " ");
  return `${shown.trimEnd()}\n${" ".repeat(column - from)}^`;
}

/** Lines of a text around the place where a parser noticed an error. */
class FaultyText {
  readonly #lines: readonly string[];
  /** The line that the parser names, from 0. */
  readonly #at: number;
  readonly #column: number;
  /** The filled lines nearest to it; negative where there is none. */
  readonly #before: number;
  readonly #behind: number;

  constructor(text: string, start: number) {
    this.#lines = text.split(/\r?\n/);
    const before = text.slice(0, start);
    const at = before.split("\n").length - 1;
    this.#at = at;
    this.#column = start - (before.lastIndexOf("\n") + 1);
    this.#behind = this.#lines.findIndex((line, index) => index > at && line.trim() !== "");
    this.#before = this.#lines.findLastIndex((line, index) => index < at && line.trim() !== "");
  }

  #line(index: number): string {
    return this.#lines[index] ?? "";
  }

  #fault(index: number, mark: number, message: string, remedy: string): SyntaxFault {
    return { line: index + 1, message, remedy, excerpt: excerptOf(this.#line(index), mark) };
  }

  /** At the place that the parser names. */
  here(message: string, remedy: string): SyntaxFault {
    return this.#fault(this.#at, this.#column, message, remedy);
  }

  #badIndent(index: number, right: number): SyntaxFault {
    const indent = indentOf(this.#line(index));
    return this.#fault(
      index,
      indent,
      `is indented ${columns(Math.abs(indent - right))} too ${indent > right ? "far" : "little"}`,
      `begin it in column ${right + 1}, as the line above it`,
    );
  }

  secondColon(): SyntaxFault {
    const next = this.#line(this.#behind);
    const indent = indentOf(this.#line(this.#at));
    if (this.#behind >= 0 && isField(next) && indentOf(next) > indent)
      return this.#badIndent(this.#behind, indent);
    return this.here("has a second colon in its value", "write the value in quotes");
  }

  badIndent(message: string): SyntaxFault {
    if (/^Flow/.test(message)) {
      const bracket = /a ([\]}])/.exec(message)?.[1] ?? "bracket";
      // It is missed where something else stands in its place, or at the next line.
      const isHere = this.#line(this.#at)
        .slice(0, this.#column)
        .includes(bracket === "]" ? "[" : "{");
      if (isHere) return this.here(`lacks a closing ${bracket}`, "close it");
      const open = Math.max(0, this.#before);
      return this.#fault(open, this.#line(open).length, `lacks a closing ${bracket}`, "close it");
    }
    return this.#before < 0
      ? this.here("is indented otherwise than the lines above it", "begin it in the same column")
      : this.#badIndent(this.#at, indentOf(this.#line(this.#before)));
  }

  /** It is missed at the end of the text: behind the last line that is filled. */
  openBracket(bracket: string): SyntaxFault {
    return this.#behindFilled(`lacks a closing ${bracket}`, "close it");
  }

  /** It is missed where the next item begins. */
  noComma(): SyntaxFault {
    return this.#behindFilled("lacks a comma", "put a comma behind it");
  }

  #behindFilled(message: string, remedy: string): SyntaxFault {
    const isHere = this.#line(this.#at).slice(0, this.#column).trim() !== "";
    const index = isHere ? this.#at : Math.max(0, this.#before);
    const filled = isHere ? this.#line(index).slice(0, this.#column) : this.#line(index);
    return this.#fault(index, filled.trimEnd().length, message, remedy);
  }

  tab(): SyntaxFault {
    return this.#fault(this.#at, 0, "is indented by a tab", "indent it by spaces");
  }

  /** It is missed at the end of the text; the last line that has an odd one is where it begins. */
  openQuote(quote: string): SyntaxFault {
    const open = this.#lines.findLastIndex(
      (line, index) => index <= this.#at && line.split(quote).length % 2 === 0,
    );
    const remedy = "close it, or leave it out";
    if (open < 0) return this.here("has a quote that is not closed", remedy);
    return this.#fault(open, this.#line(open).lastIndexOf(quote), "has a quote that is not closed", remedy);
  }
}

/** Of a character that the parser misses; undefined where it tells of no kind that people know. */
function missingCharacter(faulty: FaultyText, message: string): SyntaxFault | undefined {
  if (/quote/.test(message)) return faulty.openQuote(/"/.test(message) || /double/.test(message) ? '"' : "'");
  const bracket = /^Flow \w+ must end with a ([\]}])/.exec(message)?.[1];
  if (bracket !== undefined) return faulty.openBracket(bracket);
  return /^Missing , between/.test(message) ? faulty.noComma() : undefined;
}

/**
 * An error of a YAML parser in words, at the line that has to be changed: parsers name the line that they
 * noticed it at.
 * @param text that was parsed.
 */
export function syntaxFault({ code, message, pos: [start] }: ParserError, text: string): SyntaxFault {
  const faulty = new FaultyText(text, start);
  const noField = (): SyntaxFault =>
    faulty.here("is no field", "write it as a name, a colon, a blank and a value, such as `steps: 100`");
  switch (code) {
    case "BLOCK_AS_IMPLICIT_KEY":
      return faulty.secondColon();
    case "BAD_INDENT":
      return faulty.badIndent(message);
    case "TAB_AS_INDENT":
      return faulty.tab();
    case "DUPLICATE_KEY":
      return faulty.here("gives a field a second time", "keep one of the two");
    case "MULTILINE_IMPLICIT_KEY":
      return noField();
    case "MISSING_CHAR":
      return missingCharacter(faulty, message) ?? noField();
    case "MULTIPLE_DOCS":
      return faulty.here("begins a second document", "give one job a file");
    default:
      return faulty.here(
        `is not YAML: ${message.charAt(0).toLowerCase()}${message.slice(1)}`,
        "write it as in the examples, or put the value in quotes",
      );
  }
}
