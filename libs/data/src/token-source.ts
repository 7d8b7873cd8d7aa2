import type { OnToken } from "./token-reader.ts";

/** Tokens in files, of which everything but the tokens themselves has been checked. */
export interface TokenSource {
  /** What the trainer is given. */
  readonly path: string;
  /** All files of it. */
  readonly files: readonly string[];
  /** Where each of them lay when it was opened, as ranks are told it. */
  readonly forRanks: readonly string[];
  /** Of the file at `path`. */
  readonly sizeBytes: number;
  readonly tokenCount: number;
  /** First tokens of the documents, ascending; null where the files know of none. */
  readonly starts: (() => AsyncIterable<number>) | null;
  /**
   * Reads every token.
   * @param vocabularySize V: a token outside of it is refused with its place.
   * @throws ProblemError `data-invalid`
   */
  read(vocabularySize: number, onToken?: OnToken): Promise<void>;
}

/** No vocabulary that is trained with is larger: of others only tokens that occur are counted. */
const LISTED_TOKENS = 2 ** 20;
/** So many others are counted at most. */
const MOST_OTHERS = 2 ** 18;

/** How often each token occurs, in memory that does not grow with the vocabulary. */
export class TokenCounts {
  readonly #listed: Float64Array;
  readonly #others = new Map<number, number>();
  #areAll = true;

  constructor(vocabularySize: number) {
    this.#listed = new Float64Array(Math.min(vocabularySize, LISTED_TOKENS));
  }

  add(token: number): void {
    if (token < this.#listed.length) {
      this.#listed[token] = (this.#listed[token] as number) + 1;
      return;
    }
    const before = this.#others.get(token);
    if (before !== undefined || this.#others.size < MOST_OTHERS) this.#others.set(token, (before ?? 0) + 1);
    else this.#areAll = false;
  }

  /** Of tokens that occur, in no order; null where more do than are counted. */
  counts(): readonly number[] | null {
    if (!this.#areAll) return null;
    const counts = [...this.#others.values()];
    for (const count of this.#listed) if (count > 0) counts.push(count);
    return counts;
  }
}

/** Reads every token, as {@link TokenSource.read} does. @returns how often each one occurs */
export async function countTokens(
  source: Pick<TokenSource, "read">,
  vocabularySize: number,
  onToken?: OnToken,
): Promise<TokenCounts> {
  const counts = new TokenCounts(vocabularySize);
  await source.read(vocabularySize, (token, index) => {
    counts.add(token);
    onToken?.(token, index);
  });
  return counts;
}
