import { aPlan } from "@internevo/test-kit";
import fc from "fast-check";
import { CostModel, NO_SLOWDOWN, pipelineStage, shippedProfile } from "@internevo/cost-model";
import { resolveJob, type Plan } from "@internevo/domain";
import { pipelineSchedule, planOfJob, unitSchedule } from "@internevo/plan";
import { describe, expect, it } from "vitest";
import { runLanes, type Span, type Task } from "./lanes.ts";
import { simulateStep } from "./simulate.ts";
import { stepProgram } from "./step-program.ts";
import type { ByModule, EndWork, LayerWork, StepWork } from "./step-work.ts";
import { overlayTraces, toTrace } from "./timeline.ts";

const end: EndWork = {
  forwardSeconds: 0,
  backwardSeconds: 0,
  forwardExposedSeconds: 0,
  backwardExposedSeconds: 0,
  gatherSeconds: 0,
  scatterSeconds: 0,
  reduceSeconds: 0,
  elements: 1,
};
const even = (seconds: number): ByModule => [seconds / 4, seconds / 4, seconds / 4, seconds / 4];
const layer: LayerWork = {
  forward: even(1),
  forwardAttentionSeconds: 0,
  backward: even(2),
  backwardAttentionSeconds: 0,
  beside: null,
  forwardExposedSeconds: 0,
  backwardExposedSeconds: 0,
  recomputeSeconds: 0,
  recomputeExposedSeconds: 0,
  gateUpSeconds: 0,
  gateUpExposedSeconds: 0,
  toHostSeconds: 0,
  toDeviceSeconds: 0,
  gather: even(0),
  scatter: even(0),
  reduce: even(0),
  elements: [1, 1, 1, 1],
};
const bare: StepWork = {
  layer,
  embedding: end,
  head: end,
  layersOfVirtualStage: [8],
  recomputedOfStage: [0],
  gateUp: "kept",
  stages: 1,
  chunks: 1,
  microBatches: 4,
  boundarySeconds: 0,
  reduceEveryMicroBatch: false,
  reduceOnceSeconds: 0,
  shareOnceSeconds: 0,
  updateSeconds: 0,
  unitWaits: 0,
  layerWaits: 0,
  slowdowns: {
    forwardGather: NO_SLOWDOWN,
    backwardGather: NO_SLOWDOWN,
    scatter: NO_SLOWDOWN,
    reduce: NO_SLOWDOWN,
  },
  sequenceLink: "intra-node",
  shardLink: "inter-node",
  overlap: { forwardOverlap: "none", backwardOverlap: "none" },
};
const endOf = (spans: readonly Span[]): number => Math.max(...spans.map(({ endSeconds }) => endSeconds));
const seconds = (work: Partial<StepWork>) => endOf(runLanes(stepProgram({ ...bare, ...work })));

