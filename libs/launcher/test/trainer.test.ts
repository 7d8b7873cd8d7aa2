import { aPlan } from "@internevo/test-kit";
import { spawnSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { TrainerConfigSchema, type TrainerConfig, type TrainerEvent } from "@internevo/contracts";
import { resolveJob, validate, type SingleData, type Plan } from "@internevo/domain";
import { assertInitialWeights, prepareData, prepareDataset, type TokenData } from "@internevo/data";
import { buildMesh } from "@internevo/plan";
import { launchRanks, trainerConfig, trainerIn, type LaunchOptions, type Trainer } from "../src/index.ts";
import { processesOfRun } from "../src/process/processes.ts";
import { readRunRecord } from "../src/process/run-record.ts";
import { writeInternevo, writeMegatron, writeOwn } from "@internevo/test-kit/data-writers";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-trainer-"));
});
afterEach(() => rm(directory, { recursive: true, force: true }));

const trainer = trainerIn(
  process.env["INTERNEVO_NATIVE_DIRECTORY"] ?? join(import.meta.dirname, "..", "..", "..", "native", "dist"),
);
const spec = resolveJob({
  name: "launched",
  model: {
    name: "tiny",
    hiddenSize: 64,
    layers: 2,
    heads: 4,
    kvHeads: 2,
    ffnHiddenSize: 128,
    vocabularySize: 256,
  },
  sequenceLengthTokens: 64,
  globalBatchTokens: 512,
  precision: "fp32",
  cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" },
});
const plan = aPlan({ microBatches: 4, dataParallel: 2, parameterSharding: 2 });

async function configuration(over: Partial<TrainerConfig> = {}): Promise<TrainerConfig> {
  const dataset = await prepareDataset(
    { format: "text", paths: ["/usr/share/common-licenses/GPL-3"] },
    directory,
    { vocabularySize: 256, sequenceLengthTokens: 64 },
  );
  return {
    ...trainerConfig({
      spec,
      plan,
      mesh: buildMesh(plan),
      dataset,
      steps: 6,
      checkpoint: null,
      threadsPerRank: 1,
    }),
    ...over,
  };
}

async function launch(config: TrainerConfig, over: Partial<LaunchOptions<Trainer>> = {}) {
  const events: TrainerEvent[] = [];
  const outcome = await launchRanks<Trainer>({
    program: trainer,
    config,
    ranks: 2,
    threadsPerRank: 1,
    launcher: "local",
    runDirectory: join(directory, "run"),
    onEvent: (event) => events.push(event),
    ...over,
  });
  return { outcome, events, losses: events.flatMap((event) => (event.event === "step" ? [event.loss] : [])) };
}

/** Addresses at which processes of the run wait for connections, and which of them are ranks'. */
function listening(): { readonly rank: boolean; readonly address: string }[] {
  const { marker = "" } = readRunRecord(join(directory, "run")) ?? {};
  const pids = new Set(processesOfRun(marker).map(({ pid }) => pid));
  const said = spawnSync("ss", ["-ltnpH"], { encoding: "utf8" }).stdout;
  return said.split("\n").flatMap((line) => {
    const [, , , address = ""] = line.split(/\s+/);
    const owner = Number(/,pid=(\d+)/.exec(line)?.[1]);
    // Ranks inherit what mpirun has open.
    return pids.has(owner) ? [{ rank: !line.includes('("mpirun",'), address }] : [];
  });
}

