import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TrainerConfig } from "@internevo/contracts";
import { buildMesh } from "@internevo/plan";
import { afterEach, beforeEach, expect, it } from "vitest";
import { measureRuntime } from "../src/runtime.ts";
import { launchRanks, trainerIn } from "@internevo/launcher";

/** Plans count this much more at most than a start takes. */
const MAPPED_PAGES_BYTES = 1 << 20;
const trainer = trainerIn(join(import.meta.dirname, "..", "..", "..", "native", "dist"));
let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-runtime-"));
});
afterEach(() => rm(directory, { recursive: true }));

it("is enough for what trainers of other plans and models take beside their arena", async () => {
  const place = {
    ranks: 2,
    threadsPerRank: 1,
    launcher: "local" as const,
    runDirectory: join(directory, "run"),
  };
  const measured = await measureRuntime({ ...place, trainer, cluster: {} });
  if (measured.status !== "measured") throw new Error(JSON.stringify(measured));
  const file = join(directory, "run", "config.json");
  const base = JSON.parse(await readFile(file, "utf8")) as TrainerConfig;
  for (const split of [
    { sequenceParallel: 2 },
    { pipelineParallel: 2 },
    { sequenceParallel: 2, tensorParallel: 2 },
  ]) {
    const {
      forwardOverlap: _forward,
      backwardOverlap: _backward,
      ...plan
    } = { ...base.plan, dataParallel: 1, parameterSharding: 1, microBatches: 2, ...split };
    const config: TrainerConfig = {
      ...base,
      model: { ...base.model, layers: 4, hiddenSize: 128, ffnHiddenSize: 256 },
      plan,
      mesh: buildMesh({ ...plan, forwardOverlap: "none", backwardOverlap: "none" }),
    };
    let runtime = 0;
    const outcome = await launchRanks({
      ...place,
      program: trainer,
      config,
      onEvent: (event) => void (event.event === "started" && (runtime = event.memory["runtime"] ?? 0)),
    });
    expect(outcome.status).toBe("completed");
    expect(measured.bytes).toBeGreaterThanOrEqual(runtime);
    expect(measured.bytes - runtime).toBeLessThan(MAPPED_PAGES_BYTES);
  }
}, 60_000);
