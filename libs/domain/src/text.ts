import { Type, type TString } from "typebox";

/**
 * What no line of text that people send may hold: controls (a terminal obeys them), line and paragraph
 * separators, changes of direction (they make a line read as another), what takes no room and joins nothing (two
 * names that look alike would be two), and halves of surrogate pairs, which are no text and which no database takes.
 */
const FORBIDDEN =
  String.raw`\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f` +
  String.raw`\u2028-\u202e\u2060-\u206f\u2800\u3164\ue000-\uf8ff\ufdd0-\ufdef\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff`;
const SURROGATES = String.raw`\ud800-\udfff`;

/** The same beyond the first plane: formats of shorthand and notes, and the last planes (tags, private). */
const INVISIBLE_BEYOND = String.raw`\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{10ffff}`;

const pairs = (high: string, lows: readonly string[]): string =>
  lows.map((low) => String.raw`\u${high}\u${low}`).join("|");
/**
 * {@link INVISIBLE_BEYOND} for both ways to read a pattern. With the `u` flag two halves are one character, so that
 * the class is all but U+0000 to U+DFFFF. Without, it is the first halves from U+DB40 on: the rest is left out.
 */
const BEYOND = [
  pairs("d82f", ["dca0", "dca1", "dca2", "dca3"]),
  pairs("d834", ["dd73", "dd74", "dd75", "dd76", "dd77", "dd78", "dd79", "dd7a"]),
  String.raw`(?![\udc00-\uffff])[^\u0000-\udb3f\udfff]`,
].join("|");

const ALLOWED = `[^${FORBIDDEN}${SURROGATES}]*`;

/**
 * Pattern of a line of text with at least one visible character. JSON Schema reads it with the `u` flag, many
 * tools without: it means the same to both. Linear in the text's length.
 */
export const LINE_PATTERN =
  String.raw`^(?=\s*\S)(?!.*(?:${BEYOND}))${ALLOWED}` +
  String.raw`(?:[\ud800-\udbff][\udc00-\udfff]${ALLOWED})*$`;

/** A pattern, and in words what to give. */
export interface ToldPattern {
  readonly pattern: string;
  readonly remedy: string;
}

/** A time of day. */
export const TIME_OF_DAY: ToldPattern = {
  pattern: "^([01][0-9]|2[0-3]):[0-5][0-9]$",
  remedy: "give a time of day from 00:00 to 23:59 as HH:MM, such as 22:00",
};

/** Of a label's key, and of its value. */
export const LONGEST_LABEL = 63;

/** The name of a label. */
export const LABEL_NAME: ToldPattern = {
  pattern: `^[A-Za-z0-9][A-Za-z0-9._/-]{0,${LONGEST_LABEL - 1}}$`,
  remedy: `use up to ${LONGEST_LABEL} letters, digits and . _ / -, of which the first is a letter or a digit`,
};

/** One line of text from outside: a name, a path, a reason. */
export const Line = (maxLength: number, options: { readonly description?: string } = {}): TString =>
  Type.String({ minLength: 1, maxLength, pattern: LINE_PATTERN, ...options });

/**
 * Pattern of a name that tells apart who did something: of characters that are seen, and no two that only look
 * like one. Beyond the first plane, where tags and further selectors are, there is none.
 */
export const VISIBLE_NAME_PATTERN =
  String.raw`^(?! )(?!.* $)[ -~\u00a1-\u00ac\u00ae-\u034e\u0350-\u061b\u061d-\u115e\u1161-\u167f\u1681-\u17b3\u17b6-\u180a\u1810-\u1fff` +
  String.raw`\u2010-\u2027\u2030-\u205e\u2070-\u27ff\u2900-\u2fff\u3001-\u3163\u3165-\ud7ff\uf900-\ufdcf\ufdf0-\ufdff\ufe10-\ufefe\uff01-\uff9f\uffa1-\uffef]+$`;

/** A name of who may do something. */
export const VisibleName = (maxLength: number): TString =>
  Type.String({ minLength: 1, maxLength, pattern: VISIBLE_NAME_PATTERN });

const forbidden = new RegExp(`[${FORBIDDEN}${SURROGATES}${INVISIBLE_BEYOND}]`, "gu");
const SHORT: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const escaped = (character: string): string =>
  SHORT[character] ??
  // Half by half, as JSON does.
  character
    .split("")
    .map((half) => `\\u${half.charCodeAt(0).toString(16).padStart(4, "0")}`)
    .join("");

/**
 * Text of unknown origin, for a terminal or a log: what would be obeyed or cannot be shown is written as JSON
 * would escape it. Applied to a JSON document it leaves the document's meaning as it is.
 */
export const printable = (text: string): string => text.replace(forbidden, escaped);

/** A text's beginning, so that it can be recognised, whatever its length. */
export const beginningOf = (text: string, mostCharacters: number): string =>
  text.length <= mostCharacters ? text : `${text.slice(0, mostCharacters).replace(/[\ud800-\udbff]$/, "")}…`;

/**
 * Any value as JSON, printable: numbers that JSON lacks are texts of it, and what holds itself is said to.
 */
export function printableJson(value: unknown): string {
  const above: unknown[] = [];
  function plain(this: unknown, _key: string, inner: unknown): unknown {
    if (typeof inner === "number" && !Number.isFinite(inner)) return String(inner);
    if (typeof inner !== "object" || inner === null) return inner;
    // `this` holds `inner`: what is deeper belongs to a branch that is done.
    while (above.length > 0 && above.at(-1) !== this) above.pop();
    if (above.includes(inner)) return "(holds itself)";
    above.push(inner);
    return inner;
  }
  try {
    return printable(JSON.stringify(value, plain) ?? "undefined");
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return '"(nested too deep, or too long, to be shown)"';
  }
}

/** What a line holds that it may not, or undefined. */
export function forbiddenIn(text: string): string | undefined {
  const found = text.match(forbidden)?.[0];
  return found === undefined ? undefined : escaped(found);
}

/** Text as a shell takes it for one word. */
export const shellWord = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;

/** "a, b or c". */
export const listed = (words: readonly string[], last: "and" | "or"): string =>
  words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} ${last} ${words.at(-1) ?? ""}`;
