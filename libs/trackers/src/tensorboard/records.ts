/*
 * TFRecord, and the messages of TensorFlow's event.proto and summary.proto that TensorBoard shows. The same values are
 * the same bytes.
 */

const POLYNOMIAL = 0x82f63b78;
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = (value >>> 1) ^ (value & 1 ? POLYNOMIAL : 0);
  return value >>> 0;
});

/** CRC-32C (Castagnoli). */
export function crc32c(bytes: Uint8Array): number {
  let value = 0xffffffff;
  for (const byte of bytes) value = (value >>> 8) ^ (TABLE[(value ^ byte) & 0xff] ?? 0);
  return (value ^ 0xffffffff) >>> 0;
}

/** As TFRecord stores it: rotated, so that the checksum of what holds checksums is another one. */
function maskedChecksum(bytes: Uint8Array): Buffer {
  const value = crc32c(bytes);
  const masked = (((value >>> 15) | (value << 17)) + 0xa282ead8) >>> 0;
  const buffer = Buffer.alloc(4);
  buffer.writeUInt32LE(masked);
  return buffer;
}

/** One record: its length, the length's checksum, its bytes, their checksum. */
export function recordOf(data: Buffer): Buffer {
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(data.length));
  return Buffer.concat([length, maskedChecksum(length), data, maskedChecksum(data)]);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = BigInt(value);
  while (rest > 0x7fn) {
    bytes.push(Number(rest & 0x7fn) | 0x80);
    rest >>= 7n;
  }
  return Buffer.from([...bytes, Number(rest)]);
}

const field = (number: number, wireType: number, bytes: Buffer): Buffer =>
  Buffer.concat([varint(number * 8 + wireType), bytes]);
const integer = (number: number, value: number): Buffer => field(number, 0, varint(value));
const bytesField = (number: number, bytes: Buffer): Buffer =>
  field(number, 2, Buffer.concat([varint(bytes.length), bytes]));
const string = (number: number, text: string): Buffer => bytesField(number, Buffer.from(text));
function double(number: number, value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleLE(value);
  return field(number, 1, bytes);
}
function float(number: number, value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return field(number, 5, bytes);
}

/** Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7. */
const event = (atMs: number, step: number, what: Buffer): Buffer =>
  recordOf(Buffer.concat([double(1, atMs / 1000), ...(step === 0 ? [] : [integer(2, step)]), what]));

/** What every file begins with. */
export const fileVersion = (atMs: number): Buffer => event(atMs, 0, string(3, "brain.Event:2"));

/**
 * SessionLog: status = 1, START = 1. What was written of this step and of those behind it counts no more. TensorBoard
 * takes the first of a file for its beginning, so that every file begins with one.
 */
export const sessionStart = (atMs: number, step: number): Buffer =>
  event(atMs, step, bytesField(7, integer(1, 1)));

/** Summary.Value: tag = 1, simple_value = 2. */
export const scalars = (atMs: number, step: number, values: Readonly<Record<string, number>>): Buffer =>
  event(
    atMs,
    step,
    bytesField(
      5,
      Buffer.concat(
        Object.entries(values).map(([tag, value]) =>
          bytesField(1, Buffer.concat([string(1, tag), float(2, value)])),
        ),
      ),
    ),
  );

const DT_STRING = 7;
const DATA_CLASS_TENSOR = 2;

/** Markdown, in TensorBoard's tab Text. */
export function text(atMs: number, step: number, tag: string, markdown: string): Buffer {
  // SummaryMetadata: plugin_data = 1 {plugin_name = 1}, data_class = 4.
  const metadata = Buffer.concat([bytesField(1, string(1, "text")), integer(4, DATA_CLASS_TENSOR)]);
  // TensorProto: dtype = 1, tensor_shape = 2 (of a scalar), string_val = 8.
  const tensor = Buffer.concat([integer(1, DT_STRING), bytesField(2, Buffer.alloc(0)), string(8, markdown)]);
  const value = Buffer.concat([string(1, tag), bytesField(8, tensor), bytesField(9, metadata)]);
  return event(atMs, step, bytesField(5, bytesField(1, value)));
}
