import fc from "fast-check";
import { CostModel, shippedProfile } from "@internevo/cost-model";
import { resolveJob, type Plan } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { runLanes, type Task } from "./lanes.ts";
import { pipelineSchedule } from "./pipeline-schedule.ts";
import { simulateStep } from "./simulate.ts";
import { stepProgram, type StepWork, type UnitWork } from "./step-program.ts";
import { overlayTraces, toTrace } from "./timeline.ts";

const nothing: UnitWork = { forwardSeconds: 0, backwardSeconds: 0, forwardExposedSeconds: 0, backwardExposedSeconds: 0, gatherSeconds: 0, scatterSeconds: 0 };
const bare: StepWork = {
  layer: { ...nothing, forwardSeconds: 1, backwardSeconds: 2 }, embedding: nothing, head: nothing,
  layersOfVirtualStage: [8], stages: 1, chunks: 1, microBatches: 4, boundarySeconds: 0, reduceOnceSeconds: 0, updateSeconds: 0,
  overlap: { forwardOverlap: "none", backwardOverlap: "none" },
};
const seconds = (work: Partial<StepWork>, slowdown = 1) => Math.max(...runLanes(stepProgram({ ...bare, ...work }), slowdown).map(({ endSeconds }) => endSeconds));

describe("1F1B", () => {
  const stagesAndBatches = fc.record({ stages: fc.integer({ min: 1, max: 9 }), rounds: fc.integer({ min: 1, max: 5 }), chunks: fc.integer({ min: 1, max: 4 }) });

  it("sends every micro-batch forward and backward once through every chunk, forward first", () => {
    fc.assert(
      fc.property(stagesAndBatches, ({ stages, rounds, chunks }) => {
        for (let stage = 0; stage < stages; stage += 1) {
          const seen = new Map<string, number>();
          pipelineSchedule(stage, stages, rounds * stages, chunks).forEach(({ pass, microBatch, chunk }, position) => {
            const key = `${pass} ${microBatch} ${chunk}`;
            expect(seen.has(key)).toBe(false);
            if (pass === "backward") expect(seen.get(`forward ${microBatch} ${chunk}`)).toBeLessThan(position);
            seen.set(key, position);
          });
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
          for (const { pass } of pipelineSchedule(stage, stages, microBatches)) most = Math.max(most, (now += pass === "forward" ? 1 : -1));
          expect(most).toBe(Math.min(stages - stage, microBatches));
        }
      }),
    );
  });

  it("refuses interleaving when the micro-batches do not go round", () => {
    expect(() => pipelineSchedule(0, 4, 6, 2)).toThrow(/microBatches 6/);
  });
});

describe("lanes", () => {
  const task = (lane: Task["lane"], length: number, after: number[] = []): Task => ({ name: lane, stage: 0, lane, seconds: length, after });

  it("lets computation c beside communication m take max + (R − 1)·min", () => {
    fc.assert(
      fc.property(fc.double({ min: 0.01, max: 10, noNaN: true }), fc.double({ min: 0.01, max: 10, noNaN: true }), fc.double({ min: 1, max: 2, noNaN: true }), (c, m, slowdown) => {
        const spans = runLanes([task("compute", c), task("communication", m)], slowdown);
        const end = Math.max(...spans.map(({ endSeconds }) => endSeconds));
        expect(end).toBeCloseTo(Math.max(c, m) + (slowdown - 1) * Math.min(c, m), 9);
      }),
    );
  });

  it("finds circles instead of hanging", () => {
    expect(() => runLanes([task("compute", 1, [1]), task("communication", 1, [0])], 1)).toThrow(/circle/);
  });
});

