import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { afterAll, describe, expect, it } from "vitest";
import { run } from "../run.ts";

const JOB = new URL("../../../../examples/paper/7b-32k.yaml", import.meta.url).pathname;
const PLAN = "b1 n4 a1 pp1 dp32 tp1 sp4 ps8 gs1 oss1 ovinter-layer/intra-layer";
const folder = mkdtempSync(join(tmpdir(), "internevo-frameworks-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function cli(...args: string[]): Promise<{ status: number; stdout: string; stderr: string }> {
  let stdout = "";
  let stderr = "";
  const into = (append: (text: string) => void) => new Writable({ write: (chunk: Buffer, _encoding, done) => (append(chunk.toString()), done()) });
  const status = await run(args, { stdout: into((text) => (stdout += text)), stderr: into((text) => (stderr += text)), env: { NO_COLOR: "1" } });
  return { status, stdout, stderr };
}

describe("export and import", () => {
  it.each([["internevo", "config.py"], ["megatron", "pretrain.sh"], ["deepspeed", "pretrain.sh"], ["torchtitan", "train.toml"]] as const)("%s: what is exported is imported, and judged as the planner judges that plan", async (framework, first) => {
    const out = join(folder, framework);
    const exported = await cli("--json", "export", JOB, "--framework", framework, "--plan", PLAN, "--out", `${out}/`);
    expect(exported.status, exported.stderr).toBe(0);
    const { plan } = JSON.parse(exported.stdout) as { plan: unknown };
    const { status, stdout, stderr } = await cli("--json", "import", join(out, first), "--framework", framework, "--memory", "80GB", "--out", join(out, "job.yaml"));
    expect(status, stderr).toBe(0);
    const answer = JSON.parse(stdout) as { imported: { plan: unknown }; planning: { located: { feasible: boolean; predicted: { stepTimeSeconds: number } } } };
    expect(answer.imported.plan).toEqual(plan);
    expect(answer.planning.located.feasible).toBe(true);
    expect(answer.planning.located.predicted.stepTimeSeconds).toBeGreaterThan(0);
    // The job that was written is one that plans.
    expect((await cli("validate", join(out, "job.yaml"))).status).toBe(0);
  });

  it("shows what is not expressible, and how far the best plan is ahead", async () => {
    const shown = await cli("export", JOB, "--framework", "deepspeed", "--plan", "b1 n4 a0 pp1 dp32 tp1 sp4 ps8 gs1 oss4");
    expect(shown.stdout).toMatch(/==> pretrain.sh <==[\s\S]*--ds-sequence-parallel-size 4[\s\S]*==> ds_config.json <==[\s\S]*"zero_hpz_partition_size": 8/);
    expect(shown.stderr).toMatch(/not expressible: plan.optimizerStateSharding 4, written as 16: /);
    const judged = await cli("import", join(folder, "megatron", "pretrain.sh"), "--framework", "megatron");
    expect(judged.stdout).toMatch(/feasible: rank \d+ of \d+ plans: .* a step[\s\S]*the best plan, [\d.]+% faster: b/);
    expect(judged.stdout).toContain(PLAN);
  });

  it("overwrites nothing, and says what it cannot read", async () => {
    const before = readdirSync(join(folder, "megatron"));
    const again = await cli("export", JOB, "--framework", "megatron", "--plan", PLAN, "--out", join(folder, "megatron", "pretrain.sh"));
    expect([again.status, readdirSync(join(folder, "megatron"))]).toEqual([2, before]);
    expect(again.stderr).toMatch(/exists already/);
    const wrong = await cli("import", join(folder, "torchtitan", "train.toml"), "--framework", "megatron");
    expect(wrong.status).toBe(2);
    expect((await cli("import", join(folder, "nothing"), "--framework", "megatron")).stderr).toMatch(/does not exist/);
    expect((await cli("import", JOB, "--framework", "horovod")).status).toBe(2);
    expect(readFileSync(join(folder, "torchtitan", "train.toml"), "utf8")).toContain("context_parallel_degree = 4");
  });
});
