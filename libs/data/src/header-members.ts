/*
 * Members of a JSON object that may be very long, one by one: a list of a hundred million brackets must not become values.
 */

/** A member that is longer describes no tensor. */
const MOST_MEMBER_BYTES = 2 ** 20;
/** The object, a tensor in it, a list in that. */
const MOST_LEVELS = 3;

const [QUOTE, BACKSLASH, COMMA] = [0x22, 0x5c, 0x2c];
const [OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET] = [0x7b, 0x7d, 0x5b, 0x5d];
const SPACES: readonly (number | undefined)[] = [0x20, 0x09, 0x0a, 0x0d];
/** The one member that may have any length, and that nobody reads. */
const METADATA = "__metadata__";
const BEGINS_WITH_METADATA = new RegExp(`^\\s*"${METADATA}"\\s*:`);

/** Undefined for what is no member. */
function parsedMember(text: string): readonly [name: string, value: unknown] | undefined {
  try {
    return Object.entries(JSON.parse(`{${text}}`) as object)[0];
  } catch {
    return undefined;
  }
}

/** Takes the text of an object in pieces, and gives its members. */
export class HeaderMembers {
  readonly #damaged: () => Error;
  #level = 0;
  #inText = false;
  #isEscaped = false;
  #hasEnded = false;
  #count = 0;
  #kept: Buffer[] = [];
  #keptBytes = 0;
  #isLeftOut = false;

  /** @param damaged what is thrown for a text that is no object. */
  constructor(damaged: () => Error) {
    this.#damaged = damaged;
  }

  /** The members that end in a piece, without the metadata. */
  *read(piece: Buffer): Generator<readonly [name: string, value: unknown]> {
    let from = 0;
    for (let at = 0; at < piece.length; at += 1) {
      const byte = piece[at];
      if (this.#inText) {
        this.#inText = this.#isEscaped || byte !== QUOTE;
        this.#isEscaped = !this.#isEscaped && byte === BACKSLASH;
      } else if (this.#level === 0) {
        if (byte === OPEN_BRACE && !this.#hasEnded) {
          this.#level = 1;
          from = at + 1;
        } else if (!SPACES.includes(byte)) throw this.#damaged();
      } else if (this.#level === 1 && (byte === COMMA || byte === CLOSE_BRACE)) {
        this.#keep(piece.subarray(from, at));
        from = at + 1;
        if (byte === CLOSE_BRACE) this.#end();
        const member = this.#member();
        if (member !== undefined) yield member;
      } else this.#inside(byte);
    }
    if (this.#level > 0) this.#keep(piece.subarray(from));
  }

  /** @throws where the text is cut off. */
  finish(): void {
    if (!this.#hasEnded) throw this.#damaged();
  }

  #end(): void {
    this.#level = 0;
    this.#hasEnded = true;
  }

  /** Brackets need not match here: what is between them is parsed. */
  #inside(byte: number | undefined): void {
    if (byte === QUOTE) this.#inText = true;
    else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) this.#level += 1;
    else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) this.#level -= 1;
    if (this.#level < 1 || this.#level > MOST_LEVELS) throw this.#damaged();
  }

  #keep(bytes: Buffer): void {
    if (this.#isLeftOut) return;
    this.#kept.push(bytes);
    this.#keptBytes += bytes.length;
    if (this.#keptBytes <= MOST_MEMBER_BYTES) return;
    const begin = Buffer.concat(this.#kept.map((each) => each.subarray(0, 100))).toString("latin1");
    if (!BEGINS_WITH_METADATA.test(begin)) throw this.#damaged();
    this.#isLeftOut = true;
    this.#kept = [];
  }

  /** The member that ends here; undefined for metadata, and in an object without members. */
  #member(): readonly [name: string, value: unknown] | undefined {
    const text = Buffer.concat(this.#kept).toString("utf8");
    const isLeftOut = this.#isLeftOut;
    this.#kept = [];
    this.#keptBytes = 0;
    this.#isLeftOut = false;
    this.#count += 1;
    if (isLeftOut || (this.#hasEnded && this.#count === 1 && text.trim() === "")) return undefined;
    const member = parsedMember(text);
    if (member === undefined) throw this.#damaged();
    return member[0] === METADATA ? undefined : member;
  }
}
