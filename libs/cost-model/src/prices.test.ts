import { resolveJob } from "@internevo/domain";
import { expect, it } from "vitest";
import { pricesOf } from "./prices.ts";
import { shippedProfile } from "./shipped-profiles.ts";

const job = resolveJob({ name: "prices", model: "llama-7b", sequenceLengthTokens: 4096, globalBatchTokens: 2 ** 22, cluster: { nodes: 2, gpusPerNode: 8, memoryPerGpu: "80GB" } });
const sharing = { sequenceParallel: 1, tensorParallel: 1, contextParallel: 1 };

/** Asks for times until the prices of the job are replaced by new ones. */
function untilReplaced(profile: ReturnType<typeof shippedProfile>, from: number) {
  const before = pricesOf(job, profile);
  for (let b = from; pricesOf(job, profile) === before; b += 1) before.slices(sharing).of(b, false);
  return pricesOf(job, profile);
}

it("takes over what is asked for again and forgets the rest, when there are too many times", () => {
  const profile = structuredClone(shippedProfile("a800-128"));
  const first = pricesOf(job, profile);
  const [asked, forgotten] = [first.slices(sharing).of(1, false), first.slices(sharing).of(2, false)];
  const layout = { pipelineParallel: 1, dataParallel: 16, ...sharing };
  const sharded = first.shard(layout, { parameterSharding: 2, optimizerStateSharding: 2 });
  const second = untilReplaced(profile, 3);
  expect(second.slices(sharing).of(1, false)).toBe(asked);
  expect(second.shard(layout, { parameterSharding: 2, optimizerStateSharding: 2 })).toBe(sharded);
  const third = untilReplaced(profile, 1_000_000);
  expect(third.slices(sharing).of(1, false)).toBe(asked);
  expect(third.slices(sharing).of(2, false)).not.toBe(forgotten);
  expect(third.slices(sharing).of(2, false)).toEqual(forgotten);
});
