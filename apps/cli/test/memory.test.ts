import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { MemoryMap } from "@internevo/contracts";
import { formatBytes, planLabel, type Plan } from "@internevo/domain";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { linesOf } from "../src/memory/regions.ts";
import { StepClock } from "@internevo/simulator";
import { cliIn } from "./in-process.ts";

const JOB = new URL("../../../examples/quickstart.yaml", import.meta.url).pathname;
const PLANS = [
  "b2 n4 a0 pp1 dp2 tp1 sp1 ps1 gs1 oss1",
  "b4 n4 a1 pp2 dp1 tp1 sp1 ps1 gs1 oss1",
  "b4 n4 a0 pp1 dp1 tp1 sp2 ps2 gs1 oss1 ovinter-layer/intra-layer",
  "b4 n4 a0 pp1 dp1 tp2 sp2 ps1 gs1 oss1",
];

/** All that is said of jobs that do not say that their ranks are GPUs. */
const OF_GPUS =
  /^warning: profile a800-128 is of GPUs, and the job does not say cluster\.device: cuda: [^\n]* NCCL takes for itself\n$/;

const cli = cliIn(process.env);

interface Document {
  readonly memory: Record<string, number>;
  readonly memoryMap: MemoryMap;
  readonly plannedPeakBytes: number;
  readonly totals: {
    readonly arenaBytes: number;
    readonly programBytes: number | null;
    readonly checkpointStagingBytes: number;
    readonly totalBytes: number;
    readonly totalAsPlannedBytes: number;
  };
}

async function mapOf(plan: string): Promise<MemoryMap> {
  const { status, stdout, stderr } = await cli("--json", "memory", JOB, "--plan", plan);
  expect(stderr).toBe("");
  expect(status).toBe(0);
  return (JSON.parse(stdout) as { memoryMap: MemoryMap }).memoryMap;
}

