import { readFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { ifThere } from "./absent.ts";

it("is undefined for what is not there, and throws whatever else a file system says", async () => {
  const here = import.meta.filename;
  expect(await ifThere(() => readFile(here, "utf8"))).toContain("ifThere");
  expect(await ifThere(() => readFile(`${here}.none`))).toBeUndefined();
  expect(await ifThere(() => readFile(`${here}/below`))).toBeUndefined();
  await expect(ifThere(() => readFile(import.meta.dirname))).rejects.toMatchObject({ code: "EISDIR" });
});