describe("1F1B", () => {
  const stagesAndBatches = fc.record({
    stages: fc.integer({ min: 1, max: 9 }),
    rounds: fc.integer({ min: 1, max: 5 }),
    chunks: fc.integer({ min: 1, max: 4 }),
  });

  it("sends every micro-batch forward and backward once through every chunk, forward first", () => {
    fc.assert(
      fc.property(stagesAndBatches, ({ stages, rounds, chunks }) => {
        for (let stage = 0; stage < stages; stage += 1) {
          const seen = new Map<string, number>();
          pipelineSchedule(stage, stages, rounds * stages, chunks).forEach(
            ({ pass, microBatch, chunk }, position) => {
              const key = `${pass} ${microBatch} ${chunk}`;
              expect(seen.has(key)).toBe(false);
              if (pass === "backward")
                expect(seen.get(`forward ${microBatch} ${chunk}`)).toBeLessThan(position);
              seen.set(key, position);
            },
          );
          expect(seen.size).toBe(2 * rounds * stages * chunks);
        }
      }),
    );
  });

  it("keeps at most min(stages − stage, n) micro-batches in flight without interleaving", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 20 }), (stages, microBatches) => {
        for (let stage = 0; stage < stages; stage += 1) {
          let now = 0;
          let most = 0;
          for (const { pass } of pipelineSchedule(stage, stages, microBatches))
            most = Math.max(most, (now += pass === "forward" ? 1 : -1));
          expect(most).toBe(Math.min(stages - stage, microBatches));
        }
      }),
    );
  });

  it("has as many micro-batches of each chunk in flight as the cost model's memory is for", () => {
    const { model } = resolveJob({
      name: "deep",
      model: { hiddenSize: 64, layers: 60, heads: 4, vocabularySize: 256 },
      sequenceLengthTokens: 64,
      globalBatchTokens: 64,
      cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: "1GB" },
    });
    for (let stages = 1; stages <= 6; stages += 1)
      for (let chunks = 1; chunks <= (stages === 1 ? 1 : 6); chunks += 1)
        for (let rounds = 1; rounds <= 5; rounds += 1)
          for (let stage = 0; stage < stages; stage += 1) {
            const now = new Array<number>(chunks).fill(0);
            const most = new Array<number>(chunks).fill(0);
            for (const { pass, chunk } of pipelineSchedule(stage, stages, rounds * stages, chunks)) {
              now[chunk] = (now[chunk] as number) + (pass === "forward" ? 1 : -1);
              most[chunk] = Math.max(most[chunk] as number, now[chunk]);
            }
            const planned = pipelineStage(model, stages, stage, chunks);
            expect(
              most.map((_, chunk) => planned.inFlight(rounds * stages, chunk)),
              `${stages} stages, ${chunks} chunks, ${rounds} rounds, stage ${stage}`,
            ).toEqual(most);
          }
  });

  it("refuses interleaving when the micro-batches do not go round", () => {
    expect(() => pipelineSchedule(0, 4, 6, 2)).toThrow(/microBatches 6/);
  });
});

describe("lanes", () => {
  const task = (lane: Task["lane"], length: number, after: number[] = []): Task => ({
    name: lane,
    stage: 0,
    lane,
    seconds: length,
    after,
  });

  it("lets computation c beside communication m take max + (R − 1)·min", () => {
    fc.assert(
      fc.property(
        fc.double({ min: 0.01, max: 10, noNaN: true }),
        fc.double({ min: 0.01, max: 10, noNaN: true }),
        fc.double({ min: 1, max: 2, noNaN: true }),
        (c, m, slowdown) => {
          const both = (attention: boolean) =>
            endOf(
              runLanes([
                { ...task("compute", c), attention },
                { ...task("communication", m), slowdown: { product: slowdown, attention: 1 } },
              ]),
            );
          expect(both(false)).toBeCloseTo(Math.max(c, m) + (slowdown - 1) * Math.min(c, m), 9);
          expect(both(true)).toBeCloseTo(Math.max(c, m), 9);
        },
      ),
    );
  });

  it("shares a link between two collectives, and lets those on two links be", () => {
    const gather: Task = {
      ...task("communication", 3),
      slowdown: { product: 2, attention: 2 },
      link: "inter-node",
    };
    const exchange = (link: Task["link"]): Task => ({
      ...task("compute", 1),
      exposed: true,
      ...(link ? { link } : {}),
    });
    expect(runLanes([exchange("inter-node"), gather]).map(({ endSeconds }) => endSeconds)).toEqual([2, 4]);
    expect(runLanes([exchange("intra-node"), gather]).map(({ endSeconds }) => endSeconds)).toEqual([1, 3]);
  });

  it("lets tensor ranks communicate beside computation and beside parameters, which share a link with them", () => {
    const moves = (link: Task["link"], slowdown: number): Task => ({
      ...task("activations", 2),
      slowdown: { product: slowdown, attention: slowdown },
      ...(link ? { link } : {}),
    });
    const gather: Task = {
      ...task("communication", 2),
      slowdown: { product: 1, attention: 1 },
      link: "inter-node",
    };
    const ends = (...tasks: Task[]) => runLanes(tasks).map(({ endSeconds }) => endSeconds);
    expect(ends(task("compute", 2), moves("intra-node", 1), gather)).toEqual([2, 2, 2]);
    expect(ends(task("compute", 2), moves("inter-node", 1), gather)).toEqual([2, 4, 4]);
    expect(ends(task("compute", 2), moves("intra-node", 2))).toEqual([4, 4]);
  });

  it("finds circles instead of hanging", () => {
    expect(() => runLanes([task("compute", 1, [1]), task("communication", 1, [0])])).toThrow(/circle/);
  });
});