describe("memory", () => {
  let directory = "";
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), "internevo-memory-test-"));
  });
  afterAll(() => rmSync(directory, { recursive: true }));

  it.each(PLANS)("shows no byte in use by two regions at once: %s", async (plan) => {
    const map = await mapOf(plan);
    const regions = linesOf(map, new StepClock(map)).flatMap((line) => line.regions);
    expect(regions.length).toBeGreaterThan(10);
    expect(regions.every(({ offset, bytes }) => offset >= 0 && offset + bytes <= map.arenaBytes)).toBe(true);
    for (const [index, one] of regions.entries()) {
      for (const other of regions.slice(index + 1)) {
        if (other.offset >= one.offset + one.bytes || one.offset >= other.offset + other.bytes) continue;
        const both = one.spans.filter((a) => other.spans.some((b) => a.from < b.to && b.from < a.to));
        expect(both, `${one.name} and ${other.name}`).toEqual([]);
        expect(one.sharesWith).toContain(other.name);
      }
    }
  });

  it("lists lines with sizes and use, and draws them", async () => {
    const svg = join(directory, "memory.svg");
    const { status, stdout, stderr } = await cli(
      "memory",
      JOB,
      "--plan",
      PLANS[1] as string,
      "--rank",
      "0",
      "--svg",
      svg,
    );
    expect(status).toBe(0);
    expect(stderr).toContain(svg);
    expect(stdout).toMatch(/rank 0, stage 0: 2 layers/);
    for (const line of [
      "Parameters",
      "Optimizer states",
      "Activations",
      "Layer workspace",
      "Pipeline buffers",
    ])
      expect(stdout).toContain(line);
    const picture = readFileSync(svg, "utf8");
    for (const label of ["Parameters", "Optimizer states", "F0", "B3", "update"])
      expect(picture).toContain(`>${label}<`);
    // Words only: no name of the program's own, such as reduceWorkspace.
    const titles = [...picture.matchAll(/<title>([^<]*)<\/title>/g)].map(([, title]) => title ?? "");
    expect(titles.length).toBeGreaterThan(5);
    for (const text of [stdout, ...titles]) expect(text).not.toMatch(/\b[a-z]+[A-Z]|layers\.\d/);
  });

  it("counts the program itself as the profile has it, so that its total is the planner's with the staging", async () => {
    const roomy = join(directory, "roomy.yaml");
    const written = readFileSync(JOB, "utf8").replace("1GiB", "8GiB");
    for (const [index, plan] of PLANS.entries()) {
      // A timeline lies beside the arena, and counts.
      writeFileSync(roomy, index % 2 === 0 ? written : `${written}\ntimeline: true\n`);
      const asked = ["--plan", plan, "--profile", "a800-128"];
      const { memory, totals, plannedPeakBytes } = JSON.parse(
        (await cli("--json", "memory", roomy, ...asked)).stdout,
      ) as Document;
      const { predicted } = JSON.parse(
        (await cli("--json", "why-not", roomy, plan, "--profile", "a800-128")).stdout,
      ) as { predicted: { peakMemoryBytes: number; memory: Record<string, number> } };
      expect(totals.programBytes).toBe(predicted.memory["runtime"]);
      expect(memory["runtime"]).toBe(predicted.memory["runtime"]);
      expect(totals.totalAsPlannedBytes).toBe(predicted.peakMemoryBytes);
      expect(totals.checkpointStagingBytes).toBeGreaterThan(0);
      expect(totals.totalBytes).toBe(totals.totalAsPlannedBytes + totals.checkpointStagingBytes);
      expect(plannedPeakBytes).toBe(totals.totalBytes);
    }
    writeFileSync(roomy, written);
    const { stdout } = await cli("memory", roomy, "--plan", PLANS[0] as string, "--profile", "a800-128");
    expect(stdout).toMatch(
      /[\d.]+ MiB planned by offset in \d+ pieces; every rank: 4 layers\nwith 2\.00 GiB of the program itself, as the profile .* has it, 2\.04 GiB; `internevo plan` counts 2\.03 GiB, without the [\d.]+ MiB of checkpoint staging/,
    );
  });

  it("says that the program itself is not counted where no profile says what it takes", async () => {
    const { stdout } = await cli("memory", JOB, "--plan", PLANS[0] as string);
    expect(stdout).toMatch(
      /\na rank needs more than these [\d.]+ MiB: the program itself is not counted, because no profile/,
    );
    const { memory, memoryMap, totals } = JSON.parse(
      (await cli("--json", "memory", JOB, "--plan", PLANS[0] as string)).stdout,
    ) as Document;
    expect(memory).not.toHaveProperty("runtime");
    expect(totals).toMatchObject({ arenaBytes: memoryMap.arenaBytes, programBytes: null });
    expect(totals.totalBytes).toBe(memoryMap.arenaBytes);
  });

  it("shows a job of the paper as it is written, with the bytes that the planner counts", async () => {
    const paper = new URL("../../../examples/paper/7b-32k.yaml", import.meta.url).pathname;
    const plan = "b1 n8 a0 pp2 dp16 tp1 sp4 ps1 gs32 oss32";
    const { status, stdout, stderr } = await cli("memory", paper, "--plan", plan);
    expect(stderr).toMatch(OF_GPUS);
    expect(status).toBe(0);
    expect(stdout).toMatch(/[\d.]+ GiB planned by offset in [\d,]+ pieces; stage \d, the fullest: 16 layers/);
    const { memory, totals } = JSON.parse(
      (await cli("--json", "memory", paper, "--plan", plan)).stdout,
    ) as Document;
    // Sums of gradients over ranks are in 2 bytes, as the parameters are.
    expect(memory["gradients"]).toBe((memory["parameters"] as number) / 32);
    const planned = JSON.parse((await cli("--json", "why-not", paper, plan)).stdout) as {
      predicted: { peakMemoryBytes: number };
    };
    expect(totals.totalAsPlannedBytes).toBe(planned.predicted.peakMemoryBytes);
    const last = JSON.parse(
      (await cli("--json", "memory", paper, "--plan", plan, "--rank", "127")).stdout,
    ) as Document;
    expect(last.memory["logits"]).toBeGreaterThan(memory["logits"] as number);
    const wrong = await cli("memory", paper, "--plan", "b1 n8 a0 pp2 dp16 tp1 sp4 ps3 gs1 oss1");
    expect([wrong.status, wrong.stderr]).toEqual([
      2,
      expect.stringMatching(/parameterSharding 3 does not divide/),
    ]);
    const large = await cli("memory", paper, "--plan", "b32 n1 a0 pp1 dp4 tp1 sp32 ps1 gs1 oss1");
    expect([large.status, large.stderr]).toEqual([3, expect.stringMatching(/no plan fits|does not fit/)]);
  });

  it("decides what fits as the planner does, with the program itself, by the same bytes", async () => {
    const paper = new URL("../../../examples/paper/13b-16k.yaml", import.meta.url).pathname;
    const { candidates } = JSON.parse((await cli("--json", "plan", paper)).stdout) as {
      candidates: { plan: Plan }[];
    };
    const label = planLabel(candidates[0]!.plan);
    const fits = await cli("memory", paper, "--plan", label);
    expect([fits.status, fits.stderr]).toEqual([0, expect.stringMatching(OF_GPUS)]);
    // It fits by a hair, and so without what would be convenient.
    expect(fits.stdout).toMatch(/counts the same; without room for their staging, checkpoints are written/);
    const over = "b1 n2 a0 pp1 dp128 tp1 sp1 ps32 gs4 oss4 ovblock/block k4";
    const whyNot = JSON.parse((await cli("--json", "why-not", paper, over)).stdout) as {
      predicted: { peakMemoryBytes: number };
    };
    const large = await cli("--json", "memory", paper, "--plan", over);
    expect(large.status).toBe(3);
    // What it needs is shown all the same, and is what the planner says.
    const { totals } = JSON.parse(large.stdout) as Document;
    expect(totals.totalAsPlannedBytes).toBe(whyNot.predicted.peakMemoryBytes);
    expect(large.stderr).toMatch(/does not fit: it needs 76\.1 GiB a rank, 1\.60 GiB more than a GPU has/);
    const kept = await cli("memory", paper, "--plan", label, "--headroom", "5%");
    expect([kept.status, kept.stderr]).toEqual([
      3,
      expect.stringMatching(/more than the 70\.8 GiB that its headroom leaves of a GPU/),
    ]);
  }, 60_000);

  it("says what the planner counts of the fullest rank where another one is shown", async () => {
    const example = new URL("../../../examples/llama-7b-32k.yaml", import.meta.url).pathname;
    const plan = "b1 n8 a0 pp2 dp16 tp4 sp4 ps1 gs1 oss16 v2";
    const planned = JSON.parse((await cli("--json", "why-not", example, plan)).stdout) as {
      predicted: { peakMemoryBytes: number };
    };
    const fullest = formatBytes(planned.predicted.peakMemoryBytes);
    const first = await cli("memory", example, "--plan", plan, "--rank", "0");
    expect(first.stdout).toContain("`internevo plan` counts the same\n");
    const last = await cli("memory", example, "--plan", plan, "--rank", "127");
    expect(last.stdout).not.toContain("counts the same");
    expect(last.stdout).toContain(
      `\`internevo plan\` counts the fullest rank, which is of stage 0: ${fullest}\n`,
    );
  });

  it("has shares of a whole GPU in why-not, whatever headroom is kept of it", async () => {
    const example = new URL("../../../examples/llama-7b-32k.yaml", import.meta.url).pathname;
    const plan = "b1 n8 a0 pp2 dp16 tp4 sp4 ps1 gs1 oss16 v2";
    const shares = async (...more: string[]): Promise<string[]> =>
      (await cli("why-not", example, plan, ...more)).stdout.match(/[\d.]+%$/gm) ?? [];
    const whole = await shares();
    expect(whole.length).toBeGreaterThan(5);
    expect(await shares("--headroom", "20%")).toEqual(whole);
  });

  it("says that nothing fits a job without plans: status 3, and what binds", async () => {
    const { status, stderr } = await cli("memory", JOB, "--profile", "a800-128");
    expect(stderr).toMatch(
      /no plan fits 1\.00 GiB a GPU[\s\S]*the least that any plan needs is 2\.\d+ GiB, of which runtime 2\.00 GiB/,
    );
    expect(status).toBe(3);
  });

  it("refuses what it cannot show by field, value and remedy", async () => {
    const rank = await cli("memory", JOB, "--plan", PLANS[1] as string, "--rank", "2");
    expect(rank.status).toBe(2);
    expect(rank.stderr).toMatch(/--rank \(is 2\)[\s\S]*give a rank from 0 to 1/);
    const plan = await cli("memory", JOB, "--plan", "b1 n8 a0 pp1 dp2 tp1 sp1 ps1 gs2 oss1");
    expect(plan.status).toBe(2);
    expect(plan.stderr).toMatch(
      /--plan \(is "?b1 n8 [^)]*\): gradient-sharding-not-allowed[\s\S]*smallest change: gradientSharding 2 → 1/,
    );
  });
});