describe("a simulated step", () => {
  it("takes (n + s_pp − 1) micro-batches when stages are equal and messages free", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 6 }), fc.integer({ min: 1, max: 12 }), (stages, microBatches) => {
        const layersOfVirtualStage = new Array<number>(stages).fill(2);
        expect(seconds({ stages, microBatches, layersOfVirtualStage })).toBeCloseTo((microBatches + stages - 1) * 2 * 3, 9);
      }),
    );
  });

  it("has a bubble of 1/v with v chunks a stage", () => {
    const plain = seconds({ stages: 4, microBatches: 8, layersOfVirtualStage: new Array<number>(4).fill(4) });
    const interleaved = seconds({ stages: 4, chunks: 4, microBatches: 8, layersOfVirtualStage: new Array<number>(16).fill(1) });
    const ideal = 8 * 4 * 3;
    expect(plain - ideal).toBeCloseTo(3 * 4 * 3, 9);
    expect(interleaved - ideal).toBeCloseTo((plain - ideal) / 4, 9);
  });

  it("hides gathers of the next layer behind this one, but not the first", () => {
    const layer = { ...bare.layer, gatherSeconds: 0.5, scatterSeconds: 0.5 };
    const head = { ...nothing, backwardSeconds: 1, gatherSeconds: 0.5 };
    const exposed = seconds({ layer, head, microBatches: 1 });
    expect(exposed).toBeCloseTo(8 * 3 + 1 + 8 * 0.5 * 3 + 0.5, 9);
    const hidden = seconds({ layer, head, microBatches: 1, overlap: { forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" } });
    // The first gather of the forward pass and the last scatter have nothing to hide behind.
    expect(hidden).toBeCloseTo(8 * 3 + 1 + 0.5 + 0.5, 9);
  });

  it("is bounded by the wire when communication is longer than computation", () => {
    const layer = { ...bare.layer, gatherSeconds: 3 };
    const hidden = seconds({ layer, microBatches: 1, overlap: { forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" } });
    expect(hidden).toBeGreaterThanOrEqual(8 * 2 * 3);
    expect(hidden).toBeLessThan(8 * 2 * 3 + 8 * 3);
  });
});

describe("a plan on the shipped profile", () => {
  const job = resolveJob({ name: "sim", model: "llama-7b", sequenceLengthTokens: 8192, globalBatchTokens: 4 * 1024 * 1024, precision: "bf16-grad16", cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" } });
  const profile = shippedProfile("a800-128");
  const plan = (factors: Partial<Plan>): Plan => ({
    microBatchSize: 1, microBatches: 4, recompute: false, pipelineParallel: 1, dataParallel: 128, tensorParallel: 1, sequenceParallel: 1,
    parameterSharding: 1, gradientSharding: 1, optimizerStateSharding: 128, forwardOverlap: "none", backwardOverlap: "none", ...factors,
  });

  it("equals the closed form where nothing overlaps and there is one stage", () => {
    const costs = new CostModel(job, profile);
    for (const each of [plan({}), plan({ parameterSharding: 8, optimizerStateSharding: 16 }), plan({ dataParallel: 32, microBatches: 16, sequenceParallel: 4, recompute: true, parameterSharding: 4, optimizerStateSharding: 32, gradientSharding: 32 })]) {
      expect(simulateStep(costs, each).stepTimeSeconds / costs.predict(each).stepTimeSeconds).toBeCloseTo(1, 9);
    }
  });

  it("draws every stage in a trace whose events fit into the step", () => {
    const costs = new CostModel(job, profile);
    const each = plan({ pipelineParallel: 4, dataParallel: 32, microBatches: 16, optimizerStateSharding: 32 });
    const { stepTimeSeconds, spans, computeShare } = simulateStep(costs, each);
    const trace = toTrace(spans, 32);
    expect(new Set(trace.traceEvents.map(({ pid }) => pid))).toEqual(new Set([0, 32, 64, 96]));
    for (const event of trace.traceEvents) if (event.ph === "X") expect(event.ts + event.dur).toBeLessThanOrEqual(stepTimeSeconds * 1e6 * (1 + 1e-12));
    expect(computeShare).toBeGreaterThan(0.5);
    expect(computeShare).toBeLessThanOrEqual(1);
  });

  it("is laid over every measured step, in processes of its own", () => {
    const measured = [
      { ph: "M", name: "process_name", pid: 1, args: { name: "rank 1" } },
      { ph: "X", name: "linear forward qkv", pid: 1, tid: 1, ts: 5, dur: 2 },
    ];
    const simulated = toTrace(runLanes(stepProgram(bare), 1), 1);
    const events = simulated.traceEvents.filter(({ ph }) => ph === "X").length;
    const both = overlayTraces(measured, simulated, [5, 50]);
    expect(both.traceEvents.slice(0, 2)).toEqual(measured);
    const own = both.traceEvents.slice(2);
    expect(new Set(own.map(({ pid }) => pid))).toEqual(new Set([2]));
    expect(own.filter(({ ph }) => ph === "X")).toHaveLength(2 * events);
    expect(Math.min(...own.flatMap((event) => (event.ph === "X" ? [event.ts ?? NaN] : [])))).toBe(5);
    expect(own.filter((event) => event.ph === "X" && (event.ts ?? 0) >= 50).length).toBeGreaterThanOrEqual(events);
  });
});
