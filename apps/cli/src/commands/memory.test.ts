import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import type { MemoryMap } from "@internevo/contracts";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { linesOf } from "../memory/regions.ts";
import { StepClock } from "../memory/step-clock.ts";
import { run } from "../run.ts";

const JOB = new URL("../../../../examples/quickstart.yaml", import.meta.url).pathname;
const PLANS = [
  "b2 n4 a0 pp1 dp1 tp1 sp1 ps1 gs1 oss1",
  "b1 n4 a1 pp2 dp1 tp1 sp1 ps1 gs1 oss1",
  "b1 n4 a0 pp1 dp1 tp1 sp2 ps2 gs1 oss1 ovinter-layer/intra-layer",
  "b1 n4 a0 pp1 dp1 tp2 sp2 ps1 gs1 oss1",
];

async function cli(...args: string[]): Promise<{ status: number; stdout: string; stderr: string }> {
  let stdout = "";
  let stderr = "";
  const into = (append: (text: string) => void) => new Writable({ write: (chunk: Buffer, _encoding, done) => (append(chunk.toString()), done()) });
  const status = await run(args, { stdout: into((text) => (stdout += text)), stderr: into((text) => (stderr += text)), env: { ...process.env, NO_COLOR: "1" } });
  return { status, stdout, stderr };
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
    const { status, stdout, stderr } = await cli("memory", JOB, "--plan", PLANS[1] as string, "--rank", "0", "--svg", svg);
    expect(status).toBe(0);
    expect(stderr).toContain(svg);
    expect(stdout).toMatch(/rank 0, stage 0: 2 layers/);
    for (const line of ["parameters", "optimizer states", "activations", "layer workspace", "pipeline buffers"]) expect(stdout).toContain(line);
    const picture = readFileSync(svg, "utf8");
    for (const label of ["parameters", "optimizer states", "F0", "B3", "update"]) expect(picture).toContain(`>${label}<`);
  });

  it("refuses what it cannot show by field, value and remedy", async () => {
    const rank = await cli("memory", JOB, "--plan", PLANS[1] as string, "--rank", "2");
    expect(rank.status).toBe(2);
    expect(rank.stderr).toMatch(/--rank \(is 2\)[\s\S]*give a rank from 0 to 1/);
    const plan = await cli("memory", JOB, "--plan", "b1 n4 a0 pp1 dp2 tp1 sp1 ps1 gs2 oss1");
    expect(plan.status).toBe(2);
    expect(plan.stderr).toMatch(/plan\.gradientSharding \(is 2\)[\s\S]*→ use 1/);
  });
});
