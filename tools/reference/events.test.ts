import { createRequire } from "node:module";
import { asyncApi, EVENT_TYPES } from "@internevo/contracts";
import { Ajv } from "ajv";
import { expect, it } from "vitest";

// The definition of AsyncAPI itself, as its makers publish it.
const definition = createRequire(import.meta.url)("@asyncapi/specs/schemas/3.0.0-without-$id.json") as object;

function faultsOf(document: object): readonly string[] {
  const ajv = new Ajv({
    strict: false,
    allErrors: true,
    validateFormats: false,
    meta: false,
    validateSchema: false,
  });
  const check = ajv.compile(definition);
  check(structuredClone(document));
  return (check.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message ?? ""}`);
}

it("the description of the events is valid AsyncAPI 3", () => {
  const document = asyncApi();
  expect(faultsOf(document)).toEqual([]);
  expect(faultsOf({ ...document, channels: { broken: { address: 1 } } })).not.toEqual([]);
});

/** Whether a document has what a reference names. */
function resolves(document: unknown, reference: string): boolean {
  let at = document;
  for (const step of reference.replace(/^#\//, "").split("/"))
    at = (at as Record<string, unknown> | undefined)?.[step];
  return at !== undefined;
}

it("every event has a channel, an operation and a schema, and every reference leads somewhere", () => {
  const document = asyncApi() as Record<"channels" | "operations", Record<string, unknown>>;
  expect(Object.keys(document.channels)).toEqual(EVENT_TYPES);
  expect(Object.keys(document.operations)).toHaveLength(EVENT_TYPES.length);
  const references = [...JSON.stringify(document).matchAll(/"\$ref":"([^"]+)"/g)].map(([, to]) => to ?? "");
  expect(references.length).toBeGreaterThan(5 * EVENT_TYPES.length - 1);
  expect(references.filter((to) => !resolves(document, to))).toEqual([]);
});
