import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { tablePath } from "./manifest.ts";
import { TableReader } from "./tables.ts";

let from: string;
beforeEach(() => (from = mkdtempSync(join(tmpdir(), "internevo-tables-"))));
afterEach(() => rmSync(from, { recursive: true }));

/** Reads a table of these rows to its end, with so much room. */
async function read(rows: readonly string[], room: number): Promise<number> {
  const path = tablePath("jobs");
  mkdirSync(join(from, "database"), { recursive: true });
  const packed = gzipSync(rows.map((row) => `${row}\n`).join(""));
  writeFileSync(join(from, path), packed);
  const files = [{ path, bytes: packed.length, sha256: "0".repeat(64) }];
  const signal = new AbortController().signal;
  const reader = new TableReader({ from, files, dataDirectory: "/data", room, signal });
  let bytes = 0;
  for await (const piece of reader.open({ name: "jobs", columns: ["spec"], rows: rows.length }))
    bytes += (piece as Buffer).length;
  return bytes;
}

describe("the room that tables need", () => {
  it("is less than their text where rows are long: Postgres compresses them", async () => {
    const rows = Array.from({ length: 20 }, () => "a plan, again and again ".repeat(20_000));
    const text = rows.reduce((sum, row) => sum + row.length + 1, 0);
    expect(await read(rows, text / 60)).toBe(text);
    await expect(read(rows, text / 80)).rejects.toThrow("the tables of the backup need more");
  });

  it("is that of the text where rows are short", async () => {
    const rows = Array.from({ length: 20_000 }, (_, at) => `row ${at} of a table`);
    const text = rows.reduce((sum, row) => sum + row.length + 1, 0);
    expect(await read(rows, text)).toBe(text);
    await expect(read(rows, text - 1)).rejects.toThrow("the tables of the backup need more");
  });
});
