import { aJob, aPlan } from "@internevo/test-kit";
import { resolveJob, type JobSpec, type PackedDocuments } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { describe, expect, it } from "vitest";
import { CostModel } from "./cost-model.ts";
import { expectedLargest, packedAttention } from "./packed-attention.ts";
import { ringPlace, ringSeconds } from "./ring-time.ts";
import { CollectiveTimes } from "./collectives.ts";
import { shippedProfile } from "./shipped-profiles.ts";

const profile = shippedProfile("a800-128");
const length = 65_536;
const rings = (work: number, deviation = 0, most = 1) =>
  [1, 2, 4, 8].map((ranks) => ({ ranks, work, deviation, most, firstTurn: 1 / ranks }));
const documentsOf = (over: Partial<PackedDocuments> = {}): PackedDocuments => ({
  sequenceLengthTokens: length,
  sequences: 100,
  meanDocuments: 4,
  keysShare: 0.25,
  rings: rings(0.25),
  ...over,
});
const plain: JobSpec = resolveJob(
  aJob({
    model: "llama-7b",
    sequenceLengthTokens: length,
    globalBatchTokens: 4 * 1024 * 1024,
    precision: "bf16",
    data: { format: "tokens", path: "/data", packing: "documents" },
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
  }),
);
const packed = (documents: PackedDocuments = documentsOf()): JobSpec => ({ ...plain, documents });
const plan = planOfJob(
  aPlan({ microBatches: 4, dataParallel: 16, sequenceParallel: 8, optimizerStateSharding: 128 }),
  plain,
);
const slice = (job: JobSpec, over: Partial<typeof plan> = {}) =>
  new CostModel(job, profile).sliceTime(1, { ...plan, ...over });

describe("expectedLargest", () => {
  // Tabulated means of the largest of so many standard normal variables.
  it.each([
    [1, 0],
    [2, 0.5642],
    [10, 1.5388],
    [100, 2.5076],
    [1000, 3.2414],
  ])("of %i is %f", (count, mean) => expect(Math.abs(expectedLargest(count) - mean)).toBeLessThan(0.03));
});

describe("attention of packed documents", () => {
  it("takes its part of one document's time, and nothing else changes", () => {
    const [one, some] = [slice(plain), slice(packed())];
    expect(some.forwardAttentionSeconds).toBeCloseTo(one.forwardAttentionSeconds / 4, 9);
    expect(some.backwardAttentionSeconds).toBeCloseTo(one.backwardAttentionSeconds / 4, 9);
    expect(one.forwardSeconds - some.forwardSeconds).toBeCloseTo((3 / 4) * one.forwardAttentionSeconds, 9);
    expect(one.recomputeSeconds - some.recomputeSeconds).toBeCloseTo(
      (3 / 4) * one.forwardAttentionSeconds,
      9,
    );
    expect({ head: some.headSeconds, all: some.forwardCommunicationSeconds }).toEqual({
      head: one.headSeconds,
      all: one.forwardCommunicationSeconds,
    });
  });

  it("of sequences that are one document is that of one document, to the last bit", () => {
    const whole = packed(documentsOf({ keysShare: 1, rings: rings(1) }));
    expect(new CostModel(whole, profile).predict(plan)).toEqual(new CostModel(plain, profile).predict(plan));
  });

  it("is not counted in sequences of another length, under another window, or where none are packed", () => {
    const { sequenceLengthTokens: _length, ...others } = documentsOf();
    const same = slice(plain);
    for (const job of [
      packed({ ...others, sequenceLengthTokens: 4096 }),
      packed(documentsOf({ slidingWindowTokens: 1024 })),
      { ...packed(), data: null },
    ])
      expect(slice(job)).toEqual(same);
  });

  it("waits for the slowest of the ranks that share the batch, less the more sequences each has", () => {
    const share = packedAttention(packed(documentsOf({ rings: rings(0.25, 0.1) }))) as NonNullable<
      ReturnType<typeof packedAttention>
    >;
    const of = (dataParallel: number, microBatchSize = 1, ring = 1) =>
      share({ ring, microBatchSize, dataParallel });
    expect(of(1).share).toBe(0.25);
    expect(of(16).share).toBeGreaterThan(of(4).share);
    // 64 sequences of a step over 16 ranks: four each.
    expect(of(16).share).toBeCloseTo(0.25 + (0.1 / 2) * expectedLargest(16), 9);
    expect(of(16).meetingShare).toBeCloseTo(0.25 + 0.1 * expectedLargest(16), 9);
    expect(of(16, 4).meetingShare).toBeCloseTo(of(16).share, 9);
    // A ring meets in every micro-batch.
    expect(of(1, 1, 8).share).toBeCloseTo(0.25 + 0.1 * expectedLargest(8), 9);
    const most = packedAttention(packed(documentsOf({ rings: rings(0.25, 0.1, 0.3) })));
    expect(most?.({ ring: 1, microBatchSize: 1, dataParallel: 64 })).toMatchObject({
      share: 0.3,
      meetingShare: 0.3,
    });
  });

  it("makes ranks wait in every micro-batch that gathers parameters, and once a step otherwise", () => {
    const job = packed(documentsOf({ rings: rings(0.25, 0.1) }));
    const time = slice(job);
    const passes = time.forwardSeconds + time.backwardSeconds;
    const attention = time.forwardAttentionSeconds + time.backwardAttentionSeconds;
    const share = 0.25 + (0.1 / 2) * expectedLargest(16);
    const meeting = 0.25 + 0.1 * expectedLargest(16);
    expect(time.unitWaits).toBeCloseTo(((meeting / share - 1) * attention) / passes, 9);
    expect(time.layerWaits).toBe(time.unitWaits);
    expect(slice(plain)).toMatchObject({ unitWaits: 0, layerWaits: 0 });
  });

  it("lowers MFU's count of what the model needs, by keys and not by tiles", () => {
    const [one, some] = [plain, packed(documentsOf({ rings: rings(0.5) }))].map((job) => {
      const { mfu, mfuFullAttention, stepTimeSeconds } = new CostModel(job, profile).predict(plan);
      return { causal: mfu * stepTimeSeconds, whole: mfuFullAttention * stepTimeSeconds };
    });
    expect(some?.whole).toBeCloseTo(one?.whole ?? 0, 9);
    const attention = 2 * ((one?.whole ?? 0) - (one?.causal ?? 0));
    expect((one?.causal ?? 0) - (some?.causal ?? 0)).toBeCloseTo((3 / 8) * attention, 6);
  });
});

describe("a ring of packed documents", () => {
  const times = new CollectiveTimes(profile, 8, () => undefined);
  const work = {
    ranks: 4,
    place: ringPlace(1, 1, 8),
    elements: 2 ** 22,
    activationBytes: 2,
    forwardTurnSeconds: 1,
    backwardTurnSeconds: 1,
    beside: { forward: 1, backward: 1 },
  } as const;

  it("hides its messages in turns that compute, and waits for them in those that do not", () => {
    const spread = ringSeconds({ ...work, firstTurn: 1 / 4 }, times);
    expect(spread.forward).toBeCloseTo(ringSeconds(work, times).forward, 12);
    const message = times.seconds("point-to-point", 2 ** 23, { size: 2, nodes: 1 });
    expect(ringSeconds({ ...work, firstTurn: 1 }, times).forward).toBeCloseTo(2 * message, 9);
  });
});
