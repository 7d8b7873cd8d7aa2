import { join } from "node:path";
import { addAbortSignal, pipeline, Readable, Transform } from "node:stream";
import { createGunzip } from "node:zlib";
import type { StoredTable } from "@internevo/store";
import { damaged, noRoom, piecesOf } from "./files.ts";
import { tablePath, type BackupFile } from "./manifest.ts";

/** Postgres neither writes nor reads a row of more. */
const LONGEST_ROW_BYTES = 2 ** 30;
const NEWLINE = 10;
/** Postgres compresses the values of rows that are longer. */
const UNCOMPRESSED_BYTES = 2000;
/**
 * Its compression (pglz) says 273 bytes in three at most, and one more byte for eight such: nothing becomes smaller
 * than by this factor.
 */
const MOST_COMPRESSION = 88;

/**
 * What a row takes at least in a database. A short one takes about what it does as text: its values take less, it has a
 * header, and the indices have it too.
 */
const leastStoredBytes = (textBytes: number): number =>
  Math.min(textBytes, UNCOMPRESSED_BYTES) + Math.max(0, textBytes - UNCOMPRESSED_BYTES) / MOST_COMPRESSION;

export interface TableSource {
  /** The backup's folder, and its files. */
  readonly from: string;
  readonly files: readonly BackupFile[];
  readonly dataDirectory: string;
  /** So many bytes all tables may take in the database. */
  readonly room: number;
  readonly signal: AbortSignal;
}

/** Reads the tables of a backup, and no more of them than its manifest says. */
export class TableReader {
  readonly #source: TableSource;
  #left: number;

  constructor(source: TableSource) {
    this.#source = source;
    this.#left = source.room;
  }

  /** A table's rows, uncompressed. What goes wrong with the file ends the stream. */
  open({ name, rows }: StoredTable): Readable {
    const { from, files, signal } = this.#source;
    const path = tablePath(name);
    const bytes = files.find((file) => file.path === path)?.bytes ?? 0;
    const bounded = this.#bounded(join(from, path), rows);
    const pieces = Readable.from(copied(piecesOf(join(from, path), bytes)));
    pipeline(pieces, createGunzip(), bounded, () => {});
    return addAbortSignal(signal, bounded);
  }

  /** Little that is compressed can become much. `copy` writes one line for each row. */
  #bounded(path: string, rows: number): Transform {
    let [lines, bytes, ofLine] = [0, 0, 0];
    const add = (count: number): void => {
      this.#left -= leastStoredBytes(ofLine + count) - leastStoredBytes(ofLine);
      ofLine += count;
    };
    return new Transform({
      transform: (piece: Buffer, _encoding, done) => {
        bytes += piece.length;
        let begin = 0;
        for (let at = piece.indexOf(NEWLINE); at >= 0; at = piece.indexOf(NEWLINE, begin)) {
          lines += 1;
          add(at + 1 - begin);
          [begin, ofLine] = [at + 1, 0];
        }
        add(piece.length - begin);
        if (lines > rows || bytes > rows * LONGEST_ROW_BYTES)
          return done(damaged(path, `is damaged: it has more than ${rows} rows`));
        if (this.#left < 0) return done(this.#noRoom());
        done(null, piece);
      },
    });
  }

  #noRoom(): Error {
    const { dataDirectory, room } = this.#source;
    return noRoom("dataDirectory", dataDirectory, room, "the tables of the backup need more");
  }
}

/** Each piece for itself: a stream keeps several. */
async function* copied(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  for await (const piece of pieces) yield Buffer.from(piece);
}
