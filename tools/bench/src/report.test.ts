import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { observeStolen, processorTimeOf, table, writePage } from "./report.ts";

let directory = "";
beforeEach(async () => void (directory = await mkdtemp(join(tmpdir(), "internevo-test-report-"))));
afterEach(() => rm(directory, { recursive: true }));

it("writes figures anew and keeps what people wrote", async () => {
  const write = (body: string) =>
    writePage({ directory, name: "page", title: "A page", body, images: { "one.svg": "<svg/>" } });
  await write("first");
  const path = join(directory, "page.md");
  await writeFile(path, `${await readFile(path, "utf8")}\nWhat they mean.\n`);
  await write("second");
  const text = await readFile(path, "utf8");
  expect(text).toMatch(
    /^# A page\n\n<!-- figures[^\n]*\n\nsecond\n\n<!-- end of figures -->\n\nWhat they mean.\n$/,
  );
  expect(await readFile(join(directory, "images/one.svg"), "utf8")).toBe("<svg/>");
});

it("refuses a page without its marks rather than overwriting it", async () => {
  await writeFile(join(directory, "page.md"), "# Mine\n");
  await expect(
    writePage({ directory, name: "page", title: "A page", body: "x", images: {} }),
  ).rejects.toThrow(/lacks the lines/);
  expect(await readFile(join(directory, "page.md"), "utf8")).toBe("# Mine\n");
});

it("sets numbers to the right, and escapes bars", () => {
  expect(table(["plan", "ratio", "share"], [["a|b", "1.02", "97 %"]])).toBe(
    "| plan | ratio | share |\n| --- | ---: | ---: |\n| a\\|b | 1.02 | 97 % |",
  );
});

it("tells what the machine below took of the processor", () => {
  expect(processorTimeOf("cpu  100 20 30 4000 5 6 7 37 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n")).toEqual({
    given: 163,
    stolen: 37,
  });
  expect(processorTimeOf("intr 5")).toBeUndefined();
  const stolen = observeStolen();
  expect(stolen()).toSatisfy(
    (share: number | undefined) => share === undefined || (share >= 0 && share <= 1),
  );
});
