import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { cli } from "../../test/in-process.ts";

const JOB = new URL("../../../../examples/paper/7b-32k.yaml", import.meta.url).pathname;
const PLAN = "b1 n8 a0 pp4 dp16 tp1 sp2 ps4 gs1 oss1 ovinter-layer/block";
const directory = mkdtempSync(join(tmpdir(), "internevo-simulate-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

interface Event {
  ph: string;
  name: string;
  pid: number;
  ts: number;
  dur: number;
}
const eventsOf = (path: string): Event[] =>
  (JSON.parse(readFileSync(path, "utf8")) as { traceEvents: Event[] }).traceEvents;

it("simulates a step of a plan, says what every stage does with it, and writes its timeline", async () => {
  const out = join(directory, "step.json");
  const text = await cli("simulate", JOB, PLAN, "--out", out);
  expect(text.status).toBe(0);
  expect(text.stdout).toMatch(/ simulated; .* by the formula that plans are ranked with \([+−±]\d\.\d%\)/);
  const rows = text.stdout.trimEnd().split("\n").slice(-4);
  // Every share is of the step: together they are all of it.
  for (const [stage, row] of rows.entries()) {
    const [number, computes, stands, idle] = row
      .trim()
      .split(/\s+/)
      .map((each) => Number.parseFloat(each)) as [number, number, number, number];
    expect(number).toBe(stage);
    expect(Math.abs(computes + stands + idle - 100)).toBeLessThan(0.25);
  }
  const answer = JSON.parse((await cli("--json", "simulate", JOB, PLAN)).stdout) as {
    simulatedSeconds: number;
    predictedSeconds: number;
    stages: unknown[];
  };
  expect(answer.stages).toHaveLength(4);
  expect(Math.abs(answer.simulatedSeconds / answer.predictedSeconds - 1)).toBeLessThan(0.1);
  const events = eventsOf(out).filter(({ ph }) => ph === "X");
  expect(new Set(events.map(({ pid }) => pid))).toEqual(new Set([0, 32, 64, 96]));
  expect(Math.max(...events.map(({ ts, dur }) => ts + dur)) / 1e6).toBeCloseTo(answer.simulatedSeconds, 9);
});

it("lays the step over those that a job measured", async () => {
  const [measured, out] = [join(directory, "measured.json"), join(directory, "both.json")];
  const event = (name: string, ts: number, dur: number) => ({
    ph: "X",
    name,
    cat: "compute",
    pid: 0,
    tid: 1,
    ts,
    dur,
    args: {},
  });
  const norm = "all-reduce loss and gradient norm";
  writeFileSync(
    measured,
    JSON.stringify({
      traceEvents: [
        event(norm, 0, 10),
        event("optimizer", 10, 5),
        event("embedding", 20, 5),
        event(norm, 90, 10),
        event("optimizer", 100, 5),
        event(norm, 190, 10),
      ],
    }),
  );
  expect((await cli("simulate", JOB, PLAN, "--out", out, "--over", measured)).status).toBe(0);
  const both = eventsOf(out);
  expect(both.slice(0, 6).map(({ name }) => name)).toEqual([
    norm,
    "optimizer",
    "embedding",
    norm,
    "optimizer",
    norm,
  ]);
  const simulated = both.slice(6).filter(({ ph }) => ph === "X");
  expect(Math.min(...simulated.map(({ ts }) => ts))).toBe(15);
  expect(simulated.length % 2).toBe(0);
  expect(simulated.filter(({ ts }) => ts >= 105).length).toBeGreaterThanOrEqual(simulated.length / 2);
});

it("refuses what it cannot do before it does anything", async () => {
  const empty = join(directory, "empty.json");
  writeFileSync(empty, JSON.stringify({ traceEvents: [] }));
  const refused = async (...args: string[]): Promise<string> => {
    const { status, stdout, stderr } = await cli("simulate", JOB, ...args);
    expect(status).toBe(2);
    expect(stdout).toBe("");
    return stderr;
  };
  expect(await refused("b1 n4 a0 pp4 dp16 tp1 sp2 ps4 gs1 oss1")).toMatch(
    /batch-not-divisible: .* 64 sequences, the step has 128[\s\S]*why-not/,
  );
  expect(await refused(PLAN, "--over", empty)).toMatch(/--over needs --out/);
  expect(await refused(PLAN, "--over", empty, "--out", join(directory, "x.json"))).toMatch(
    /has no whole step/,
  );
  expect(await refused(PLAN, "--over", JOB, "--out", join(directory, "x.json"))).toMatch(/is not JSON/);
  expect(
    await refused(PLAN, "--over", join(directory, "nothing.json"), "--out", join(directory, "x.json")),
  ).toMatch(/does not exist/);
});
