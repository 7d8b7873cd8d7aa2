import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { cli } from "../../test/in-process.ts";

const JOB = new URL("../../../../examples/paper/7b-32k.yaml", import.meta.url).pathname;
const PLAN = "b1 n4 a1 pp1 dp32 tp1 sp4 ps8 gs1 oss1 ovinter-layer/intra-layer";
const folder = mkdtempSync(join(tmpdir(), "internevo-frameworks-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("export and import", () => {
  it.each([
    ["internevo", "config.py"],
    ["megatron", "pretrain.sh"],
    ["deepspeed", "pretrain.sh"],
    ["torchtitan", "train.toml"],
  ] as const)(
    "%s: what is exported is imported, and judged as the planner judges that plan",
    async (framework, first) => {
      const out = join(folder, framework);
      const exported = await cli(
        "--json",
        "export",
        JOB,
        "--framework",
        framework,
        "--plan",
        PLAN,
        "--out",
        `${out}/`,
      );
      expect(exported.status, exported.stderr).toBe(0);
      const { plan } = JSON.parse(exported.stdout) as { plan: unknown };
      const { status, stdout, stderr } = await cli(
        "--json",
        "import",
        join(out, first),
        "--framework",
        framework,
        "--memory",
        "80GB",
        "--out",
        join(out, "job.yaml"),
      );
      expect(status, stderr).toBe(0);
      const answer = JSON.parse(stdout) as {
        imported: { plan: unknown };
        planning: { located: { feasible: boolean; predicted: { stepTimeSeconds: number } } };
      };
      expect(answer.imported.plan).toEqual(plan);
      expect(answer.planning.located.feasible).toBe(true);
      expect(answer.planning.located.predicted.stepTimeSeconds).toBeGreaterThan(0);
      // The job that was written is one that plans.
      expect((await cli("validate", join(out, "job.yaml"))).status).toBe(0);
    },
  );

  it("shows what is not expressible, and how far the best plan is ahead", async () => {
    const shown = await cli(
      "export",
      JOB,
      "--framework",
      "deepspeed",
      "--plan",
      "b1 n4 a0 pp1 dp32 tp1 sp4 ps8 gs1 oss4",
    );
    expect(shown.stdout).toMatch(
      /==> pretrain.sh <==[\s\S]*--ds-sequence-parallel-size 4[\s\S]*==> ds_config.json <==[\s\S]*"zero_hpz_partition_size": 8/,
    );
    expect(shown.stderr).toMatch(/not expressible: plan.optimizerStateSharding 4, written as 16: /);
    const judged = await cli("import", join(folder, "megatron", "pretrain.sh"), "--framework", "megatron");
    expect(judged.stdout).toMatch(
      /feasible: rank [\d,]+ of [\d,]+ families of plans: .* a step[\s\S]*the best plan, [\d.]+% faster: b/,
    );
    expect(judged.stdout).toContain(PLAN);
  });

  it.each([
    ["a variable", "DS_CONFIG=ds_config.json", "--deepspeed_config $DS_CONFIG"],
    ["one in braces and quotes", "DS_CONFIG=ds_config.json", '--deepspeed_config "${DS_CONFIG}"'],
    ["one behind an equals sign", "DS_CONFIG=ds_config.json", "--deepspeed_config=$DS_CONFIG"],
    ["one of others", "DIR=conf; DS_CONFIG=$DIR/ds_config.json", "--deepspeed_config $DS_CONFIG"],
    [
      "the command, not a comment or an echo",
      "# was: --deepspeed_config old.json\necho --deepspeed_config older.json",
      "--deepspeed_config ds_config.json",
    ],
  ])("finds the JSON that a DeepSpeed script names by %s", async (_by, before, named) => {
    const script = readFileSync(join(folder, "deepspeed", "pretrain.sh"), "utf8")
      .replace("set -euo pipefail\n", `set -euo pipefail\n${before}\n`)
      .replace("--deepspeed_config ds_config.json", named);
    const place = join(folder, "deepspeed", "named.sh");
    writeFileSync(place, script);
    const { status, stdout, stderr } = await cli("import", place, "--framework", "deepspeed");
    expect(status, stderr).toBe(0);
    expect(stdout).toMatch(/rank [\d,]+ of [\d,]+ families of plans/);
  });

  it("does not compare a plan that does not fit with one that does as if it ran", async () => {
    const out = join(folder, "large");
    expect(
      (
        await cli(
          "export",
          JOB,
          "--framework",
          "megatron",
          "--plan",
          "b1 n1 a0 pp1 dp128 tp1 sp1 ps32 gs1 oss1 ovinter-layer/intra-layer",
          "--out",
          `${out}/`,
        )
      ).status,
    ).toBe(0);
    const { stdout } = await cli("import", join(out, "pretrain.sh"), "--framework", "megatron");
    expect(stdout).toMatch(/cannot run: memory-exceeded/);
    expect(stdout).toMatch(/the best plan that fits, [\d.]+% slower than this one would be if it fitted: b/);
    expect(stdout).not.toMatch(/takes as long/);
    const fitting = await cli("import", join(folder, "megatron", "pretrain.sh"), "--framework", "megatron");
    expect(fitting.stdout).toMatch(/rank [\d,]+ of [\d,]+ families of plans:/);
  });

  it("says with the verdict which way its figures err", async () => {
    const toml = readFileSync(join(folder, "torchtitan", "train.toml"), "utf8");
    expect(toml).toContain('mode = "full"');
    const place = join(folder, "torchtitan", "operators.toml");
    writeFileSync(place, toml.replace('mode = "full"', 'mode = "selective"\nselective_ac_option = "op"'));
    const { stdout, stderr } = await cli("import", place, "--framework", "torchtitan");
    expect(stdout, stderr).toMatch(
      /\nfeasible: [^]*\n\nnot exact: the predicted time is too short, and the memory too large, for activation_checkpoint\.selective_ac_option\n/,
    );
  });

  it("says what the written plan needs, and warns where it does not fit", async () => {
    const tensor = [
      "export",
      JOB,
      "--framework",
      "internevo",
      "--plan",
      "b1 n2 a0 pp1 dp64 tp2 sp2 ps1 gs64 oss64",
    ];
    const fits = await cli(...tensor);
    expect(fits.stderr).toMatch(/not expressible: plan\.gradientSharding 64, written as 1: /);
    expect(fits.stderr).toMatch(/as it is written: [\d.]+ s a step, [\d.]+ GiB a GPU/);
    const small = join(folder, "small.yaml");
    writeFileSync(small, readFileSync(JOB, "utf8").replace("memoryPerGpu: 80GB", "memoryPerGpu: 60GB"));
    const tight = await cli(tensor[0] as string, small, ...tensor.slice(2));
    expect(tight.status).toBe(0);
    expect(tight.stderr).toMatch(
      /warning: as it is written it does not fit: it needs [\d.]+ GiB a GPU, [\d.]+ GiB more than the 55\.9 GiB/,
    );
    const document = JSON.parse(
      (await cli("--json", tensor[0] as string, small, ...tensor.slice(2))).stdout,
    ) as { predicted: { fits: boolean; peakMemoryBytes: number; memoryLimitBytes: number } };
    expect(document.predicted).toMatchObject({ fits: false, memoryLimitBytes: 60e9 });
    expect(document.predicted.peakMemoryBytes).toBeGreaterThan(60e9);
    const [, offered] =
      /the best plan that internevo can say: (b.*): [\d.]+ s a step, [\d.]+ GiB a GPU; write it with --plan '\1'/.exec(
        tight.stderr,
      ) ?? [];
    const taken = await cli("export", small, "--framework", "internevo", "--plan", String(offered));
    expect(taken.status).toBe(0);
    expect(taken.stderr).not.toMatch(/warning: as it is|plan\.|the best plan/);
  });

  it("writes the best plan that the framework can say where none is named", async () => {
    // The best of all shards gradients, and not parameters.
    const best = await cli("export", JOB, "--framework", "internevo");
    expect(best.stderr).toMatch(
      /the best plan of all, b.* gs[^1].*, cannot be said in internevo's words; written is the best that can: b/,
    );
    expect(best.stderr).not.toMatch(/warning: as it is|not expressible: plan\./);
    const impossible = await cli("export", JOB, "--framework", "internevo", "--fix", "gu=again");
    expect(impossible.status).toBe(2);
    expect(impossible.stderr).toMatch(
      /no plan of the job can be said in internevo's words: plan\.gateUp: model\.checkpoint recomputes whole layers/,
    );
    expect(impossible.stderr).not.toMatch(/more memory/);
  });

  it.each(["internevo", "megatron", "deepspeed", "torchtitan"])(
    "%s: writes into a directory, whatever its name, and makes it",
    async (framework) => {
      const out = join(folder, "new", `${framework}.d`);
      expect((await cli("export", JOB, "--framework", framework, "--plan", PLAN, "--out", out)).status).toBe(
        0,
      );
      expect(readdirSync(out).length).toBeGreaterThan(0);
      const file = join(folder, `${framework}.txt`);
      writeFileSync(file, "");
      const onto = await cli("export", JOB, "--framework", framework, "--plan", PLAN, "--out", file);
      expect([onto.status, readFileSync(file, "utf8")]).toEqual([2, ""]);
      expect(onto.stderr).toMatch(/is a file/);
    },
  );

  it("overwrites nothing, and says what it cannot read", async () => {
    const before = readdirSync(join(folder, "megatron"));
    const again = await cli(
      "export",
      JOB,
      "--framework",
      "megatron",
      "--plan",
      PLAN,
      "--out",
      join(folder, "megatron"),
    );
    expect([again.status, readdirSync(join(folder, "megatron"))]).toEqual([2, before]);
    expect(again.stderr).toMatch(/exists already/);
    const wrong = await cli("import", join(folder, "torchtitan", "train.toml"), "--framework", "megatron");
    expect(wrong.status).toBe(2);
    expect((await cli("import", join(folder, "nothing"), "--framework", "megatron")).stderr).toMatch(
      /does not exist/,
    );
    expect((await cli("import", JOB, "--framework", "horovod")).status).toBe(2);
    expect(readFileSync(join(folder, "torchtitan", "train.toml"), "utf8")).toContain(
      "context_parallel_degree = 4",
    );
  });
});
