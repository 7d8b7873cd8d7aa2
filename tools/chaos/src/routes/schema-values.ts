import fc from "fast-check";

/** What the generator reads of a JSON schema. */
export interface JsonSchema {
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
  readonly allOf?: readonly JsonSchema[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly items?: JsonSchema;
  readonly minItems?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly examples?: readonly unknown[];
}

/** Deeper values are as small as their schema allows. */
const MOST_DEPTH = 6;

function numberOf(schema: JsonSchema, isInteger: boolean): fc.Arbitrary<unknown> {
  const least =
    schema.minimum ?? (schema.exclusiveMinimum === undefined ? -1000 : schema.exclusiveMinimum + 1);
  const most = Math.max(least, Math.min(schema.maximum ?? Number.MAX_SAFE_INTEGER, least + 2 ** 14));
  const edges = fc.constantFrom(
    ...[least, most, schema.maximum ?? most].filter((edge) => !isInteger || Number.isInteger(edge)),
    Math.ceil(least),
  );
  return fc.oneof(
    {
      weight: 3,
      arbitrary: isInteger
        ? fc.integer({ min: Math.ceil(least), max: Math.floor(most) })
        : fc.double({ min: least, max: most, noNaN: true }),
    },
    { weight: 1, arbitrary: edges },
  );
}

function textOf({ pattern, minLength = 0, maxLength = 40 }: JsonSchema): fc.Arbitrary<unknown> {
  const plain = fc.string({
    unit: fc.constantFrom(..."abcdefgh0123456789-_"),
    minLength: Math.max(minLength, 1),
    maxLength: Math.max(minLength, 1, Math.min(maxLength, 40)),
  });
  if (pattern === undefined || new RegExp(pattern).test("abc-1")) return plain;
  try {
    return fc.stringMatching(new RegExp(pattern));
  } catch {
    return plain;
  }
}

/** Values that the schema allows, or nearly: formats are left to chance. */
export function valuesOf(schema: JsonSchema, depth = 0): fc.Arbitrary<unknown> {
  const example = schema.examples;
  if (example !== undefined && example.length > 0)
    return fc.oneof(
      { weight: 3, arbitrary: fc.constantFrom(...example) },
      { weight: 1, arbitrary: valuesOf({ ...schema, examples: [] }, depth) },
    );
  if ("const" in schema) return fc.constant(schema.const);
  if (schema.enum) return fc.constantFrom(...schema.enum);
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return fc.oneof(...choices.map((each) => valuesOf(each, depth + 1)));
  if (schema.allOf)
    return fc
      .tuple(...schema.allOf.map((each) => valuesOf(each, depth + 1)))
      .map((parts) => Object.assign({}, ...parts) as unknown);
  const type = typeof schema.type === "string" || schema.type === undefined ? schema.type : schema.type[0];
  switch (type) {
    case "object": {
      const entries = Object.entries(schema.properties ?? {});
      const required = entries.filter(([name]) => schema.required?.includes(name)).map(([name]) => name);
      const kept = depth > MOST_DEPTH ? entries.filter(([name]) => required.includes(name)) : entries;
      return fc.record(Object.fromEntries(kept.map(([name, inner]) => [name, valuesOf(inner, depth + 1)])), {
        requiredKeys: required,
      });
    }
    case "array":
      return fc.array(valuesOf(schema.items ?? {}, depth + 1), {
        minLength: schema.minItems ?? 0,
        maxLength: Math.max(schema.minItems ?? 0, depth > MOST_DEPTH ? 0 : 3),
      });
    case "integer":
      return numberOf(schema, true);
    case "number":
      return numberOf(schema, false);
    case "string":
      return textOf(schema);
    case "boolean":
      return fc.boolean();
    case "null":
      return fc.constant(null);
    default:
      return fc.oneof(fc.constantFrom(null, 1, "a", true), fc.jsonValue({ maxDepth: 2 }));
  }
}

const deep = (levels: number, open: string, close: string): string =>
  `${open.repeat(levels)}1${close.repeat(levels)}`;
export const HOSTILE_TEXTS = [
  "",
  " ",
  "\u0000",
  "\ud800",
  "a\u202eb",
  "\u2028",
  "😀".repeat(50),
  "x".repeat(5000),
  "__proto__",
  "constructor",
  "../../etc/passwd",
  "' or 1=1 --",
  "%00",
  "${7*7}",
  "NaN",
  "1e999",
  "null",
  "ＡＢ",
  "e\u0301",
  "-0",
  "0x10",
  "١٢٣",
];
/** Whatever nobody means. */
export const hostile: fc.Arbitrary<unknown> = fc.oneof(
  fc.constantFrom<unknown>(
    ...HOSTILE_TEXTS,
    null,
    true,
    -1,
    0,
    -0,
    0.5,
    1e308,
    -1e308,
    2 ** 31,
    2 ** 53,
    2 ** 63,
    Number.MIN_VALUE,
    [],
    {},
    [[]],
    [null],
    { a: {} },
    JSON.parse(deep(90, "[", "]")),
    JSON.parse(deep(150, "[", "]")),
    JSON.parse(deep(50, '{"a":', "}")),
    JSON.parse('{"__proto__":{"a":1}}'),
  ),
  fc.jsonValue({ maxDepth: 3 }),
  fc.string({ unit: "binary", maxLength: 40 }),
);

/** Where an inner value is. */
function placesOf(value: unknown, path: readonly (string | number)[] = []): (readonly (string | number)[])[] {
  if (typeof value !== "object" || value === null) return [path];
  const keys: (string | number)[] = Array.isArray(value) ? [...value.keys()] : Object.keys(value);
  return [
    path,
    ...keys.flatMap((key) => placesOf((value as Record<string | number, unknown>)[key], [...path, key])),
  ];
}

function changed(
  value: unknown,
  path: readonly (string | number)[],
  by: (inner: unknown) => unknown,
): unknown {
  const [key, ...rest] = path;
  if (key === undefined) return by(value);
  if (Array.isArray(value))
    return value.map((each, at): unknown => (at === key ? changed(each, rest, by) : each));
  return Object.fromEntries(
    Object.entries(value as object).flatMap(([name, each]) => {
      if (name !== key) return [[name, each] as [string, unknown]];
      const inner = changed(each, rest, by);
      return inner === undefined ? [] : [[name, inner] as [string, unknown]];
    }),
  );
}

/** Values that are one change away from what the schema allows. */
export const nearly = (values: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc.tuple(values, fc.nat(), fc.nat(3), hostile).map(([value, choice, how, other]) => {
    const places = placesOf(value);
    const place = places[choice % places.length] as readonly (string | number)[];
    return (
      changed(value, place, (inner) => {
        if (how === 0) return undefined;
        if (how === 1 && typeof inner === "object" && inner !== null && !Array.isArray(inner))
          return { ...inner, unknown: other };
        if (how === 2 && typeof inner === "number") return inner * (choice % 2 === 0 ? 3 : 1.5);
        return other;
      }) ?? null
    );
  });
