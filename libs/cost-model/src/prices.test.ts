import { resolveJob } from "@internevo/domain";
import { expect, it } from "vitest";
import { pricesOf } from "./prices.ts";
import { shippedProfile } from "./shipped-profiles.ts";

const job = resolveJob({
  name: "prices",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 2 ** 22,
  cluster: { nodes: 2, gpusPerNode: 8, memoryPerGpu: "80GB" },
});
const sharing = { sequenceParallel: 1, tensorParallel: 1, contextParallel: 1, dataParallel: 2 };

/** Asks for times until the prices of the job are replaced by new ones. */
function untilReplaced(profile: ReturnType<typeof shippedProfile>, from: number) {
  const before = pricesOf(job, profile);
  for (let b = from; pricesOf(job, profile) === before; b += 1) before.slices(sharing).of(b, false);
  return pricesOf(job, profile);
}

it("takes over what is asked for again and forgets the rest, when there are too many times", () => {
  const profile = structuredClone(shippedProfile("a800-128"));
  const layout = { pipelineParallel: 1, ...sharing, dataParallel: 16 };
  const ofShards = (prices: ReturnType<typeof pricesOf>, shards: number) =>
    prices.shard(layout, { parameterSharding: shards, optimizerStateSharding: shards });
  const first = pricesOf(job, profile);
  const time = first.slices(sharing).of(1, false);
  const [asked, forgotten] = [ofShards(first, 2), ofShards(first, 4)];
  const second = untilReplaced(profile, 3);
  expect(ofShards(second, 2)).toBe(asked);
  expect(second.slices(sharing).known(1, false)).toBeUndefined();
  expect(second.slices(sharing).of(1, false)).toEqual(time);
  const third = untilReplaced(profile, 1_000_000);
  expect(ofShards(third, 2)).toBe(asked);
  expect(ofShards(third, 4)).not.toBe(forgotten);
  expect(ofShards(third, 4)).toEqual(forgotten);
  expect(third.slices(sharing).of(1, false)).toEqual(time);
});

it("returns the numbers that were computed, whether they are asked for the first time or again", () => {
  const profile = structuredClone(shippedProfile("a800-128"));
  const prices = pricesOf(job, profile);
  for (const shape of [
    sharing,
    { sequenceParallel: 8, tensorParallel: 1, contextParallel: 1, dataParallel: 2 },
    { sequenceParallel: 8, tensorParallel: 8, contextParallel: 1, dataParallel: 2 },
    { sequenceParallel: 16, tensorParallel: 1, contextParallel: 4, dataParallel: 1 },
  ]) {
    for (const beside of [false, true])
      for (const b of [1, 2, 7, 100]) {
        const made = prices.slices(shape).of(b, beside);
        expect(made.value.forwardSeconds).toBeGreaterThan(0);
        expect(prices.slices(shape).of(b, beside)).toEqual(made);
        expect(prices.slices(shape).of(b, beside).warned).toEqual(made.warned);
      }
  }
});
