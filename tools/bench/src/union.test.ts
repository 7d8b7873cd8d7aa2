import { requiredMeasurements, unionOf } from "@internevo/cost-model";
import { expect, it } from "vitest";
import { modelsFrom, smallJob } from "./small-jobs.ts";

const needs = modelsFrom("llama-0.8m,llama-3.4m").map((model) =>
  requiredMeasurements(
    smallJob({
      model,
      sequenceLengthTokens: 512,
      globalBatchTokens: 2048,
      cluster: { name: "pair", nodes: 2, gpusPerNode: 1, memoryPerGpu: "1GiB", launcher: "ssh" },
    }),
  ),
);
const kindsOf = ({ overlaps }: (typeof needs)[number]): Set<string> =>
  new Set(
    overlaps.map(({ module, collective }) => `${module.module} ${module.pass} beside ${collective.op}`),
  );

it("asks for every kind of overlap that one of the jobs needs, of the shortest and the longest messages", () => {
  const union = unionOf(needs);
  const kinds = kindsOf(union);
  expect(kinds).toEqual(new Set(needs.flatMap((need) => [...kindsOf(need)])));
  expect([...kinds]).toEqual(
    expect.arrayContaining([
      "attention forward beside all-gather",
      "attention backward beside reduce-scatter",
      "linear forward beside all-gather",
    ]),
  );
  const bytesOf = (list: (typeof union)["overlaps"], op: string): number[] =>
    list.filter(({ collective }) => collective.op === op).map(({ collective }) => collective.bytes);
  const all = needs.flatMap(({ overlaps }) => bytesOf(overlaps, "all-gather"));
  expect(new Set(bytesOf(union.overlaps, "all-gather"))).toEqual(
    new Set([Math.min(...all), Math.max(...all)]),
  );
  expect(union.overlaps.length).toBeLessThanOrEqual(2 * kinds.size);
});
