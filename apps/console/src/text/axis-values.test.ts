import { expect, it } from "vitest";
import { axisValues, EXAMPLES, firstValues, whyFirstValues } from "./axis-values.ts";

it("reads values of a sweep as the command line does", () => {
  expect(axisValues("sequence", "4k, 8192,1m")).toEqual({ values: [4096, 8192, 2 ** 20] });
  expect(axisValues("batch", "1m..4m")).toEqual({ values: [2 ** 20, 2 ** 21, 2 ** 22] });
  expect(axisValues("memory", "80GB, 24GiB")).toEqual({ values: [24 * 2 ** 30, 80e9] });
  expect(axisValues("inter-node-bandwidth", "0.25..1")).toEqual({ values: [0.25, 0.5, 1] });
  expect(axisValues("nodes", "8,2,8")).toEqual({ values: [2, 8] });
  for (const [axis, text] of Object.entries(EXAMPLES))
    expect(axisValues(axis as keyof typeof EXAMPLES, text)).toHaveProperty("values");
});

it("says what is no value, before anything is asked", () => {
  for (const text of ["", "x", "4k,", "4k..8k..16k", "-1", "0", "1..x"])
    expect(axisValues("sequence", text)).toHaveProperty("fault");
  expect(axisValues("memory", "40, 80")).toEqual({
    fault: "“40” is 40 bytes; did you mean 40GB? For bytes, write 40B",
  });
  expect(axisValues("nodes", "8..2")).toEqual({ fault: "8..2 goes down; write the smaller value first" });
  expect(axisValues("nodes", "1..1e300")).toEqual({ fault: "these are more than 64 values" });
  expect(axisValues("nodes", "4k")).toHaveProperty("fault");
});

it("begins with values around the job's own, which a plan can be made of", () => {
  const small = {
    sequenceLengthTokens: 256,
    globalBatchTokens: 2048,
    nodes: 1,
    memoryPerGpuBytes: 2 * 2 ** 30,
  };
  expect([
    firstValues("sequence", small),
    firstValues("batch", small),
    firstValues("nodes", small),
    firstValues("memory", small),
  ]).toEqual(["64..2048", "512..8192", "1..4", "1GiB..8GiB"]);
  const large = {
    sequenceLengthTokens: 32_768,
    globalBatchTokens: 4 * 2 ** 20,
    nodes: 16,
    memoryPerGpuBytes: 80e9,
  };
  expect([
    firstValues("sequence", large),
    firstValues("batch", large),
    firstValues("nodes", large),
    firstValues("memory", large),
  ]).toEqual(["8k..512k", "1M..16M", "4..64", "40GB..320GB"]);
  expect(firstValues("sequence", { ...small, sequenceLengthTokens: 27_721, globalBatchTokens: 27_721 })).toBe(
    "27721",
  );
  const nothing = {
    sequenceLengthTokens: undefined,
    globalBatchTokens: undefined,
    nodes: undefined,
    memoryPerGpuBytes: undefined,
  };
  for (const [axis, example] of Object.entries(EXAMPLES)) {
    const known = axis as keyof typeof EXAMPLES;
    expect(firstValues(known, nothing)).toBe(example);
    for (const sizes of [small, large])
      expect(axisValues(known, firstValues(known, sizes))).toHaveProperty("values");
  }
});

it("says why values are there that nobody wrote", () => {
  const none = {
    sequenceLengthTokens: undefined,
    globalBatchTokens: undefined,
    nodes: undefined,
    memoryPerGpuBytes: undefined,
  };
  const job = { sequenceLengthTokens: 4096, globalBatchTokens: 8192, nodes: 2, memoryPerGpuBytes: 80e9 };
  for (const axis of ["sequence", "batch", "nodes", "memory"] as const) {
    expect(whyFirstValues(axis, job)).toContain("the job’s own");
    expect(whyFirstValues(axis, none)).toContain("an example");
  }
  for (const sizes of [none, job])
    expect(whyFirstValues("inter-node-bandwidth", sizes)).toContain("what was measured");
});
