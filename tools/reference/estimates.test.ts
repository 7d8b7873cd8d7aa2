import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { estimatesPage } from "./estimates.ts";

it("has the page of estimated GPUs as the data says it: node tools/reference/estimates.ts", () => {
  const page = new URL("../../docs/reference/estimated-gpus.md", import.meta.url);
  expect(readFileSync(page, "utf8")).toBe(estimatesPage());
});
