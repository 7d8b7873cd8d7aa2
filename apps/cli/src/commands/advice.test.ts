import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { Writable } from "node:stream";
import { describe, expect, it } from "vitest";
import { axisValues } from "./advice.ts";
import { run } from "../run.ts";

const JOB = new URL("../../../../examples/paper/7b-32k.yaml", import.meta.url).pathname;

async function cli(...args: string[]): Promise<{ status: number; stdout: string; stderr: string }> {
  let stdout = "";
  let stderr = "";
  const into = (append: (text: string) => void) => new Writable({ write: (chunk: Buffer, _encoding, done) => (append(chunk.toString()), done()) });
  const status = await run(args, { stdout: into((text) => (stdout += text)), stderr: into((text) => (stderr += text)), env: { NO_COLOR: "1" } });
  return { status, stdout, stderr };
}

describe("advice", () => {
  it("says why a plan is rejected and what would make it feasible, as text and as JSON", async () => {
    const plan = "b2 n1 a0 pp1 dp64 tp1 sp2 ps1 gs1 oss1";
    const { status, stdout } = await cli("why-not", JOB, plan);
    expect(status).toBe(0);
    expect(stdout).toMatch(/rejected, memory-exceeded: needs .*GiB more than the 74.5 GiB of a GPU/);
    expect(stdout).toMatch(/smallest change that makes it feasible: /);
    const answer = JSON.parse((await cli("--json", "why-not", JOB, plan)).stdout) as { binding: { reason: string }; excessBytes: number };
    expect(answer.binding.reason).toBe("memory-exceeded");
    expect(answer.excessBytes).toBeGreaterThan(0);
  });

  it("takes a plan by its rank", async () => {
    expect((await cli("why-not", JOB, "1")).stdout).toMatch(/feasible: rank 1 of /);
    const missing = await cli("why-not", JOB, "0");
    expect(missing.status).toBe(2);
    expect(missing.stderr).toMatch(/there is no plan of rank 0/);
  });

  it("explains two plans", async () => {
    expect((await cli("explain", JOB, "1", "3")).stdout).toMatch(/TIME OF A STEP[\s\S]*MEMORY OF THE FULLEST RANK[\s\S]*A is [\d.]+% faster/);
  });

  it("answers what-if as CSV that other programs read", async () => {
    const { stdout } = await cli("what-if", JOB, "--axis", "sequence", "--values", "8k..32k", "--csv");
    const lines = stdout.trim().split("\n");
    expect(lines[0]).toMatch(/^sequence,tokensPerSecond,feasible,stepTimeSeconds,/);
    expect(lines.slice(1).map((line) => Number(line.split(",")[0]))).toEqual([8192, 16384, 32768]);
    for (const line of lines.slice(1)) expect(Number(line.split(",")[1])).toBeGreaterThan(0);
  });

  it("draws what-if: a dot for each plan, a cross where none fits", async () => {
    const file = join(mkdtempSync(join(tmpdir(), "internevo-what-if-")), "sweep.svg");
    const { stderr } = await cli("what-if", JOB, "--axis", "sequence", "--values", "16k,32k,16m", "--svg", file);
    expect(stderr).toContain(file);
    const svg = readFileSync(file, "utf8");
    expect(svg.match(/<circle /g)?.length).toBe(4);
    expect(svg.match(/class="none"/g)?.length).toBe(2);
    expect(svg).toMatch(/>16k<.*>32k<.*>16M</s);
    expect(svg).not.toMatch(/NaN|Infinity|undefined/);
    rmSync(dirname(file), { recursive: true });
    expect((await cli("what-if", JOB, "--largest-sequence", "--svg", file)).stderr).toMatch(/--svg .*has nothing to draw/);
  });

  it("needs one question, and says what a bad value is", async () => {
    const none = await cli("what-if", JOB);
    expect(none.status).toBe(2);
    expect(none.stderr).toMatch(/needs one question/);
    const bad = await cli("what-if", JOB, "--axis", "nodes", "--values", "4,x");
    expect(bad.status).toBe(2);
    expect(bad.stderr).toMatch(/"x" is no value of nodes/);
  });

  it("reads values", () => {
    expect(axisValues("sequence", "4k,5000,8k..32k")).toEqual([4096, 5000, 8192, 16384, 32768]);
    expect(axisValues("memory", "40GB,80GiB")).toEqual([40e9, 80 * 2 ** 30]);
    expect(axisValues("inter-node-bandwidth", "0.5,2")).toEqual([0.5, 2]);
    expect(() => axisValues("nodes", "-1")).toThrow(/"-1" is no value of nodes/);
  });
});
