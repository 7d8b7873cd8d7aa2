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

/**
 * An error of a YAML parser in words, at the line that has to be changed: parsers name the line that they
 * noticed it at.
 * @param text that was parsed.
 */
export function syntaxFault({ code, message, pos: [start] }: ParserError, text: string): SyntaxFault {
  const lines = text.split(/\r?\n/);
  const before = text.slice(0, start);
  const at = before.split("\n").length - 1;
  const column = start - (before.lastIndexOf("\n") + 1);
  const lineOf = (index: number): string => lines[index] ?? "";
  const fault = (index: number, mark: number, what: string, remedy: string): SyntaxFault => ({
    line: index + 1,
    message: what,
    remedy,
    excerpt: excerptOf(lineOf(index), mark),
  });
  const indentFault = (index: number, right: number): SyntaxFault => {
    const indent = indentOf(lineOf(index));
    return fault(
      index,
      indent,
      `is indented ${columns(Math.abs(indent - right))} too ${indent > right ? "far" : "little"}`,
      `begin it in column ${right + 1}, as the line above it`,
    );
  };
  const nextFilled = lines.findIndex((line, index) => index > at && line.trim() !== "");
  const lastFilled = lines.findLastIndex((line, index) => index < at && line.trim() !== "");
  switch (code) {
    case "BLOCK_AS_IMPLICIT_KEY":
      if (
        nextFilled >= 0 &&
        isField(lineOf(nextFilled)) &&
        indentOf(lineOf(nextFilled)) > indentOf(lineOf(at))
      )
        return indentFault(nextFilled, indentOf(lineOf(at)));
      return fault(at, column, "has a second colon in its value", "write the value in quotes");
    case "BAD_INDENT":
      if (/^Flow/.test(message))
        return fault(
          Math.max(0, lastFilled),
          lineOf(Math.max(0, lastFilled)).length,
          `lacks a closing ${/a ([\]}])/.exec(message)?.[1] ?? "bracket"}`,
          "close it",
        );
      return lastFilled < 0
        ? fault(at, column, "is indented otherwise than the lines above it", "begin it in the same column")
        : indentFault(at, indentOf(lineOf(lastFilled)));
    case "TAB_AS_INDENT":
      return fault(at, 0, "is indented by a tab", "indent it by spaces");
    case "DUPLICATE_KEY":
      return fault(at, column, "gives a field a second time", "keep one of the two");
    case "MULTILINE_IMPLICIT_KEY":
      return fault(
        at,
        column,
        "is no field",
        "write it as a name, a colon, a blank and a value, such as `steps: 100`",
      );
    case "MISSING_CHAR":
      if (/quote/.test(message)) {
        // It is missed at the end of the text; the last line that has an odd one is where it begins.
        const quote = /"/.test(message) || /double/.test(message) ? '"' : "'";
        const open = lines.findLastIndex((line, index) => index <= at && line.split(quote).length % 2 === 0);
        return fault(
          open < 0 ? at : open,
          open < 0 ? column : lineOf(open).lastIndexOf(quote),
          "has a quote that is not closed",
          "close it, or leave it out",
        );
      }
      return fault(
        at,
        column,
        "is no field",
        "write it as a name, a colon, a blank and a value, such as `steps: 100`",
      );
    case "MULTIPLE_DOCS":
      return fault(at, column, "begins a second document", "give one job a file");
    default:
      return fault(
        at,
        column,
        `is not YAML: ${message.charAt(0).toLowerCase()}${message.slice(1)}`,
        "write it as in the examples, or put the value in quotes",
      );
  }
}
