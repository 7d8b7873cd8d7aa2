import fc from "fast-check";
import { hostile, HOSTILE_TEXTS, nearly, valuesOf, type JsonSchema } from "./schema-values.ts";

interface Parameter {
  readonly in: string;
  readonly name: string;
  readonly required?: boolean;
  readonly schema?: JsonSchema;
}
interface Answer {
  readonly content?: Readonly<Record<string, { readonly schema?: JsonSchema }>>;
}
export interface Operation {
  readonly method: string;
  readonly path: string;
  readonly parameters: readonly Parameter[];
  readonly body: JsonSchema | null;
  readonly answers: Readonly<Record<string, Answer>>;
}

export interface OpenApi {
  readonly paths: Readonly<
    Record<
      string,
      Readonly<
        Record<
          string,
          {
            readonly parameters?: readonly Parameter[];
            readonly requestBody?: {
              readonly content: Readonly<Record<string, { readonly schema?: JsonSchema }>>;
            };
            readonly responses?: Readonly<Record<string, Answer>>;
          }
        >
      >
    >
  >;
}

export const operationsOf = (document: OpenApi): Operation[] =>
  Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { parameters = [], requestBody, responses = {} }]) => ({
      method: method.toUpperCase(),
      path,
      parameters,
      body: requestBody?.content["application/json"]?.schema ?? null,
      answers: responses,
    })),
  );

export interface FuzzRequest {
  readonly operation: Operation;
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  readonly token: "right" | "none" | "wrong";
}

/** A text as a part of a URL; it cannot hold half a surrogate pair. */
const inUrl = (value: unknown): string =>
  encodeURIComponent((typeof value === "string" ? value : (JSON.stringify(value) ?? "")).toWellFormed());
/** A text as a header: what HTTP has no place for is left out. */
const inHeader = (value: unknown): string =>
  (typeof value === "string" ? value : (JSON.stringify(value) ?? ""))
    .replace(/[^\t\u0020-\u007e\u0080-\u00ff]/g, "")
    .slice(0, 2000);

const cursors = fc.oneof(
  fc.constantFrom("", "x", "MTcwMDAwMDAwMDAwMC4", "-1", "99999999999999999999", ...HOSTILE_TEXTS),
  fc
    .tuple(fc.integer(), fc.string({ unit: fc.constantFrom(..."0123456789abcdef-"), maxLength: 40 }))
    .map(([at, id]) => Buffer.from(`${at}.${id}`).toString("base64url")),
);

const BROKEN_BODIES = [
  "",
  "{",
  "[]",
  "null",
  '{"a":1}{',
  "\u0000",
  "\ufeff{}",
  '{"a":1e99999}',
  "[".repeat(5000),
  '{"a":'.repeat(200),
  '"'.repeat(99),
];
const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];

const HEADERS = fc.oneof(
  { weight: 6, arbitrary: fc.constant({}) },
  {
    weight: 2,
    arbitrary: fc
      .tuple(
        fc.constantFrom(
          "accept",
          "content-type",
          "if-match",
          "idempotency-key",
          "last-event-id",
          "traceparent",
          "x-forwarded-for",
          "accept-encoding",
          "range",
          "if-none-match",
          "cookie",
        ),
        fc.oneof(
          fc.constantFrom(
            "application/zip",
            "application/json; charset=utf-16",
            "text/plain",
            "*",
            '"1"',
            'W/"1"',
            "00-0-0-00",
          ),
          hostile,
        ),
      )
      .map(([name, value]) => ({ [name]: inHeader(value) })),
  },
);
/** What nobody asked for, behind the question mark. */
const MORE = fc.oneof(
  { weight: 8, arbitrary: fc.constant("") },
  {
    weight: 1,
    arbitrary: fc
      .tuple(fc.constantFrom("limit", "page", "__proto__", "cursor"), hostile)
      .map(([name, value]) => `${name}=${inUrl(value)}`),
  },
  { weight: 1, arbitrary: fc.constantFrom("%", "a=%zz", "&&&", "?", "a[]=1", "=".repeat(3000)) },
);
const TOKENS = fc.oneof(
  { weight: 30, arbitrary: fc.constant("right" as const) },
  { weight: 1, arbitrary: fc.constantFrom("none" as const, "wrong" as const) },
);

function bodiesOf(operation: Operation): fc.Arbitrary<string | null> {
  const given = operation.body === null ? null : valuesOf(operation.body);
  return given === null
    ? fc.oneof(
        { weight: 6, arbitrary: fc.constant(null) },
        { weight: 1, arbitrary: fc.constantFrom(...BROKEN_BODIES, "{}") },
      )
    : fc.oneof(
        { weight: 4, arbitrary: given.map((value) => JSON.stringify(value)) },
        { weight: 6, arbitrary: nearly(given).map((value) => JSON.stringify(value)) },
        { weight: 1, arbitrary: hostile.map((value) => JSON.stringify(value)) },
        { weight: 1, arbitrary: fc.constantFrom(null, ...BROKEN_BODIES) },
      );
}

/** Values of their own that parameters of these names take most of the time. */
function knownValues(name: string, ids: readonly string[]) {
  if (name === "id") return [{ weight: 5, arbitrary: fc.constantFrom(...ids) }];
  return name === "cursor" ? [{ weight: 5, arbitrary: cursors }] : [];
}

const parameterOf = ({ name, schema = {} }: Parameter, ids: readonly string[]): fc.Arbitrary<unknown> =>
  fc.oneof(
    ...knownValues(name, ids),
    { weight: 4, arbitrary: valuesOf(schema) },
    { weight: 1, arbitrary: hostile },
  );

interface Given {
  readonly place: string;
  readonly name: string;
  readonly value: unknown;
  readonly isGiven: boolean;
}

/** Where the values of parameters stand in a request. */
function placed(path: string, extra: string, given: readonly Given[]) {
  let url = path;
  const query: string[] = extra === "" ? [] : [extra];
  const headers: Record<string, string> = {};
  for (const { place, name, value, isGiven } of given) {
    if (!isGiven) continue;
    if (place === "path") url = url.replace(`{${name}}`, inUrl(value) || "%20");
    else if (place === "query") query.push(`${name}=${inUrl(value)}`);
    else if (place === "header") headers[name] = inHeader(value);
  }
  return { url: query.length === 0 ? url : `${url}?${query.join("&")}`, headers };
}

/** Requests of one operation: what it allows, nearly that, and what nobody means. @param ids that exist. */
export function requestsOf(operation: Operation, ids: readonly string[]): fc.Arbitrary<FuzzRequest> {
  const parameters = fc.tuple(
    ...operation.parameters.map((each) =>
      fc
        .tuple(fc.constant(each), parameterOf(each, ids), fc.nat(2))
        .map(([{ in: place, name, required }, value, chance]) => ({
          place,
          name,
          value,
          isGiven: required === true || place === "path" || chance > 0,
        })),
    ),
  );
  const method = fc.oneof(
    { weight: 14, arbitrary: fc.constant(operation.method) },
    { weight: 1, arbitrary: fc.constantFrom(...METHODS) },
  );
  return fc
    .tuple(bodiesOf(operation), parameters, HEADERS, MORE, method, TOKENS)
    .map(([body, given, over, extra, verb, who]) => {
      const { url, headers } = placed(operation.path, extra, given);
      return {
        operation,
        method: verb,
        url,
        headers: { ...(body === null ? {} : { "content-type": "application/json" }), ...headers, ...over },
        body,
        token: who,
      };
    });
}
