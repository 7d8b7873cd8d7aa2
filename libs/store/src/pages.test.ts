import { randomUUID } from "node:crypto";
import { expect, it } from "vitest";
import { decodeCursor, encodeCursor, isUuid } from "./pages.ts";

const id = "6f1c2a9e-0d4b-4c7a-9b1e-2f3d5a7c8e90";

it("takes for an id what Postgres writes as one, and nothing else", () => {
  expect([id, randomUUID()].map(isUuid)).toEqual([true, true]);
  const others = [
    id.toUpperCase(),
    `${id.slice(0, -1)}A`,
    `{${id}}`,
    id.replaceAll("-", ""),
    `${id}\n`,
    ` ${id}`,
    id.slice(1),
    "",
  ];
  expect(others.filter(isUuid)).toEqual([]);
});

it("reads the cursor that a page gave, and none with another id", () => {
  const at = new Date(1_700_000_000_000);
  expect(decodeCursor(encodeCursor(at, id))).toEqual({ at, id });
  expect(() => decodeCursor(encodeCursor(at, id.toUpperCase()))).toThrow("cursor is not valid");
});