describe("the trainer, launched", () => {
  it("has ranks that wait for nobody from elsewhere, where they share a machine", async () => {
    let looked: ReturnType<typeof listening> | undefined;
    const { outcome } = await launch(await configuration(), {
      onEvent: ({ event }) => {
        if (event === "step") looked ??= listening();
      },
    });
    expect(outcome).toMatchObject({ status: "completed" });
    // mpirun's own is seen, so that ranks' would be.
    expect(looked?.some(({ rank }) => !rank)).toBe(true);
    expect(looked?.filter(({ rank, address }) => rank && !address.startsWith("127.0.0.1:"))).toEqual([]);
  });

  it("reads the token file, trains and says so by the protocol", async () => {
    const { outcome, events, losses } = await launch(await configuration());
    expect(outcome).toMatchObject({ status: "completed", exitCode: 0 });
    expect(events.map((event) => event.event)).toEqual([
      "started",
      "step",
      "step",
      "step",
      "step",
      "step",
      "step",
      "hosts",
      "done",
    ]);
    expect(events[0]).toMatchObject({ worldSize: 2, resumedFromStep: 0 });
    expect(losses[0]).toBeGreaterThan(5);
    expect(losses.at(-1)).toBeLessThan(losses[0] as number);
  });

  it("ends in order with a checkpoint when asked, and goes on from it with the same losses", async () => {
    const { losses: undisturbed } = await launch(await configuration({ steps: 40 }));
    const config = await configuration({
      steps: 40,
      checkpoint: {
        directory: join(directory, "checkpoints"),
        everySteps: 1000,
        keepLast: 1,
        resume: "latest",
      },
    });
    const stop = new AbortController();
    const seen: number[] = [];
    const first = await launch(config, {
      signal: stop.signal,
      onEvent: (event) => {
        if (event.event === "step") seen.push(event.loss);
        if (seen.length === 5) stop.abort();
      },
    });
    expect(first.outcome).toMatchObject({ status: "stopped", graceful: true, exitCode: 75 });
    expect(await readdir(join(directory, "checkpoints"))).toEqual([`step-${seen.length}`]);
    const second = await launch(config);
    expect(second.outcome.status).toBe("completed");
    expect(second.events[0]).toMatchObject({ event: "started", resumedFromStep: seen.length });
    expect([...seen, ...second.losses]).toEqual(undisturbed);
  });

  it("names what does not fit, before training", async () => {
    const { outcome, losses } = await launch(await configuration({ memoryLimitBytes: 1 << 20 }));
    expect(outcome).toMatchObject({ status: "failed", exitCode: 3, failure: { code: "out-of-memory" } });
    expect(losses).toEqual([]);
  });

  it("names data that is gone, and plans that it does not run", async () => {
    expect((await launch(await configuration({ data: { path: "/absent.tokens" } }))).outcome).toMatchObject({
      status: "failed",
      exitCode: 4,
      failure: { code: "data-invalid", message: expect.stringContaining("/absent.tokens") },
    });
    const { forwardOverlap: _f, backwardOverlap: _b, ...wanted } = plan;
    expect(
      (await launch(await configuration({ plan: { ...wanted, pipelineChunks: 2 } }))).outcome,
    ).toMatchObject({
      status: "failed",
      exitCode: 2,
      failure: { code: "plan-unsupported", message: expect.stringContaining("pipelineChunks 2") },
    });
  });

  it("trains on a mixture of text and of other formats, alike under every plan", async () => {
    const text = [...(await readFile("/usr/share/common-licenses/GPL-3"))];
    const data = {
      format: "mixture" as const,
      packing: "documents" as const,
      sources: [
        { format: "text" as const, paths: ["/usr/share/common-licenses/Apache-2.0"], weight: 2 },
        {
          format: "megatron" as const,
          path: await writeMegatron(join(directory, "mixed"), [text.slice(0, 3000)], { sequenceLength: 40 }),
          weight: 1,
        },
      ],
    };
    const cut = { vocabularySize: 256, sequenceLengthTokens: 64 };
    const dataset = await prepareData(data, directory, cut);
    const run = async (other: Plan): Promise<number[]> => {
      const config = trainerConfig({
        spec: { ...spec, data },
        plan: other,
        mesh: buildMesh(other),
        dataset,
        steps: 4,
        checkpoint: null,
        threadsPerRank: 1,
      });
      const { outcome, losses } = await launch(
        validate(TrainerConfigSchema, config, "plan-invalid", "the configuration"),
      );
      expect(outcome).toEqual(expect.objectContaining({ status: "completed" }));
      return losses;
    };
    const [one, other] = [
      await run(plan),
      await run(aPlan({ microBatches: 8, sequenceParallel: 2, optimizerStateSharding: 2 })),
    ];
    expect(one).toHaveLength(4);
    for (const [step, loss] of one.entries()) expect(other[step]).toBeCloseTo(loss, 5);
    const { path } = await prepareData(
      { format: "text", paths: data.sources[0]?.paths ?? [] },
      directory,
      cut,
    );
    const alone = await launch(await configuration({ data: { path }, steps: 4 }));
    expect(alone.losses[0]).not.toBe(one[0]);
  });

  it("reads packed documents of every format with the same losses, which are not those of unpacked ones, on a ring too", async () => {
    const text = [...(await readFile("/usr/share/common-licenses/GPL-3"))];
    const documents: number[][] = [];
    for (let first = 0; first < text.length; first += 11 + ((documents.length * 7) % 60))
      documents.push(text.slice(first, first + 11 + ((documents.length * 7) % 60)));
    const written: TokenData[] = [
      { format: "tokens", path: await writeOwn(join(directory, "own.bin"), documents) },
      {
        format: "megatron",
        path: await writeMegatron(join(directory, "megatron"), documents, { sequenceLength: 40 }),
      },
      { format: "internevo", path: await writeInternevo(join(directory, "internevo.bin"), documents) },
    ];
    const run = async (data: SingleData, other: Plan): Promise<number[]> => {
      const dataset = await prepareDataset(data, directory, {
        vocabularySize: 256,
        sequenceLengthTokens: 64,
      });
      const { outcome, losses } = await launch(
        trainerConfig({
          spec: { ...spec, data },
          plan: other,
          mesh: buildMesh(other),
          dataset,
          steps: 3,
          checkpoint: null,
          threadsPerRank: 1,
        }),
      );
      expect(outcome, JSON.stringify(data)).toMatchObject({ status: "completed" });
      return losses;
    };
    const [own, ...others] = written as [TokenData, ...TokenData[]];
    const packed = await run({ ...own, packing: "documents" }, plan);
    for (const data of others)
      expect(await run({ ...data, packing: "documents", maxDocumentsPerSequence: 64 }, plan)).toEqual(packed);
    expect(await run(own, plan)).not.toEqual(packed);
    const ring: Plan = { ...plan, dataParallel: 1, sequenceParallel: 2, contextParallel: 2, microBatches: 8 };
    for (const data of written) {
      const losses = await run({ ...data, packing: "documents" }, ring);
      expect(losses).toHaveLength(3);
      for (const [step, loss] of losses.entries()) expect(loss / (packed[step] as number)).toBeCloseTo(1, 5);
    }
  });

  it("begins with the weights of a checkpoint, records a timeline, and takes limits of the watchdog", async () => {
    const checkpoints = join(directory, "checkpoints");
    const { losses } = await launch(
      await configuration({
        steps: 20,
        checkpoint: { directory: checkpoints, everySteps: 20, keepLast: 1, resume: "none" },
      }),
    );
    const initialWeights = join(checkpoints, "step-20");
    await assertInitialWeights(initialWeights, spec.model);
    const dataset = await prepareDataset(
      { format: "text", paths: ["/usr/share/common-licenses/GPL-3"] },
      directory,
      { vocabularySize: 256, sequenceLengthTokens: 64 },
    );
    const path = join(directory, "timeline.json");
    const wanted = { ...spec, initialWeights, watchdog: { silenceSeconds: 10, beatSeconds: 1 } };
    const options = {
      spec: wanted,
      plan,
      mesh: buildMesh(plan),
      dataset,
      steps: 2,
      checkpoint: null,
      threadsPerRank: 1,
      timeline: { path, firstStep: 2, steps: 1 },
    };
    const config = validate(
      TrainerConfigSchema,
      trainerConfig({ ...options, loadWeights: true }),
      "plan-invalid",
      "the configuration",
    );
    const begun = await launch(config);
    expect(begun.outcome.status).toBe("completed");
    expect(begun.losses[0]).toBeLessThan((losses[0] as number) - 0.1);
    const events = (
      JSON.parse(await readFile(path, "utf8")) as { traceEvents: { ph: string; pid: number }[] }
    ).traceEvents;
    expect(new Set(events.filter(({ ph }) => ph === "X").map(({ pid }) => pid))).toEqual(new Set([0, 1]));
    expect(
      (await launch(trainerConfig({ ...options, spec: { ...wanted, watchdog: false } }))).losses[0],
    ).toBe(losses[0]);
  });

  it.each([
    ["a pipeline", { pipelineParallel: 2, dataParallel: 1, microBatches: 8, parameterSharding: 1 }],
    [
      "tensor ranks",
      { tensorParallel: 2, sequenceParallel: 2, dataParallel: 1, microBatches: 8, parameterSharding: 1 },
    ],
  ])("runs %s with the losses of data parallelism", async (_what, factors) => {
    const { losses } = await launch(await configuration());
    const other: Plan = { ...plan, ...factors };
    const { forwardOverlap: _f, backwardOverlap: _b, ...wanted } = other;
    const run = await launch(await configuration({ plan: wanted, mesh: buildMesh(other) }));
    expect(run.outcome).toMatchObject({ status: "completed", exitCode: 0 });
    for (const [step, loss] of run.losses.entries())
      expect(loss / (losses[step] as number)).toBeCloseTo(1, 5);
    expect(run.losses.length).toBe(losses.length);
  });
});
