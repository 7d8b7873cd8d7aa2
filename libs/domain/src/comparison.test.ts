import { expect, it } from "vitest";
import { comparedValue, differingFields } from "./index.ts";

it("says what differs between documents, and nothing that is alike", () => {
  expect(
    differingFields([
      { steps: 100, optimizer: { beta1: 0.9, beta2: 0.95 }, data: { paths: ["/a", "/b"] } },
      {
        steps: 100,
        optimizer: { beta1: 0.9, beta2: 0.99 },
        data: { paths: ["/a"] },
        plan: { recompute: true },
      },
      { steps: 200, optimizer: { beta1: 0.9, beta2: 0.95 }, data: { paths: ["/a", "/b"] } },
    ]),
  ).toEqual([
    { field: "steps", values: [100, 100, 200] },
    { field: "optimizer.beta2", values: [0.95, 0.99, 0.95] },
    { field: "data.paths", values: [["/a", "/b"], ["/a"], ["/a", "/b"]] },
    { field: "plan.recompute", values: [null, true, null] },
  ]);
  expect(differingFields([{ a: { b: [1] } }, { a: { b: [1] } }])).toEqual([]);
  expect(differingFields([null, { a: 1 }])).toEqual([{ field: "a", values: [null, 1] }]);
});

it("writes values for people", () => {
  expect([null, "x", 3, false, ["/a", "/b"]].map(comparedValue)).toEqual(["–", "x", "3", "false", "/a, /b"]);
});
