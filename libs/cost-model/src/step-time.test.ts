import { aPlan } from "@internevo/test-kit";
import { planValue, resolveJob, worldSize, type ByUnit, type Plan, type Profile } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CostModel } from "./cost-model.ts";
import { layerWaits, leastWaits, updateSeconds } from "./layer-step.ts";
import { NO_SLOWDOWN } from "./overlap-times.ts";
import { shippedProfile } from "./shipped-profiles.ts";
import { partsOf, sliceShape } from "./slice-corrections.ts";
import { pipelineStage } from "./stage.ts";
import {
  leastSecondsOf,
  messageSeconds,
  secondsOf,
  sliceCosts,
  stepCosting,
  totalSeconds,
} from "./step-time.ts";
import { besideSeconds, type TensorBeside } from "./tensor-time.ts";
import { together } from "./together.ts";

interface Turn {
  readonly forward: boolean;
  readonly chunk: number;
  readonly microBatch: number;
}

/** What a stage does in order (Narayanan et al., section 2.2). */
function turnsOf(stage: number, stages: number, chunks: number, n: number): Turn[] {
  const total = n * chunks;
  const warmUp = Math.min(
    total,
    chunks === 1 ? stages - stage - 1 : 2 * (stages - stage - 1) + (chunks - 1) * stages,
  );
  const turn = (forward: boolean, i: number): Turn => {
    if (chunks === 1) return { forward, chunk: 0, microBatch: i };
    const place = Math.floor((i % (stages * chunks)) / stages);
    return {
      forward,
      chunk: forward ? place : chunks - 1 - place,
      microBatch: Math.floor(i / (stages * chunks)) * stages + (i % stages),
    };
  };
  const list: Turn[] = [];
  for (let i = 0; i < warmUp; i += 1) list.push(turn(true, i));
  for (let i = warmUp; i < total; i += 1) list.push(turn(true, i), turn(false, i - warmUp));
  for (let i = total - warmUp; i < total; i += 1) list.push(turn(false, i));
  return list;
}

/**
 * When the last stage's last turn ends: forward 1/v, backward 2/v a chunk, every message on its way for m.
 */
function played(stages: number, chunks: number, n: number, message: number): number {
  const queues = Array.from({ length: stages }, (_, stage) => turnsOf(stage, stages, chunks, n));
  const at = queues.map(() => 0);
  const clock = queues.map(() => 0);
  const ended = new Map<string, number>();
  for (let moved = true; moved;) {
    moved = false;
    for (const [stage, queue] of queues.entries())
      for (;;) {
        const turn = queue[at[stage] as number];
        if (!turn) break;
        const place = turn.chunk * stages + stage;
        const before = turn.forward ? place - 1 : place + 1;
        const first = turn.forward ? place === 0 : place === stages * chunks - 1;
        const own = turn.forward ? 0 : ended.get(`true ${place} ${turn.microBatch}`);
        const arrived = first ? own : ended.get(`${turn.forward} ${before} ${turn.microBatch}`);
        if (arrived === undefined) break;
        clock[stage] =
          Math.max(clock[stage] as number, first ? arrived : arrived + message) +
          (turn.forward ? 1 : 2) / chunks;
        ended.set(`${turn.forward} ${place} ${turn.microBatch}`, clock[stage]);
        at[stage] = (at[stage] as number) + 1;
        moved = true;
      }
  }
  return Math.max(...clock);
}

