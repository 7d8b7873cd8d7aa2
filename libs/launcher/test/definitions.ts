import { Ajv, type ValidateFunction } from "ajv";

export type Definition = Readonly<Record<string, unknown>>;

/** An API server drops fields that a definition does not name: here they are errors. */
function closed(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(closed);
  if (typeof schema !== "object" || schema === null) return schema;
  const members = Object.fromEntries(Object.entries(schema).map(([key, each]) => [key, closed(each)]));
  const isOpen = "additionalProperties" in members || "x-kubernetes-preserve-unknown-fields" in members;
  return typeof members["properties"] === "object" && members["type"] === "object" && !isOpen
    ? { ...members, additionalProperties: false }
    : members;
}

/** Checks objects by a definition of Kubernetes, in which fields that it does not name are errors. */
export const checkerOf = (schema: Definition): ValidateFunction =>
  new Ajv({ strict: false, validateFormats: false, allErrors: true }).compile(closed(schema) as Definition);
