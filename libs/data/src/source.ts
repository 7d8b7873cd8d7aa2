import { ProblemError, type SingleData } from "@internevo/domain";
import { openInternevo } from "./internevo.ts";
import { openMegatron } from "./megatron.ts";
import type { Reading } from "./open-data.ts";
import { openTokenFile } from "./token-file.ts";
import type { TokenSource } from "./token-source.ts";

/** Data that is tokens already. */
export type TokenData = Exclude<SingleData, { format: "text" }>;

const OPEN: Readonly<Record<TokenData["format"], (path: string, reading: Reading) => Promise<TokenSource>>> =
  { tokens: openTokenFile, megatron: openMegatron, internevo: openInternevo };

/**
 * Opens the files of a job's data and checks headers, sizes and indices.
 * @param reading also of what the source reads later
 * @throws ProblemError `data-invalid` with file, what was found, what was expected, and the remedy.
 */
export const openSource = (data: TokenData, reading: Reading = {}): Promise<TokenSource> =>
  OPEN[data.format](data.path, reading);

/**
 * Whether where documents begin is known before tokens are read. @throws ProblemError `data-invalid` for
 * packing without documents.
 */
export function assertKnowsDocuments(data: SingleData, source: Pick<TokenSource, "starts">): void {
  if (data.packing !== "documents" || data.endOfDocumentToken !== undefined || source.starts !== null) return;
  const path = data.format === "text" ? data.paths[0] : data.path;
  throw new ProblemError("data-invalid", `${String(path)} does not say where documents begin`, [
    {
      field: "data.packing",
      value: "documents",
      message: "needs data that knows its documents",
      remedy: "give endOfDocumentToken, or a file with an index of its documents, or packing: none",
    },
  ]);
}

/** Documents of each sequence of S tokens, told by where they begin, in ascending order. */
export class DocumentCounter {
  readonly #sequenceLengthTokens: number;
  readonly #end: number;
  #former = -1;
  #sequence = -1;
  #inSequence = 1;
  /** Of the sequence that has most. */
  most = 1;

  constructor(sequenceLengthTokens: number, tokenCount: number) {
    this.#sequenceLengthTokens = sequenceLengthTokens;
    // What is behind the last whole sequence and its target is never read.
    this.#end = Math.floor((tokenCount - 1) / sequenceLengthTokens) * sequenceLengthTokens;
  }

  begin(position: number): void {
    // Documents of no tokens begin where the next one does.
    if (position === this.#former || position >= this.#end) return;
    this.#former = position;
    if (position % this.#sequenceLengthTokens === 0) return;
    const sequence = Math.floor(position / this.#sequenceLengthTokens);
    this.#inSequence = sequence === this.#sequence ? this.#inSequence + 1 : 2;
    this.#sequence = sequence;
    this.most = Math.max(this.most, this.#inSequence);
  }
}
