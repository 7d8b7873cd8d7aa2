import { expect, test } from "vitest";
import { lossCurves } from "./loss-curves.ts";

test("the loss before training has a place of its own, and steps without an evaluation have none", () => {
  const loss = (step: number, value: number) => ({ step, loss: value });
  expect(lossCurves([loss(1, 5), loss(2, 4)], [loss(0, 5.5), loss(2, 4.5)])).toEqual({
    steps: [0, 1, 2],
    training: [null, 5, 4],
    validation: [5.5, null, 4.5],
  });
});

test("without evaluations the curve is that of the steps", () => {
  expect(lossCurves([{ step: 1, loss: 5 }], [])).toEqual({ steps: [1], training: [5], validation: [null] });
});
