import { shippedProfile } from "@internevo/cost-model";
import { resolveJob } from "@internevo/domain";
import { boundSearches, SearchTimeError } from "@internevo/search";
import { expect, it } from "vitest";
import { estimatesOf } from "./estimates.ts";

const job = resolveJob({
  name: "small",
  model: { hiddenSize: 256, layers: 4, heads: 8, kvHeads: 4, vocabularySize: 256 },
  sequenceLengthTokens: 256,
  globalBatchTokens: 16 * 256,
  cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "2GB" },
});
const estimates = () =>
  estimatesOf(job, [job, job, job], shippedProfile("a800-128"), { measuredBy: "x", planWith: null });

it("ends where the time of the thread's searches is over, or nobody waits", async () => {
  let now = 0;
  expect((await boundSearches({ seconds: 3, clock: () => (now += 1) }, estimates))?.needed).toBeGreaterThan(
    0,
  );
  await expect(boundSearches({ seconds: 2, clock: () => (now += 1) }, estimates)).rejects.toThrow(
    SearchTimeError,
  );
  const left = { seconds: Infinity, clock: () => 0, isCancelled: () => true };
  await expect(boundSearches(left, estimates)).rejects.toMatchObject({ code: "unavailable" });
  expect(estimates()?.needed).toBeGreaterThan(0);
});
