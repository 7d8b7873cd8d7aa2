import { expect, it } from "vitest";
import { batchWarnings } from "./batch-warnings.ts";

it("warns of a batch that is more than all of the data", () => {
  expect(batchWarnings({ globalBatchTokens: 2 * 1024 ** 4 }, 1_000_000)).toEqual([
    {
      field: "globalBatchTokens",
      value: 2 * 1024 ** 4,
      message: "is more than the 1,000,000 tokens of the job's data: each step reads some of it again",
      remedy:
        "give the tokens of one step, at most 1,000,000, or more data; steps says how long the job trains",
    },
  ]);
});

it.each([1_000_000, 2_000_000, undefined])("says nothing where the data has %s tokens", (tokens) => {
  expect(batchWarnings({ globalBatchTokens: 1_000_000 }, tokens)).toEqual([]);
});
