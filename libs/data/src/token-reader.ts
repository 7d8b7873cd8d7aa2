import type { FileHandle } from "node:fs/promises";
import { ProblemError } from "@internevo/domain";
import { nextPart, type Reading } from "./open-data.ts";

/** Called for every token, in order. */
export type OnToken = (token: number, index: number) => void;

/** Takes tokens one by one, each below a vocabulary. */
export class TokenReader {
  readonly #vocabularySize: number;
  readonly #path: string;
  readonly #onToken: OnToken | undefined;
  #index = 0;

  constructor(path: string, vocabularySize: number, onToken?: OnToken) {
    this.#path = path;
    this.#vocabularySize = vocabularySize;
    this.#onToken = onToken;
  }

  /** @throws ProblemError `data-invalid` for a token outside the vocabulary, with its place. */
  add(token: unknown, byte: number): void {
    const size = this.#vocabularySize;
    if (!(typeof token === "number" && token >= 0 && token < size && Number.isInteger(token)))
      throw this.#outside(token, byte);
    this.#onToken?.(token, this.#index);
    this.#index += 1;
  }

  #outside(token: unknown, byte: number): ProblemError {
    const size = this.#vocabularySize;
    const place = `at index ${this.#index} (byte offset ${byte})`;
    // What is no number may be anything, of any size, of a file that was never meant: it is not repeated.
    const isNumber = typeof token === "number";
    const [message, remedy] =
      isNumber && token >= size
        ? [
            `holds token ${token} ${place}, beyond the model's vocabulary of ${size}`,
            `raise model.vocabularySize above ${token}, or tokenize with the model's vocabulary`,
          ]
        : [
            `holds ${isNumber ? `token ${token}` : "a value"} ${place}, which is no token: tokens are whole numbers from 0 to ${size - 1}`,
            "write the file again",
          ];
    return new ProblemError("data-invalid", `${this.#path} ${message}`, [
      { field: "data.path", value: isNumber ? token : this.#path, message, remedy },
    ]);
  }
}

/** Its tokens are taken within milliseconds, and then others have their turn. */
const CHUNK_BYTES = 1 << 20;

/** Tokens of one width, one behind the other. */
export interface PlainTokens {
  readonly firstByte: number;
  readonly tokenCount: number;
  readonly bytesPerToken: number;
  readonly read: (bytes: Buffer, at: number) => number;
}

/** Reads the tokens of an open file whose size has been checked. */
export async function readPlainTokens(
  handle: FileHandle,
  { firstByte, tokenCount, bytesPerToken, read }: PlainTokens,
  into: TokenReader,
  reading: Reading,
): Promise<void> {
  const chunk = Buffer.alloc(CHUNK_BYTES);
  const end = firstByte + tokenCount * bytesPerToken;
  for (let position = firstByte; position < end;) {
    await nextPart(reading);
    const { bytesRead } = await handle.read(chunk, 0, Math.min(chunk.length, end - position), position);
    const whole = bytesRead - (bytesRead % bytesPerToken);
    if (whole === 0) return;
    for (let at = 0; at < whole; at += bytesPerToken) into.add(read(chunk, at), position + at);
    position += whole;
  }
}

/**
 * Entropy of the tokens taken one by one, in nats per token: what a model that knows only frequencies would
 * reach.
 * @param counts how often each token occurs
 */
export function unigramEntropyNats(counts: Iterable<number>): number {
  // With the sum T of counts n: ln T − Σ n ln n / T.
  let [total, weighted] = [0, 0];
  for (const count of counts) {
    total += count;
    if (count > 0) weighted += count * Math.log(count);
  }
  return total === 0 ? 0 : Math.max(0, Math.log(total) - weighted / total);
}
