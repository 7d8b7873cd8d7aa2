import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { LONGEST } from "./longest-first.ts";

it("names files that are there, each once", () => {
  expect(LONGEST.filter((path) => !existsSync(join(import.meta.dirname, "..", "..", path)))).toEqual([]);
  expect(new Set(LONGEST).size).toBe(LONGEST.length);
});