describe("messages between stages", () => {
  const added = (stages: number, chunks: number, n: number, message: number) =>
    played(stages, chunks, n, message) - played(stages, chunks, n, 0);
  const predicted = (
    pipelineParallel: number,
    chunks: number,
    microBatches: number,
    boundarySeconds: number,
  ) => messageSeconds({ pipelineParallel, microBatches, boundarySeconds }, chunks, 3);

  it("lengthen 1F1B by exactly what the schedule, played turn by turn, says", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 2, max: 8 }),
        fc.integer({ min: 1, max: 40 }),
        fc.double({ min: 0.001, max: 0.9, noNaN: true }),
        (stages, n, message) => {
          expect(predicted(stages, 1, n, message)).toBeCloseTo(added(stages, 1, n, message), 9);
        },
      ),
    );
  });

  it("cost an interleaved schedule one way to the last chunk and back, while they are shorter than a chunk's forward pass", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 2, max: 5 }),
        fc.integer({ min: 2, max: 4 }),
        fc.integer({ min: 2, max: 6 }),
        fc.double({ min: 0.001, max: 0.25, noNaN: true }),
        (stages, chunks, rounds, share) => {
          const message = share / chunks;
          expect(predicted(stages, chunks, rounds * stages, message)).toBeCloseTo(
            added(stages, chunks, rounds * stages, message),
            9,
          );
        },
      ),
    );
  });

  it("are not hidden for free where they are longer", () => {
    for (const [stages, chunks, n] of [
      [4, 2, 16],
      [4, 4, 64],
      [2, 2, 8],
      [3, 3, 27],
    ] as const)
      for (const message of [1, 2, 5]) {
        const ratio = predicted(stages, chunks, n, message) / added(stages, chunks, n, message);
        expect(ratio).toBeGreaterThan(0.8);
        expect(ratio).toBeLessThan(1.25);
      }
  });

  it("cost nothing without stages", () => expect(predicted(1, 1, 8, 1)).toBe(0));
});

describe("micro-batches in flight", () => {
  it("are no more however many follow", () => {
    const model = {
      ...resolveJob({
        name: "j",
        model: "llama-7b",
        sequenceLengthTokens: 8,
        globalBatchTokens: 8,
        cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: "1GB" },
      }).model,
    };
    for (const stages of [1, 2, 3, 4, 8])
      for (const chunks of stages === 1 ? [1] : [1, 2, 3, 4])
        for (let stage = 0; stage < stages; stage += 1)
          for (let rounds = 1; rounds < 12; rounds += 1) {
            const n = stages * rounds;
            const one = pipelineStage(model, stages, stage, chunks);
            const counted = one.chunkLayers.flatMap((layers, chunk) =>
              new Array<number>(layers).fill(one.inFlight(n, chunk)),
            );
            expect([0, ...counted].map((_, first) => one.layersHeld(n, first))).toEqual([
              0,
              ...counted.map((_, at) => counted.slice(0, at + 1).reduce((sum, value) => sum + value, 0)),
            ]);
          }
  });
});

const profile = shippedProfile("a800-128");
const job = resolveJob({
  name: "job",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 4 * 1024 * 1024,
  precision: "bf16",
  cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
});
const planOf = (over: Partial<Plan> = {}): Plan =>
  aPlan({ microBatches: 8, dataParallel: 128, parameterSharding: 32, optimizerStateSharding: 4, ...over });
const free: Profile = { ...profile, overlaps: [{ op: "all-gather", groupSize: 2, slowdown: 1 }] };

