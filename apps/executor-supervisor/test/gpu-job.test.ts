import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { getProfile, listTrials, storeGivenProfile } from "@internevo/store";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { planner } from "@internevo/planner";
import { profiler } from "@internevo/profiler";
import { trialRunner } from "@internevo/trial-runner";
import { executorSupervisor } from "../src/index.ts";

const built = (name: string): string =>
  fileURLToPath(new URL(`../../../native/build/tests/cuda/${name}`, import.meta.url));
const MODEL = {
  INTERNEVO_CUDA_LIBRARY: built("libinternevo-cuda-model.so"),
  INTERNEVO_NCCL_LIBRARY: built("libinternevo-nccl-model.so"),
  INTERNEVO_SHARE_GPU: "1",
};
const hasModel = existsSync(MODEL.INTERNEVO_CUDA_LIBRARY);
if (!hasModel)
  console.warn("The test of a job on the model of a device is skipped: INTERNEVO_CUDA=1 builds it");

/** What ranks see of the environment of the services. */
const seen = Object.fromEntries(Object.keys(MODEL).map((name) => [name, process.env[name]]));
const see = (environment: Readonly<Record<string, string | undefined>>): void => {
  for (const [name, value] of Object.entries(environment)) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
};

let world: World;
beforeAll(async () => {
  world = await createWorld();
  // On the model nothing of the times is true: few samples do.
  await world.start(profiler, { INTERNEVO_PROBE_SAMPLES: "2", INTERNEVO_PROBE_POINT_SECONDS: "0.02" });
  for (const service of [planner, trialRunner]) await world.start(service);
  await world.start(executorSupervisor);
});
afterEach(() => see(seen));
afterAll(() => world.close());

/** The model runs every thread of a kernel one after the other. */
const tiny = (over: Record<string, unknown> = {}) =>
  smallJob({
    model: { hiddenSize: 32, layers: 2, heads: 4, kvHeads: 2, ffnHiddenSize: 64, vocabularySize: 256 },
    sequenceLengthTokens: 32,
    globalBatchTokens: 128,
    steps: 8,
    checkpointing: { everySteps: 4, keepLast: 2 },
    trials: { count: 2, warmupSteps: 1, steps: 1, repeats: 0 },
    ...over,
  });
const job = (over: Record<string, unknown> = {}) => {
  const base = tiny();
  return { ...base, cluster: { ...(base["cluster"] as Record<string, unknown>), device: "cuda", ...over } };
};

describe("a job on GPUs", () => {
  it("fails in words where the library cannot be opened, whoever starts ranks first", async () => {
    see({ INTERNEVO_CUDA_LIBRARY: "/nowhere/libinternevo-cuda.so" });
    const failure = {
      code: "not-started",
      message: expect.stringMatching(/^device cuda: \/nowhere\/libinternevo-cuda\.so cannot be opened/),
      remedy: expect.stringContaining("without a GPU"),
    };
    const measured = await world.submit(job({ name: "measured" }));
    await world.untilState(measured, "failed", 60);
    expect((await world.job(measured)).failure).toMatchObject(failure);
    const profile = await storeGivenProfile(world.database.db, {
      ...world.profile,
      device: { ...world.profile.device, runtimeBytes: 64 * 2 ** 20 },
    });
    const planned = await world.submit(job({ profile }));
    await world.untilState(planned, "failed", 60);
    expect((await world.job(planned)).failure?.message).toContain(
      "device cuda: /nowhere/libinternevo-cuda.so cannot be opened",
    );
  }, 900_000);

  it.skipIf(!hasModel)(
    "is measured by the device's events, planned in its memory, tried, and trained to the losses of the CPU",
    async () => {
      see(MODEL);
      const id = await world.submit(job({ name: "gpus" }));
      await world.untilState(id, "succeeded", 500);
      const { profileId, spec } = await world.job(id);
      const record = await getProfile(world.database.db, profileId ?? "");
      expect(record?.clusterKey).toBe("local:gpus:1x2:cuda");
      // The trainer's timeline is of the device's events: every part of a micro-batch took some of its time.
      const slices = record?.profile.slices ?? [];
      expect(slices).not.toEqual([]);
      for (const { parts, shape } of slices) {
        const { forward, backward, forwardAttention, backwardAttention, embedding, head } = parts;
        for (const part of [...forward, ...backward, forwardAttention, backwardAttention, embedding, head])
          expect(part, JSON.stringify(shape)).toBeGreaterThan(0);
        if (shape.sequenceParallel > 1)
          expect(parts.forwardCommunication, JSON.stringify(shape)).toBeGreaterThan(0);
      }
      for (const { state, candidate, measured } of await listTrials(world.database.db, id)) {
        expect(state).toBe("succeeded");
        const { runtime: _planned, ...wanted } = candidate.predicted.memory;
        const { runtime: _measured, ...found } = measured?.memory ?? {};
        expect(found).toEqual(wanted);
      }
      const losses = await world.lossesOf(id);
      see(seen);
      const onCpu = await world.submit(
        tiny({ seed: spec.seed, trials: { count: 1, warmupSteps: 0, steps: 1, repeats: 0 } }),
      );
      await world.untilState(onCpu, "succeeded", 300);
      const reference = await world.lossesOf(onCpu);
      expect(losses).toHaveLength(spec.steps);
      for (const [index, loss] of losses.entries())
        expect(loss / (reference[index] as number), `step ${index + 1}`).toBeCloseTo(1, 5);
    },
    900_000,
  );
});
