import { expect, it } from "vitest";
import { differences, keep } from "./src/record/records.ts";

const recordOf = (answers: Readonly<Record<string, unknown>>) => ({
  plans: keep(Object.entries(answers).map(([key, answer]) => ({ key, answer }))),
});

it("finds no difference where answers differ only in the order of their fields", () => {
  expect(
    differences(
      recordOf({ a: { x: 1, y: [2, { p: 1, q: 2 }] } }),
      recordOf({ a: { y: [2, { q: 2, p: 1 }], x: 1 } }),
    ),
  ).toEqual([]);
});

it("names every answer that changed, came or went, and only in sections of both records", () => {
  const [before, after] = [recordOf({ a: [1, 2], b: 1, c: 1 }), recordOf({ a: [2, 1], b: 1, d: 1 })];
  expect(differences(before, after)).toEqual([
    { section: "plans", key: "a", before: [1, 2], after: [2, 1] },
    { section: "plans", key: "c", before: 1, after: undefined },
    { section: "plans", key: "d", before: undefined, after: 1 },
  ]);
  expect(differences({ ...before, memory: {} }, after)).toHaveLength(3);
});

it("refuses two entries of one name: one would hide the other", () => {
  expect(() =>
    keep([
      { key: "a", answer: 1 },
      { key: "a", answer: 2 },
    ]),
  ).toThrow("two entries are called a");
});
