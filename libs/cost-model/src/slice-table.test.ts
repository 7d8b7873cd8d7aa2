import { expect, it } from "vitest";
import type { SliceTime } from "./layer-time.ts";
import { SliceTable } from "./slice-table.ts";

/** Every number is another. */
const time = (from: number): SliceTime => ({
  forwardSeconds: from,
  backwardSeconds: from + 1,
  forwardModules: [from + 2, from + 3, from + 4, from + 5],
  backwardModules: [from + 6, from + 7, from + 8, from + 9],
  forwardAttentionSeconds: from + 10,
  backwardAttentionSeconds: from + 11,
  recomputeSeconds: from + 12,
  forwardCommunicationSeconds: from + 13,
  backwardCommunicationSeconds: from + 14,
  recomputeCommunicationSeconds: from + 15,
  embeddingCommunicationSeconds: from + 16,
  headCommunicationSeconds: from + 17,
  embeddingSeconds: from + 18,
  headSeconds: from + 19,
  unitWaits: from + 20,
  layerWaits: from + 21,
  gateUpSeconds: from + 22,
  gateUpCommunicationSeconds: from + 23,
  toHostSeconds: from + 24,
  toDeviceSeconds: from + 25,
});

it("gives back every number of every slice, and what each was warned of, however many there are", () => {
  const table = new SliceTable();
  const [one, other] = [
    { kind: "one", item: "a" },
    { kind: "other", item: "b" },
  ];
  const warned = [[], [one], [one], [one, other], [other]];
  const kept = Array.from({ length: 1000 }, (_, index) => ({
    value: time(100 * index + 0.1),
    warned: warned[index % warned.length] as (typeof one)[],
  }));
  expect(kept.map((each) => table.add(each))).toEqual(kept.map((_, index) => index));
  expect(table.size).toBe(1000);
  for (const [place, each] of kept.entries()) expect(table.at(place)).toEqual(each);
});
