import type { OnToken } from "./token-reader.ts";

/** Tokens in files, of which everything but the tokens themselves has been checked. */
export interface TokenSource {
  /** What the trainer is given. */
  readonly path: string;
  /** All files of it. */
  readonly files: readonly string[];
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

/** After so many tokens it is asked whether reading them is to end. */
const TOKENS_A_LOOK = 1 << 16;

/**
 * Reads every token, as {@link TokenSource.read} does. @returns how often each one occurs: 8 bytes a token of
 * the vocabulary, which only a job that fits its cluster may ask for.
 */
export async function countTokens(
  source: Pick<TokenSource, "read">,
  vocabularySize: number,
  onToken?: OnToken,
  signal?: AbortSignal,
): Promise<Float64Array> {
  const counts = new Float64Array(vocabularySize);
  await source.read(vocabularySize, (token, index) => {
    counts[token] = (counts[token] as number) + 1;
    onToken?.(token, index);
    if (index % TOKENS_A_LOOK === 0) signal?.throwIfAborted();
  });
  return counts;
}
