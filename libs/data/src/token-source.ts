import type { OnToken } from "./token-counts.ts";

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
   * Reads every token; how often each one occurs.
   * @param vocabularySize V: a token outside of it is refused with its place.
   * @throws ProblemError `data-invalid`
   */
  count(vocabularySize: number, onToken?: OnToken): Promise<Float64Array>;
}
