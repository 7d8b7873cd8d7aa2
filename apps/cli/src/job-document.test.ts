import { expect, it } from "vitest";
import { parseJobDocument } from "./job-document.ts";

const fieldOf = (text: string): unknown => {
  try {
    return parseJobDocument(text, "job.yaml");
  } catch (error) {
    return (error as { details: unknown[] }).details;
  }
};

it("finds a field that is given twice, in a block and in braces, and names its line", () => {
  const twice = { message: "gives a field a second time", remedy: "keep one of the two" };
  for (const [text, line] of [
    ["a: 1\nb: 2\na: 3\n", 3],
    ["a:\n  b: 1\n  b: 2\n", 3],
    ["a: { b: 1, c: 2,\n  b: 3 }\n", 2],
    ['"a": 1\na: 2\n', 2],
    ["- x: 1\n  x: 2\n", 2],
  ] as const)
    expect(fieldOf(text), text).toEqual([expect.objectContaining({ field: `line ${line}`, ...twice })]);
  expect(fieldOf("a: { b: 1 }\nc: { b: 1 }\n")).toEqual({ a: { b: 1 }, c: { b: 1 } });
});

it("reads many fields in a time that grows with their number", () => {
  const seconds = (fields: number): number => {
    const text = Array.from({ length: fields }, (_, index) => `k${index}: 1`).join("\n");
    const begin = process.cpuUsage();
    parseJobDocument(text, "job.yaml");
    const { user, system } = process.cpuUsage(begin);
    return (user + system) / 1e6;
  };
  seconds(2000);
  // With the square of it, it would be a hundred times as long.
  expect(seconds(40_000) / seconds(4000)).toBeLessThan(40);
}, 120_000);
