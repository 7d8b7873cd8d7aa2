import type { TObject, TSchema } from "typebox";

const typeOf = (schema: TSchema | undefined): unknown =>
  (schema as { readonly type?: unknown } | undefined)?.type;

/**
 * A text as the type that a schema says; a text that is not exactly one stays a text, for the schema to
 * refuse.
 */
function fromText(schema: TSchema | undefined, text: string): unknown {
  switch (typeOf(schema)) {
    case "integer":
      return /^-?\d+$/.test(text) ? Number(text) : text;
    case "number":
      return /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(text) ? Number(text) : text;
    case "array":
      // A name that stands once; one that stands several times is a list already.
      return [text];
    case "boolean":
      return text === "true" || text === "false" ? text === "true" : text;
    default:
      return text;
  }
}

/**
 * Values that arrive as texts (an environment's, a query's) as the types that the schema's properties say.
 * Nothing is rounded, and nothing is guessed.
 */
export const fromTexts = (
  schema: TObject,
  texts: Readonly<Record<string, unknown>>,
): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(texts).map(([name, value]) => [
      name,
      typeof value === "string" ? fromText(schema.properties[name], value) : value,
    ]),
  );
