// Writes a small data set in Megatron-LM's format (NAME.bin, NAME.idx) for examples/packed-megatron.yaml:
// every paragraph of the licence texts of Debian's package base-files is a document, every byte a token:
// `node examples/packed-data.mjs [NAME]`.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

const LICENCES = "/usr/share/common-licenses";
const UINT16 = 8;
const name = process.argv[2] ?? join(import.meta.dirname, "packed", "licences");

const documents = readdirSync(LICENCES, { withFileTypes: true })
  .filter((entry) => entry.isFile())
  .flatMap((entry) => readFileSync(join(LICENCES, entry.name), "utf8").split(/\n\s*\n/))
  .map((paragraph) => Buffer.from(`${paragraph.trim()}\n`))
  .filter((bytes) => bytes.length > 1);

const total = documents.reduce((sum, bytes) => sum + bytes.length, 0);
const tokens = Buffer.alloc(2 * total);
const head = Buffer.alloc(34);
head.write("MMIDIDX\0\0", 0, "latin1");
head.writeBigUInt64LE(1n, 9);
head.writeUInt8(UINT16, 17);
head.writeBigUInt64LE(BigInt(documents.length), 18);
head.writeBigUInt64LE(BigInt(documents.length + 1), 26);
const lengths = Buffer.alloc(4 * documents.length);
const pointers = Buffer.alloc(8 * documents.length);
// Every document is one sequence; the last entry is the end.
const entries = Buffer.alloc(8 * (documents.length + 1));
let token = 0;
for (const [index, bytes] of documents.entries()) {
  lengths.writeInt32LE(bytes.length, 4 * index);
  pointers.writeBigInt64LE(BigInt(2 * token), 8 * index);
  for (const byte of bytes) tokens.writeUInt16LE(byte, 2 * token++);
  entries.writeBigInt64LE(BigInt(index + 1), 8 * (index + 1));
}
mkdirSync(dirname(name), { recursive: true });
writeFileSync(`${name}.bin`, tokens);
writeFileSync(`${name}.idx`, Buffer.concat([head, lengths, pointers, entries]));
console.log(`${name}.bin: ${total} tokens in ${documents.length} documents`);
