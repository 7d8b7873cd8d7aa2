import { lstat, readdir } from "node:fs/promises";
import { join } from "node:path";
import type { Segment } from "./segments.ts";

/** A tar archive as POSIX.1-2001 has it (pax): headers of 512 bytes, contents padded to as much. */
const BLOCK = 512;
/** What the header's fields hold: longer names and larger files stand in a header before theirs. */
const LONGEST_NAME = 100;
const LARGEST_SIZE = 8 ** 11;

interface Entry {
  readonly name: string;
  readonly size: number;
  readonly modified: Date;
  /** `0` a file, `5` a directory, `x` what is said of the next entry besides. */
  readonly type: "0" | "5" | "x";
}

const octal = (value: number, length: number): string => `${value.toString(8).padStart(length - 1, "0")}\0`;

function headerOf({ name, size, modified, type }: Entry): Buffer {
  const header = Buffer.alloc(BLOCK);
  header.write(name, 0, LONGEST_NAME, "utf8");
  header.write(octal(type === "5" ? 0o755 : 0o644, 8), 100, "ascii");
  header.write(octal(0, 8), 108, "ascii");
  header.write(octal(0, 8), 116, "ascii");
  header.write(octal(size < LARGEST_SIZE ? size : 0, 12), 124, "ascii");
  header.write(octal(Math.max(0, Math.floor(modified.getTime() / 1000)), 12), 136, "ascii");
  header.write("        ", 148, "ascii");
  header.write(type, 156, "ascii");
  header.write("ustar\u000000", 257, "ascii");
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${octal(sum, 7)} `, 148, "ascii");
  return header;
}

/** A record of a pax header, which begins with its own length. */
function paxRecord(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const bytes = Buffer.byteLength(rest);
  let length = bytes + String(bytes).length;
  if (bytes + String(length).length > length) length = bytes + String(length).length;
  return `${length}${rest}`;
}

const padding = (size: number): Buffer => Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);

function headersOf(entry: Entry): Buffer {
  const records = [
    ...(Buffer.byteLength(entry.name) > LONGEST_NAME ? [paxRecord("path", entry.name)] : []),
    ...(entry.size >= LARGEST_SIZE ? [paxRecord("size", String(entry.size))] : []),
  ].join("");
  if (records === "") return headerOf(entry);
  const said = Buffer.from(records);
  const before = { ...entry, name: "pax", size: said.length, type: "x" } as const;
  return Buffer.concat([headerOf(before), said, padding(said.length), headerOf(entry)]);
}

/** Files and folders below a folder, in the order of their names; links and devices are left out. */
async function entriesOf(path: string, name: string): Promise<Segment[]> {
  const segments: Segment[] = [];
  for (const inner of (await readdir(path)).sort()) {
    const [at, called] = [join(path, inner), `${name}/${inner}`];
    const found = await lstat(at);
    if (found.isDirectory()) {
      segments.push({ bytes: headersOf({ name: `${called}/`, size: 0, modified: found.mtime, type: "5" }) });
      segments.push(...(await entriesOf(at, called)));
    } else if (found.isFile()) {
      const { size, mtime } = found;
      segments.push({ bytes: headersOf({ name: called, size, modified: mtime, type: "0" }) });
      segments.push({ path: at, size }, { bytes: padding(size) });
    }
  }
  return segments;
}

/** A folder as a tar archive, in which everything lies below a folder of that name. */
export async function tarSegments(path: string, name: string): Promise<Segment[]> {
  const { mtime } = await lstat(path);
  return [
    { bytes: headersOf({ name: `${name}/`, size: 0, modified: mtime, type: "5" }) },
    ...(await entriesOf(path, name)),
    { bytes: Buffer.alloc(2 * BLOCK) },
  ];
}