describe("overlap", () => {
  const model = new CostModel(job, free);
  const [slice, shard] = [model.sliceTime(1, planOf()), model.shardTime(planOf(), planOf())];

  it("leaves what the computation of a unit, a block or a layer does not hide of what is under way meanwhile", () => {
    const waits = layerWaits(slice, shard);
    const four = (units: ByUnit) => units as readonly [number, number, number, number];
    const [g, s] = [four(shard.gatherModules), four(shard.scatterModules)];
    const [f, b] = [four(slice.forwardModules), four(slice.backwardModules)];
    const beyond = (communication: number, compute: number) => Math.max(0, communication - compute);
    expect(waits.forward["inter-layer"]).toBeCloseTo(beyond(shard.gather.layer, slice.forwardSeconds), 12);
    expect(waits.forward.block).toBeCloseTo(
      beyond(g[2] + g[3], f[0] + f[1]) + beyond(g[0] + g[1], f[2] + f[3]),
      12,
    );
    expect(waits.forward["intra-layer"]).toBeCloseTo(
      beyond(g[1], f[0]) + beyond(g[2], f[1]) + beyond(g[3], f[2]) + beyond(g[0], f[3]),
      12,
    );
    expect(waits.kept.block.parameters).toBeCloseTo(
      beyond(g[0] + g[1] + s[0] + s[1], b[2] + b[3]) + beyond(g[2] + g[3] + s[2] + s[3], b[0] + b[1]),
      12,
    );
    expect(waits.kept["intra-layer"].parameters).toBeCloseTo(
      beyond(g[2] + s[0], b[3]) +
        beyond(g[1] + s[3], b[2]) +
        beyond(g[0] + s[2], b[1]) +
        beyond(g[3] + s[1], b[0]),
      12,
    );
    expect(waits.kept.none.parameters).toBe(shard.gather.layer + shard.scatter.layer);
  });

  it("pays where a link takes time, and not where computation and communication take turns on a core", () => {
    const seconds = (slowdown: number, over: Partial<Plan>) =>
      totalSeconds(
        new CostModel(job, {
          ...profile,
          overlaps: [
            { op: "all-gather", groupSize: 2, slowdown },
            { op: "reduce-scatter", groupSize: 2, slowdown },
          ],
        }).time(planOfJob(planOf(over), job)),
      );
    const hidden = { forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" } as const;
    expect(seconds(1.2, hidden)).toBeLessThan(seconds(1.2, {}));
    expect(seconds(2.1, hidden)).toBeGreaterThan(seconds(2.1, {}));
  });

  it("hides gathers of updated parameters behind the update and the next forward pass, where a plan overlaps anything and the executor lets them travel", () => {
    const { updatedParameters: _until, ...executor } = profile.executor;
    const travelling = new CostModel(job, { ...free, executor });
    const sharded = { parameterSharding: 1, optimizerStateSharding: 8 } as const;
    const alone = model.shardTime(planOf(sharded), planOf(sharded));
    const [none, hidden] = [
      model.time(planOfJob(planOf(sharded), model.job)),
      model.time(planOfJob(planOf({ ...sharded, backwardOverlap: "block" }), model.job)),
    ];
    expect(none.updateSeconds).toBeCloseTo(
      alone.normSeconds + alone.optimizerSeconds + alone.updateGatherSeconds,
      12,
    );
    expect(alone.updateGatherSeconds).toBeGreaterThan(0);
    const beside = alone.optimizerSeconds + 32 * slice.forwardSeconds;
    expect(
      travelling.time(planOfJob(planOf({ ...sharded, backwardOverlap: "block" }), travelling.job))
        .updateSeconds,
    ).toBeCloseTo(
      alone.normSeconds +
        alone.optimizerSeconds +
        together(beside, alone.updateGatherSeconds, alone.slowdowns.update.product) -
        beside,
      9,
    );
    expect(hidden.updateSeconds).toBeCloseTo(
      alone.normSeconds +
        together(alone.optimizerSeconds, alone.updateGatherSeconds, alone.slowdowns.update.product),
      9,
    );
  });

  it("stands still where a unit is used before its gather, one after another, has ended: played unit by unit", () => {
    const shard = model.shardTime(planOf({ parameterSharding: 1, optimizerStateSharding: 8 }), {
      parameterSharding: 1,
      optimizerStateSharding: 8,
    });
    const four = fc.tuple(
      ...([0, 1, 2, 3] as const).map(() => fc.double({ min: 0, max: 3, noNaN: true })),
    ) as fc.Arbitrary<[number, number, number, number]>;
    fc.assert(
      fc.property(
        four,
        four,
        fc.double({ min: 0, max: 3, noNaN: true }),
        fc.double({ min: 0, max: 3, noNaN: true }),
        fc.integer({ min: 1, max: 6 }),
        (gathers, computes, embedding, head, layers) => {
          let gathered = embedding;
          let clock = shard.optimizerSeconds;
          for (let unit = 0; unit < 4 * layers; unit += 1) {
            gathered += gathers[unit % 4] as number;
            clock = Math.max(clock, gathered) + (computes[unit % 4] as number);
          }
          gathered += head;
          const forwardSeconds = computes.reduce((sum, each) => sum + each, 0);
          const seconds = updateSeconds(
            { forwardModules: computes, forwardSeconds, forwardAttentionSeconds: 0 },
            {
              ...shard,
              updateTravels: true,
              updateGatherModules: gathers,
              updateGatherEmbeddingSeconds: embedding,
              updateGatherSeconds: gathered,
              slowdowns: { ...shard.slowdowns, update: NO_SLOWDOWN },
            },
            { forwardOverlap: "none", backwardOverlap: "block" },
            layers,
          );
          expect(seconds).toBeCloseTo(
            shard.normSeconds + Math.max(clock, gathered) - layers * forwardSeconds,
            9,
          );
        },
      ),
    );
  });

  it("hides collectives of tensor parallelism behind two products of each backward pass, and no others", () => {
    const tensor = {
      dataParallel: 32,
      sequenceParallel: 4,
      tensorParallel: 4,
      microBatches: 32,
      parameterSharding: 8,
    } as const;
    const { tensorActivations: _waited, ...executor } = profile.executor;
    const hiding = new CostModel(job, { ...profile, executor });
    const timeWith = (overlap: Partial<Plan>, given = hiding) => {
      const plan = planOfJob(planOf({ ...tensor, ...overlap }), model.job);
      return { plan, seconds: given.time(plan).sequenceCommunicationSeconds };
    };
    const none = timeWith({});
    const forward = timeWith({ forwardOverlap: "inter-layer" });
    expect(hiding.tensorBeside(none.plan)).toBeNull();
    expect(forward.seconds).toBe(none.seconds);
    expect(hiding.tensorBeside(forward.plan)).toBeNull();
    for (const backwardOverlap of ["block", "intra-layer"] as const) {
      const hidden = timeWith({ backwardOverlap });
      const beside = hiding.tensorBeside(hidden.plan) as TensorBeside;
      const { alone, waited } = besideSeconds(beside);
      const { gatherSeconds, scatterSeconds, products, slowdowns } = beside;
      expect(alone).toBeCloseTo(2 * (gatherSeconds + scatterSeconds), 12);
      expect(products.map((seconds) => seconds > 0)).toEqual([true, false, true, false]);
      const left = products
        .filter((seconds) => seconds > 0)
        .reduce(
          (sum, product) =>
            sum +
            together(product / 2, gatherSeconds, slowdowns.gather) +
            together(product / 2, scatterSeconds, slowdowns.scatter) -
            product,
          0,
        );
      expect(waited).toBeCloseTo(left, 12);
      expect(waited).toBeLessThan(alone);
      const times = tensor.microBatches * job.model.layers;
      expect(none.seconds - hidden.seconds).toBeCloseTo(times * (alone - waited), 9);
      // Beside nothing that it slows down, only what is longer than a product is left.
      const free = new CostModel(job, { ...profile, executor, overlaps: [] });
      // The paper's system waits for it.
      expect(timeWith({ backwardOverlap }, model).seconds).toBe(none.seconds);
      expect(model.tensorBeside(hidden.plan)).toBeNull();
      expect(timeWith({ backwardOverlap }, free).seconds).toBeLessThanOrEqual(hidden.seconds);
    }
    const ulysses = { ...tensor, tensorParallel: 1 };
    expect(timeWith({ ...ulysses, backwardOverlap: "block" }).seconds).toBe(timeWith(ulysses).seconds);
  });

  it("hides as much of what a trainer was seen to need longer for", () => {
    const plan = planOfJob(
      planOf({
        dataParallel: 32,
        sequenceParallel: 4,
        tensorParallel: 4,
        microBatches: 32,
        parameterSharding: 8,
        backwardOverlap: "block",
      }),
      model.job,
    );
    const parts = partsOf(model.sliceTime(1, { ...plan, backwardOverlap: "none" }));
    const twice = {
      ...parts,
      backward: parts.backward.map((seconds) => 2 * seconds),
      backwardCommunication: 3 * parts.backwardCommunication,
    };
    const slices = [
      {
        shape: sliceShape(job, {
          microBatchSize: 1,
          sequenceLengthTokens: job.sequenceLengthTokens,
          sequenceParallel: 4,
          tensorParallel: 4,
        }),
        layers: 2,
        microBatches: 1,
        parts: twice,
        medianSeconds: 1,
        p10Seconds: 1,
        p90Seconds: 1,
        samples: 1,
      },
    ];
    const { tensorActivations: _waited, ...executor } = profile.executor;
    const own = { ...profile, executor };
    const [composed, corrected] = [new CostModel(job, own), new CostModel(job, { ...own, slices })].map(
      (each) => each.tensorBeside(plan) as TensorBeside,
    ) as [TensorBeside, TensorBeside];
    expect(corrected.gatherSeconds / composed.gatherSeconds).toBeCloseTo(3, 9);
    expect(corrected.scatterSeconds / composed.scatterSeconds).toBeCloseTo(3, 9);
    for (const unit of [0, 2])
      expect((corrected.products[unit] as number) / (composed.products[unit] as number)).toBeCloseTo(2, 9);
  });

  it("adds up the parts of a layer", () => {
    expect(slice.forwardModules.reduce((sum, seconds) => sum + seconds, 0)).toBeCloseTo(
      slice.forwardSeconds,
      12,
    );
    expect(slice.backwardModules.reduce((sum, seconds) => sum + seconds, 0)).toBeCloseTo(
      slice.backwardSeconds,
      12,
    );
    expect(shard.gatherModules.reduce((sum, seconds) => sum + seconds, 0)).toBeCloseTo(
      shard.gather.layer,
      12,
    );
    expect(together(1, 1, 2)).toBe(2);
  });
});

describe("the sums that a search adds up", () => {
  // So slow that computation does not hide all of them.
  const withCopies = {
    ...profile,
    device: { ...profile.device, toHostBytesPerSecond: 8e9, toDeviceBytesPerSecond: 5e9 },
  };
  const layouts = [
    planOf(),
    planOf({ pipelineParallel: 4, dataParallel: 32, microBatches: 32, parameterSharding: 8 }),
    planOf({
      pipelineParallel: 3,
      dataParallel: 8,
      sequenceParallel: 2,
      parameterSharding: 4,
      optimizerStateSharding: 2,
      microBatches: 12,
    }),
    planOf({
      dataParallel: 32,
      sequenceParallel: 4,
      tensorParallel: 4,
      microBatches: 32,
      parameterSharding: 8,
    }),
  ];

  it("are the time of a plan, and their bound is never above it", () => {
    for (const base of layouts.flatMap((each) => [
      each,
      { ...each, gateUp: "again" as const },
      { ...each, gateUp: "host" as const },
    ]))
      for (const gradientSharding of [1, base.optimizerStateSharding])
        for (const forwardOverlap of ["none", "block", "inter-layer", "intra-layer"] as const)
          for (const backwardOverlap of ["none", "block", "intra-layer"] as const) {
            const { microBatchSize, microBatches, dataParallel } = base;
            const own = {
              ...job,
              globalBatchTokens: microBatchSize * microBatches * dataParallel * job.sequenceLengthTokens,
              cluster: { ...job.cluster, nodes: worldSize(base) / job.cluster.gpusPerNode },
            };
            const model = new CostModel(own, withCopies);
            const plan = { ...base, gradientSharding, forwardOverlap, backwardOverlap };
            const [slice, shard] = [model.sliceTime(plan.microBatchSize, plan), model.shardTime(plan, plan)];
            const waits = layerWaits(slice, shard);
            const stageLayers = Math.ceil(job.model.layers / plan.pipelineParallel);
            const costsOf = stepCosting(slice, shard, gradientSharding > 1, stageLayers);
            const gateUp = planValue(plan, "gateUp");
            const costs = costsOf(waits, plan, gateUp);
            const shape = model.stepShape(planOfJob(plan, model.job));
            const least = costsOf(leastWaits(waits), plan, gateUp);
            const alone = sliceCosts(slice);
            for (const pipelineChunks of plan.pipelineParallel === 1 ? [1] : [1, 2, 4])
              for (const recomputeLayers of [0, 1, 3, stageLayers]) {
                if (gateUp !== "kept" && recomputeLayers === stageLayers) continue;
                const exact = totalSeconds(
                  model.time(planOfJob({ ...plan, pipelineChunks, recomputeLayers }, model.job)),
                );
                expect(secondsOf(costs, recomputeLayers, shape, pipelineChunks) / exact).toBeCloseTo(1, 11);
                expect(leastSecondsOf(costs, shape, 1, 4)).toBeLessThanOrEqual(exact * (1 + 1e-11));
                expect(leastSecondsOf(least, shape, 1, 4)).toBeLessThanOrEqual(exact * (1 + 1e-11));
                expect(leastSecondsOf(alone, shape, 1, 4)).toBeLessThanOrEqual(exact * (1 + 1e-11));
              }
          }
  });
});