describe("a simulated step", () => {
  it("takes (n + s_pp − 1) micro-batches when stages are equal and messages free", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 6 }), fc.integer({ min: 1, max: 12 }), (stages, microBatches) => {
        const layersOfVirtualStage = new Array<number>(stages).fill(2);
        expect(
          seconds({
            stages,
            microBatches,
            layersOfVirtualStage,
            recomputedOfStage: new Array<number>(stages).fill(0),
          }),
        ).toBeCloseTo((microBatches + stages - 1) * 2 * 3, 9);
      }),
    );
  });

  it("has a bubble of 1/v with v chunks a stage", () => {
    const plain = seconds({
      stages: 4,
      microBatches: 8,
      layersOfVirtualStage: new Array<number>(4).fill(4),
      recomputedOfStage: [0, 0, 0, 0],
    });
    const interleaved = seconds({
      stages: 4,
      chunks: 4,
      microBatches: 8,
      layersOfVirtualStage: new Array<number>(16).fill(1),
      recomputedOfStage: [0, 0, 0, 0],
    });
    const ideal = 8 * 4 * 3;
    expect(plain - ideal).toBeCloseTo(3 * 4 * 3, 9);
    expect(interleaved - ideal).toBeCloseTo((plain - ideal) / 4, 9);
  });

  const sharded: LayerWork = { ...layer, gather: even(0.5), scatter: even(0.5) };
  const head: EndWork = { ...end, backwardSeconds: 1, gatherSeconds: 0.5 };
  const modules = { forwardOverlap: "intra-layer", backwardOverlap: "intra-layer" } as const;

  it("hides gathers of what is next behind what is in use, but not the first", () => {
    expect(seconds({ layer: sharded, head, microBatches: 1 })).toBeCloseTo(8 * 3 + 1 + 8 * 0.5 * 3 + 0.5, 9);
    // The first gather of the forward pass and the last scatter have nothing to hide behind; in a pool of two
    // modules the head's has room when the last but one is done with, and only the last beside it.
    expect(seconds({ layer: sharded, head, microBatches: 1, overlap: modules })).toBeCloseTo(
      8 * 3 + 1 + 0.125 + 0.125 + 0.25,
      9,
    );
    // By blocks the gradients of two units are reduced together; of a whole layer the first unit is used when
    // it is there.
    expect(
      seconds({
        layer: sharded,
        head,
        microBatches: 1,
        overlap: { forwardOverlap: "inter-layer", backwardOverlap: "block" },
      }),
    ).toBeCloseTo(8 * 3 + 1 + 0.125 + 0.25, 9);
  });

  it("is bounded by the wire when communication is longer than computation", () => {
    const hidden = seconds({
      layer: { ...layer, gather: even(3) },
      microBatches: 1,
      overlap: { forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" },
    });
    expect(hidden).toBeGreaterThanOrEqual(8 * 2 * 3);
    expect(hidden).toBeLessThan(8 * 2 * 3 + 8 * 3);
  });

  it("gathers a layer that is recomputed once for both, and makes it again before its backward pass", () => {
    const again: LayerWork = { ...sharded, recomputeSeconds: 0.75 };
    const gathers = (recomputed: number) =>
      stepProgram({
        ...bare,
        layer: again,
        recomputedOfStage: [recomputed],
        microBatches: 1,
        overlap: modules,
      }).filter(({ name }) => name === "all-gather parameters").length;
    // And the embedding and the head.
    expect([gathers(0), gathers(3)]).toEqual([2 * 8 * 4 + 2, 2 * 8 * 4 + 2]);
    expect(seconds({ layer: again, recomputedOfStage: [3], microBatches: 2 })).toBeCloseTo(
      2 * (8 * (3 + 1.5) + 3 * 0.75),
      9,
    );
    const spans = runLanes(stepProgram({ ...bare, layer: again, recomputedOfStage: [3], microBatches: 1 }));
    expect(spans.filter(({ task }) => task.name === "recompute").map(({ task }) => task.layer)).toEqual([
      2, 1, 0,
    ]);
  });

  it("copies gate and up out and back beside the layers, and waits for what is longer", () => {
    const copies = (toHostSeconds: number, toDeviceSeconds: number, more: Partial<StepWork> = {}) =>
      seconds({ gateUp: "host", layer: { ...layer, toHostSeconds, toDeviceSeconds }, ...more });
    const alone = 4 * 8 * 3;
    expect(seconds({})).toBeCloseTo(alone, 9);
    // As long as a pass: hidden.
    expect(copies(1, 2)).toBeCloseTo(alone, 9);
    // Twice a forward pass: the third layer of a micro-batch waits for the place of the first, and so on. The
    // copy of the last but one goes on beside the last layer and its backward pass.
    expect(copies(2, 0)).toBeGreaterThan(alone + 4 * 5);
    expect(copies(2, 0)).toBeLessThanOrEqual(alone + 4 * 8);
    expect(copies(0, 4)).toBeGreaterThan(alone + 4 * 2 * 5);
    expect(copies(0, 4)).toBeLessThanOrEqual(alone + 4 * 2 * 8);
    // Layers that are recomputed are not copied.
    expect(copies(50, 50, { recomputedOfStage: [8] })).toBeCloseTo(seconds({ recomputedOfStage: [8] }), 9);
    // A backward pass right behind the forward pass of its layer finds what that left.
    expect(copies(50, 50, { layersOfVirtualStage: [1] })).toBeCloseTo(4 * 3, 9);
  });

  it("gathers and scatters activations of tensor ranks beside the products of the backward pass", () => {
    const beside = {
      products: [0.4, 0, 0.4, 0],
      gatherSeconds: 0.1,
      scatterSeconds: 0.15,
      slowdowns: { gather: 1, scatter: 1 },
    };
    const moved = (change: Partial<typeof beside>) =>
      seconds({ layer: { ...layer, beside: { ...beside, ...change } } });
    const alone = 4 * 8 * 3;
    expect(moved({})).toBeCloseTo(alone, 9);
    // What is longer than the product of one gradient is waited for, for each of two units.
    expect(moved({ gatherSeconds: 0.3 })).toBeCloseTo(alone + 4 * 8 * 2 * 0.1, 9);
    expect(moved({ scatterSeconds: 0.3 })).toBeCloseTo(alone + 4 * 8 * 2 * 0.1, 9);
    expect(moved({ slowdowns: { gather: 2, scatter: 1 } })).toBeCloseTo(alone + 4 * 8 * 2 * 0.1, 9);
    const one = stepProgram({ ...bare, microBatches: 1, layer: { ...layer, beside } });
    expect(one.filter(({ lane }) => lane === "activations").map(({ name }) => name)).toEqual(
      Array.from({ length: 16 }, () => ["all-gather activations", "reduce-scatter activations"]).flat(),
    );
  });

  it("reduces beside the last backward pass what is reduced once a step", () => {
    const reduced = { layer: { ...layer, reduce: even(0.5) }, reduceOnceSeconds: 4, microBatches: 3 };
    expect(seconds(reduced)).toBeCloseTo(3 * 24 + 4, 9);
    expect(seconds({ ...reduced, overlap: modules })).toBeCloseTo(3 * 24 + 0.125, 9);
    expect(seconds({ ...reduced, reduceEveryMicroBatch: true })).toBeCloseTo(3 * (24 + 4), 9);
  });

  it("pays for the waits of ranks that meet, at every unit or at every layer", () => {
    const waiting = { layer: sharded, microBatches: 1, unitWaits: 0.1, layerWaits: 0.01 };
    expect(seconds(waiting) - seconds({ ...waiting, unitWaits: 0 })).toBeCloseTo(0.1 * 24, 9);
    const hidden = { ...waiting, overlap: modules };
    expect(seconds(hidden) - seconds({ ...hidden, layerWaits: 0 })).toBeLessThanOrEqual(0.01 * 24 + 1e-9);
    expect(seconds({ ...waiting, layer }) - seconds({ ...waiting, layer, unitWaits: 0 })).toBe(0);
  });

  const anyWork = fc
    .record({
      forward: fc.integer({ min: 1, max: 9 }),
      gather: fc.integer({ min: 0, max: 9 }),
      scatter: fc.integer({ min: 0, max: 9 }),
      reduce: fc.integer({ min: 0, max: 9 }),
      exposed: fc.integer({ min: 0, max: 3 }),
      sizes: fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 6, maxLength: 6 }),
      stages: fc.integer({ min: 1, max: 3 }),
      chunks: fc.integer({ min: 1, max: 2 }),
      rounds: fc.integer({ min: 1, max: 2 }),
      recomputed: fc.integer({ min: 0, max: 3 }),
      every: fc.boolean(),
      forwardOverlap: fc.constantFrom(
        "none" as const,
        "block" as const,
        "inter-layer" as const,
        "intra-layer" as const,
      ),
      backwardOverlap: fc.constantFrom("none" as const, "block" as const, "intra-layer" as const),
    })
    .map(
      ({
        forward,
        gather,
        scatter,
        reduce,
        exposed,
        sizes,
        stages,
        chunks: asked,
        rounds,
        recomputed,
        every,
        ...overlap
      }): StepWork => {
        const chunks = stages === 1 ? 1 : asked;
        const [a, b, c, d, embedding, headSize] = sizes as [number, number, number, number, number, number];
        const ends: EndWork = {
          ...end,
          forwardSeconds: 1,
          backwardSeconds: 2,
          gatherSeconds: gather,
          scatterSeconds: scatter,
          reduceSeconds: reduce,
        };
        return {
          ...bare,
          stages,
          chunks,
          microBatches: stages * rounds,
          layersOfVirtualStage: new Array<number>(stages * chunks).fill(2),
          recomputedOfStage: new Array<number>(stages).fill(Math.min(recomputed, 2 * chunks)),
          reduceEveryMicroBatch: every,
          layer: {
            ...layer,
            forward: even(forward),
            backward: even(2 * forward),
            forwardExposedSeconds: exposed,
            backwardExposedSeconds: exposed,
            recomputeSeconds: forward,
            gather: even(gather),
            scatter: even(scatter),
            reduce: even(reduce),
            elements: [a, b, c, d],
          },
          embedding: { ...ends, elements: embedding },
          head: { ...ends, elements: headSize },
          overlap,
        };
      },
    );
  const busy = (tasks: readonly Task[], lane: Task["lane"], stage: number) =>
    tasks
      .filter((task) => task.lane === lane && task.stage === stage)
      .reduce((sum, task) => sum + task.seconds, 0);

  it("does as much whatever overlaps, is no faster than a lane of it, and no slower than one after the other", () => {
    fc.assert(
      fc.property(anyWork, (work) => {
        const tasks = stepProgram(work);
        const plain = stepProgram({ ...work, overlap: bare.overlap });
        const time = endOf(runLanes(tasks));
        for (let stage = 0; stage < work.stages; stage += 1) {
          expect(busy(tasks, "compute", stage)).toBeCloseTo(busy(plain, "compute", stage), 9);
          for (const lane of ["compute", "communication"] as const)
            expect(time).toBeGreaterThanOrEqual(busy(tasks, lane, stage) - 1e-9);
        }
        // Reductions of the last micro-batch stand for the lump at the end of a step that overlaps nothing.
        const lump = work.reduceEveryMicroBatch
          ? 0
          : work.layersOfVirtualStage.length * 2 * (work.layer.reduce[0] as number) * 4 +
            2 * work.embedding.reduceSeconds;
        expect(time).toBeLessThanOrEqual(endOf(runLanes(plain)) + lump + 1e-9);
      }),
      { numRuns: 200, seed: 11 },
    );
  });

  it("never has more gathered or staged than there is room for, and waits for nothing that is not done", () => {
    fc.assert(
      fc.property(anyWork, (work) => {
        for (let stage = 0; stage < work.stages; stage += 1) {
          const { gatherings, reductions } = unitSchedule(
            work,
            stage,
            pipelineSchedule(stage, work.stages, work.microBatches, work.chunks),
          );
          const sizeOf = (unit: (typeof gatherings)[number]["unit"]) =>
            unit.kind === "layer" ? (work.layer.elements[unit.module] as number) : work[unit.kind].elements;
          const layerSize = work.layer.elements.reduce((sum, one) => sum + one, 0);
          const most = 2 * Math.max(layerSize, work.embedding.elements, work.head.elements);
          for (const [index, { after, afterReductions }] of gatherings.entries()) {
            expect(
              gatherings.slice(after + 1, index + 1).reduce((sum, { unit }) => sum + sizeOf(unit), 0),
            ).toBeLessThanOrEqual(most);
            expect(after).toBeLessThan(index);
            expect(afterReductions).toBeLessThanOrEqual(reductions.length);
          }
          for (const [index, { after }] of reductions.entries()) expect(after).toBeLessThan(index);
        }
      }),
      { numRuns: 100, seed: 12 },
    );
  });
});

