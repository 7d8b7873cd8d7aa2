/*
 * Reads event files from their definitions: TFRecord, event.proto, summary.proto. It shares nothing with what writes
 * them.
 */

/** CRC-32C by polynomial division, bit after bit: slow, and without a table. */
function castagnoli(bytes: Buffer): number {
  let remainder = 0xffffffffn;
  for (const byte of bytes) {
    remainder ^= BigInt(byte);
    for (let bit = 0; bit < 8; bit += 1) {
      const isOdd = (remainder & 1n) === 1n;
      remainder >>= 1n;
      if (isOdd) remainder ^= 0x82f63b78n;
    }
  }
  return Number(remainder ^ 0xffffffffn);
}

function unmasked(checksum: number): number {
  const rotated = (BigInt(checksum) - 0xa282ead8n) & 0xffffffffn;
  return Number(((rotated << 15n) | (rotated >> 17n)) & 0xffffffffn);
}

/** The data of every record. @throws Error for a checksum that is wrong, and for a file that ends within a record */
export function recordsIn(file: Buffer): Buffer[] {
  const records: Buffer[] = [];
  for (let at = 0; at < file.length;) {
    const head = file.subarray(at, at + 8);
    const length = Number(head.readBigUInt64LE());
    const data = file.subarray(at + 12, at + 12 + length);
    if (unmasked(file.readUInt32LE(at + 8)) !== castagnoli(head)) throw new Error(`length at ${at}`);
    if (unmasked(file.readUInt32LE(at + 12 + length)) !== castagnoli(data)) throw new Error(`data at ${at}`);
    records.push(data);
    at += 16 + length;
  }
  return records;
}

type Field = { readonly number: number; readonly value: number | Buffer };

/** The fields of a message: numbers as they are, everything with a length as bytes. */
function fieldsOf(message: Buffer): Field[] {
  const fields: Field[] = [];
  let at = 0;
  const varint = (): number => {
    let [value, shift] = [0, 0];
    for (;;) {
      const byte = message.readUInt8(at);
      at += 1;
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
      shift += 7;
    }
  };
  const take = (bytes: number): Buffer => message.subarray(at, (at += bytes));
  while (at < message.length) {
    const tag = varint();
    const number = Math.floor(tag / 8);
    switch (tag % 8) {
      case 0:
        fields.push({ number, value: varint() });
        break;
      case 1:
        fields.push({ number, value: take(8).readDoubleLE() });
        break;
      case 2:
        fields.push({ number, value: take(varint()) });
        break;
      case 5:
        fields.push({ number, value: take(4).readFloatLE() });
        break;
      default:
        throw new Error(`wire type ${tag % 8} at ${at}`);
    }
  }
  return fields;
}

const bytesAt = (fields: readonly Field[], number: number): Buffer | undefined =>
  fields.find((field) => field.number === number)?.value as Buffer | undefined;
const numberAt = (fields: readonly Field[], number: number): number | undefined =>
  fields.find((field) => field.number === number)?.value as number | undefined;

export interface DecodedEvent {
  readonly wallTime: number;
  readonly step: number;
  readonly fileVersion?: string;
  readonly restarts?: true;
  readonly scalars: Readonly<Record<string, number>>;
  readonly texts: Readonly<Record<string, string>>;
}

export function eventsIn(file: Buffer): DecodedEvent[] {
  return recordsIn(file).map((record) => {
    const event = fieldsOf(record);
    const version = bytesAt(event, 3);
    const session = bytesAt(event, 7);
    const values = fieldsOf(bytesAt(event, 5) ?? Buffer.alloc(0)).map(({ value }) =>
      fieldsOf(value as Buffer),
    );
    const tagged = (number: number) =>
      values.filter((value) => value.some((field) => field.number === number));
    const tagOf = (value: readonly Field[]): string => String(bytesAt(value, 1));
    return {
      wallTime: numberAt(event, 1) ?? 0,
      step: numberAt(event, 2) ?? 0,
      ...(version === undefined ? {} : { fileVersion: String(version) }),
      ...(session !== undefined && numberAt(fieldsOf(session), 1) === 1 ? { restarts: true as const } : {}),
      scalars: Object.fromEntries(tagged(2).map((value) => [tagOf(value), numberAt(value, 2) ?? 0])),
      texts: Object.fromEntries(
        tagged(8).map((value) => [
          tagOf(value),
          String(bytesAt(fieldsOf(bytesAt(value, 8) ?? Buffer.alloc(0)), 8)),
        ]),
      ),
    };
  });
}
