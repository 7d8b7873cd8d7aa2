import { expect, it } from "vitest";
import { readJobDocument } from "./job-document.ts";

const text = "name: first\nmodel:\n  hiddenSize: 128\n  heads: 7\ndata:\n  paths:\n    - /a\n    - /b\n";

it("finds the line of a field, also in lists, and of a missing field the line of what should hold it", () => {
  const read = readJobDocument(text);
  if (!("document" in read)) throw new Error("not read");
  expect(read.document.value).toEqual({
    name: "first",
    model: { hiddenSize: 128, heads: 7 },
    data: { paths: ["/a", "/b"] },
  });
  expect(read.document.lineOf("model.heads")).toBe(4);
  expect(read.document.lineOf("data.paths.1")).toBe(8);
  expect(read.document.lineOf("model.layers")).toBe(3);
  expect(read.document.lineOf("cluster.nodes")).toBeUndefined();
});

it("reads JSON", () => {
  expect(readJobDocument('{"name": "first"}')).toHaveProperty("document.value", { name: "first" });
});

it.each([
  ["name: [", 1],
  ['name: a\nb: "c', 2],
  ["just words", 1],
  ["- a\n- b", 1],
])("says where %j is no job", (broken, line) => {
  const read = readJobDocument(broken);
  expect(read).toHaveProperty("faults");
  if ("faults" in read) expect(read.faults[0]?.line).toBe(line);
});

it("refuses a document that unfolds without end", () => {
  const bomb = `a: &a [x,x,x,x,x,x,x,x,x]\n${["b", "c", "d", "e"].map((name, index) => `${name}: &${name} [${Array.from({ length: 9 }, () => `*${"abcd"[index]}`).join(",")}]`).join("\n")}`;
  expect(readJobDocument(bomb)).toHaveProperty("faults");
});