describe("a plan on the shipped profile", () => {
  const job = resolveJob({
    name: "sim",
    model: "llama-7b",
    sequenceLengthTokens: 8192,
    globalBatchTokens: 4 * 1024 * 1024,
    precision: "bf16-grad16",
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
  });
  const profile = shippedProfile("a800-128");
  const plan = (factors: Partial<Plan>): Plan =>
    aPlan({ microBatches: 4, dataParallel: 128, optimizerStateSharding: 128, ...factors });

  it("equals the closed form where nothing overlaps and there is one stage", () => {
    const costs = new CostModel(job, profile);
    for (const each of [
      plan({}),
      plan({ parameterSharding: 8, optimizerStateSharding: 16 }),
      plan({
        dataParallel: 32,
        microBatches: 16,
        sequenceParallel: 4,
        recompute: true,
        parameterSharding: 4,
        optimizerStateSharding: 32,
        gradientSharding: 32,
      }),
    ]) {
      expect(
        simulateStep(costs, planOfJob(each, costs.job)).stepTimeSeconds /
          costs.predict(planOfJob(each, costs.job)).stepTimeSeconds,
      ).toBeCloseTo(1, 9);
    }
  });

  it("equals the closed form where tensor ranks communicate beside the backward pass", () => {
    const { tensorActivations: _waited, ...executor } = profile.executor;
    const costs = new CostModel(job, { ...profile, executor });
    const tensor = plan({
      dataParallel: 32,
      microBatches: 16,
      sequenceParallel: 4,
      tensorParallel: 4,
      optimizerStateSharding: 1,
    });
    const stepOf = (backwardOverlap: Plan["backwardOverlap"]) => {
      const own = planOfJob({ ...tensor, backwardOverlap }, costs.job);
      const { stepTimeSeconds, spans } = simulateStep(costs, own);
      return { ratio: stepTimeSeconds / costs.predict(own).stepTimeSeconds, stepTimeSeconds, spans };
    };
    const [none, hidden] = [stepOf("none"), stepOf("intra-layer")];
    expect(none.ratio).toBeCloseTo(1, 9);
    expect(Math.abs(hidden.ratio - 1)).toBeLessThan(0.01);
    expect(hidden.stepTimeSeconds).toBeLessThan(none.stepTimeSeconds);
    expect(none.spans.some(({ task }) => task.lane === "activations")).toBe(false);
    const layers = 16 * costs.job.model.layers;
    expect(hidden.spans.filter(({ task }) => task.lane === "activations")).toHaveLength(4 * layers);
  });

  it("is within a few percent of the closed form where collectives run beside computation, with stages, chunks and layers that are recomputed", () => {
    const costs = new CostModel(job, profile);
    const overlaps = [
      { forwardOverlap: "inter-layer", backwardOverlap: "block" },
      { forwardOverlap: "block", backwardOverlap: "intra-layer" },
      { forwardOverlap: "none", backwardOverlap: "block" },
    ] as const;
    const shardings = [
      { parameterSharding: 32, optimizerStateSharding: 4, gradientSharding: 1 },
      { parameterSharding: 8, optimizerStateSharding: 4, gradientSharding: 4 },
      { parameterSharding: 1, optimizerStateSharding: 8, gradientSharding: 8 },
    ];
    for (const overlap of overlaps)
      for (const sharding of shardings)
        for (const recomputeLayers of [0, 3]) {
          const one = plan({ ...sharding, ...overlap, recomputeLayers });
          expect(
            Math.abs(
              simulateStep(costs, planOfJob(one, costs.job)).stepTimeSeconds /
                costs.predict(planOfJob(one, costs.job)).stepTimeSeconds -
                1,
            ),
            JSON.stringify(one),
          ).toBeLessThan(0.03);
          for (const pipelineChunks of [1, 2]) {
            const staged = plan({
              ...sharding,
              ...overlap,
              recomputeLayers,
              pipelineParallel: 4,
              dataParallel: 32,
              microBatches: 16,
              optimizerStateSharding: Math.min(4, sharding.optimizerStateSharding),
              gradientSharding: Math.min(4, sharding.gradientSharding),
              parameterSharding: Math.min(8, sharding.parameterSharding),
              pipelineChunks,
            });
            expect(
              Math.abs(
                simulateStep(costs, planOfJob(staged, costs.job)).stepTimeSeconds /
                  costs.predict(planOfJob(staged, costs.job)).stepTimeSeconds -
                  1,
              ),
              JSON.stringify(staged),
            ).toBeLessThan(0.06);
          }
        }
  });

  it("draws every stage in a trace whose events fit into the step", () => {
    const costs = new CostModel(job, profile);
    const each = plan({
      pipelineParallel: 4,
      dataParallel: 32,
      microBatches: 16,
      optimizerStateSharding: 32,
    });
    const { stepTimeSeconds, spans, computeShare } = simulateStep(costs, planOfJob(each, costs.job));
    const trace = toTrace(spans, 32);
    expect(new Set(trace.traceEvents.map(({ pid }) => pid))).toEqual(new Set([0, 32, 64, 96]));
    for (const event of trace.traceEvents)
      if (event.ph === "X")
        expect(event.ts + event.dur).toBeLessThanOrEqual(stepTimeSeconds * 1e6 * (1 + 1e-12));
    expect(computeShare).toBeGreaterThan(0.5);
    expect(computeShare).toBeLessThanOrEqual(1);
  });

  it("is laid over every measured step, in processes of its own", () => {
    const measured = [
      { ph: "M", name: "process_name", pid: 1, args: { name: "rank 1" } },
      { ph: "X", name: "linear forward qkv", pid: 1, tid: 1, ts: 5, dur: 2 },
    ];
    const simulated = toTrace(runLanes(stepProgram(bare)), 1);
    const events = simulated.traceEvents.filter(({ ph }) => ph === "X").length;
    const both = overlayTraces(measured, simulated, [5, 50]);
    expect(both.traceEvents.slice(0, 2)).toEqual(measured);
    const own = both.traceEvents.slice(2);
    expect(new Set(own.map(({ pid }) => pid))).toEqual(new Set([2]));
    expect(own.filter(({ ph }) => ph === "X")).toHaveLength(2 * events);
    expect(Math.min(...own.flatMap((event) => (event.ph === "X" ? [event.ts ?? NaN] : [])))).toBe(5);
    expect(own.filter((event) => event.ph === "X" && (event.ts ?? 0) >= 50).length).toBeGreaterThanOrEqual(
      events,
    );
  });
});
