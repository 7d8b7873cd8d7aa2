import { LINE_PATTERN } from "@internevo/domain";
import { Validator } from "@seriousme/openapi-schema-validator";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let document: Record<string, unknown>;
beforeAll(async () => {
  api = await startTestApi();
  document = (await api.app.inject("/docs/json")).json();
});
afterAll(() => api.close());

/** Every schema of a document, with its place: under `schema`, and parts that are named. */
function schemasOf(value: unknown, path: string): [path: string, schema: object][] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) =>
    key === "schema" && path.includes("/paths/")
      ? [[`${path}/${key}`, inner as object] as [string, object]]
      : schemasOf(inner, `${path}/${key}`),
  );
}

describe("the OpenAPI document", () => {
  it("is valid OpenAPI 3.1", async () => {
    const { valid, errors } = await new Validator().validate(document);
    expect([valid, errors]).toEqual([true, undefined]);
  });

  it("has schemas that strict tools compile, also those that read patterns without the u flag", () => {
    const schemas = schemasOf(document, "#");
    expect(schemas.length).toBeGreaterThan(50);
    for (const unicodeRegExp of [true, false]) {
      const ajv = new Ajv2020({
        strict: true,
        allErrors: true,
        unicodeRegExp,
        allowUnionTypes: true,
        strictRequired: false,
      });
      addFormats.default(ajv);
      // Words of OpenAPI beside those of JSON Schema.
      ajv.addVocabulary(["example", "xml", "externalDocs", "discriminator"]);
      const faults = schemas.flatMap(([path, schema]) => {
        try {
          ajv.compile(structuredClone(schema));
          return [];
        } catch (error) {
          return [`${path}: ${(error as Error).message}`];
        }
      });
      expect(faults).toEqual([]);
    }
  });

  it("says what a line of text is, alike with the u flag and without", () => {
    const [strict, loose] = [new RegExp(LINE_PATTERN, "u"), new RegExp(LINE_PATTERN)];
    for (
      let code = 0;
      code <= 0x10ffff;
      code += [
        [0, 0x3000],
        [0xd700, 0xe100],
        [0x1bc90, 0x1bcb0],
        [0x1d160, 0x1d190],
        [0xdfff0, 0xe0200],
      ].some(([from = 0, to = 0]) => code >= from && code < to)
        ? 1
        : 0x11
    ) {
      const text = String.fromCodePoint(code);
      // Of what is invisible, what joins letters or chooses their form is allowed. Of the last three planes nothing is:
      // they have tags, selectors, and what is private.
      const joins = /[\u200c\u200d\ufe00-\ufe0f]/.test(text);
      const invisible =
        /[\p{Default_Ignorable_Code_Point}\p{Cc}\p{Cs}\p{Co}\p{Zl}\p{Zp}\p{Noncharacter_Code_Point}\u2800\ufff9-\ufffb]/u;
      const beyond = code >= 0xe0000 || /\p{Default_Ignorable_Code_Point}/u.test(text);
      const allowed = joins || !(code > 0xffff ? beyond : invisible.test(text));
      expect([code, strict.test(`a${text}b`), loose.test(`a${text}b`)]).toEqual([code, allowed, allowed]);
    }
    for (const text of ["", " ", "\t", "\u00a0"])
      expect([strict.test(text), loose.test(text)]).toEqual([false, false]);
    expect([strict.test("😀 😀x"), loose.test("😀 😀x")]).toEqual([true, true]);
  });
});
