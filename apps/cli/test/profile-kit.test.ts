import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Profile } from "@internevo/domain";
import type { Kit, KitPiece } from "@internevo/profiles";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { cli } from "./in-process.ts";

const repository = join(import.meta.dirname, "../../..");
const check = join(repository, "native/tests/cuda/check");
const job = join(check, "kit-small.yaml");
/** How kit-small.json was made. */
const SMALL = [
  "--profile",
  "a800-128",
  "--plans",
  "2",
  "--samples",
  "2",
  "--point-seconds",
  "0.01",
  "--slice-seconds",
  "0.05",
  "--rounds",
  "1",
];
const results = join(repository, "libs/profiles/test-data/gpu-check-with-a-kit.jsonl");
const gpuCheck = join(repository, "native/build/tests/cuda/internevo-gpu-check");
const hasModel = existsSync(gpuCheck);
if (!hasModel) console.warn("A kit is not run on the model of a device: INTERNEVO_CUDA=1 builds it");

describe("a profile of a node without services", () => {
  let directory = "";
  const file = (name: string): string => join(directory, name);
  const kitIn = (name: string): Kit => JSON.parse(readFileSync(file(name), "utf8")) as Kit;
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), "internevo-kit-test-"));
  });
  afterAll(() => rmSync(directory, { recursive: true }));

  it("is prepared: the kit of the native tests is what the command writes", async () => {
    const { status, stdout } = await cli("profile", "prepare", job, ...SMALL, "--out", file("kit.json"));
    expect(stdout).toMatch(/^\d+ points and 2 plans, about [\d.]+ s on the node; the kit is in .*kit\.json/);
    expect(status).toBe(0);
    // Predictions, and with them the order of plans, are the cost model's to change.
    const lasting = (kit: Kit) => ({
      about: { ...kit.about, madeAt: "" },
      plans: kit.pieces.flatMap((piece) => (piece.kind === "plan" ? [piece.label] : [])).sort(),
      pieces: kit.pieces.filter(({ kind }) => kind !== "plan"),
    });
    const committed = JSON.parse(readFileSync(join(check, "kit-small.json"), "utf8")) as Kit;
    expect(
      lasting(committed),
      `write it anew: internevo profile prepare native/tests/cuda/check/kit-small.yaml ${SMALL.join(" ")} --out native/tests/cuda/check/kit-small.json`,
    ).toEqual(lasting(kitIn("kit.json")));
  });

  it("has eight different plans around the best for the bundle's jobs, which the trainer reads", async () => {
    const jobs = ["7b-layers-4k", "7b-layers-16k"].map((name) =>
      join(repository, "native/bundle/jobs", `${name}.yaml`),
    );
    expect(
      (await cli("profile", "prepare", ...jobs, "--profile", "a800-128", "--out", file("7b.json"))).status,
    ).toBe(0);
    type PlanPiece = Extract<KitPiece, { kind: "plan" }>;
    const plans = kitIn("7b.json").pieces.filter((piece): piece is PlanPiece => piece.kind === "plan");
    expect(plans).toHaveLength(8);
    const predicted = plans.map((piece) => piece.predicted.stepTimeSeconds);
    expect(predicted).toEqual([...predicted].sort((a, b) => a - b));
    expect(new Set(plans.map((piece) => JSON.stringify(piece.predicted))).size).toBe(8);
    const best = JSON.parse(
      (await cli("--json", "plan", jobs[0] as string, "--profile", "a800-128", "--top", "1")).stdout,
    ) as { candidates: { predicted: { stepTimeSeconds: number } }[] };
    expect(predicted[0]).toBe(best.candidates[0]?.predicted.stepTimeSeconds);
    const trainer = join(repository, "native/dist/bin/internevo-trainer");
    for (const { config, label } of plans) {
      writeFileSync(file("config.json"), JSON.stringify(config));
      const said = execFileSync(trainer, ["--config", file("config.json"), "--dry-run", "--without-data"], {
        encoding: "utf8",
      });
      expect(said, label).toContain('"event":"plan"');
    }
  });

  it("is assembled offline; planning uses it, and says what it is", async () => {
    const out = file("profile.json");
    const assembled = await cli("profile", "assemble", results, "--out", out);
    expect(assembled.stderr).toMatch(/\d+ modules, 0 curves, 2 slices; the profile is in .*profile\.json/);
    expect(assembled.status).toBe(0);
    const plan = await cli("plan", job, "--profile", out);
    expect(plan.status).toBe(0);
    expect(plan.stdout).toMatch(/^on-the-model: profile one-gpu 20.* UTC, assembled, memory model executor/);
    const renamed = await cli("profile", "assemble", results, "--name", "h200");
    expect((JSON.parse(renamed.stdout) as Profile).name).toBe("h200");
  });

  it("is refused with file, field and remedy", async () => {
    cpSync(results, file("alone.jsonl"));
    const alone = await cli("profile", "assemble", file("alone.jsonl"));
    expect(alone.status).toBe(2);
    expect(alone.stderr).toMatch(
      /alone\.jsonl\.d\/slice\.\d-round-1\.json does not exist[\s\S]*bring the folder .*alone\.jsonl\.d with it/,
    );
    writeFileSync(file("other.jsonl"), "not what the check writes\n");
    expect((await cli("profile", "assemble", file("other.jsonl"))).stderr).toMatch(
      /no results in .*other\.jsonl[\s\S]*→ give the files of results that gpu-check wrote on one GPU/,
    );
    const none = await cli(
      "profile",
      "prepare",
      join(repository, "examples/llama-7b-32k.yaml"),
      "--out",
      file("none.json"),
    );
    expect(none.status).toBe(2);
    expect(none.stderr).toMatch(/cluster\.nodes \(is 16\)[\s\S]*→ give a job whose cluster has one node/);
    expect(existsSync(file("none.json"))).toBe(false);
    expect(
      (await cli("profile", "prepare", job, ...SMALL, "--probe", "/nowhere", "--out", file("none.json")))
        .stderr,
    ).toMatch(/--probe[\s\S]*→ give the internevo-probe that the node will run/);
  });

  it.skipIf(!hasModel)(
    "has collectives and overlaps where ranks are several",
    async () => {
      const text = readFileSync(job, "utf8").replace("gpusPerNode: 1", "gpusPerNode: 2");
      writeFileSync(file("two.yaml"), text);
      await cli("profile", "prepare", file("two.yaml"), ...SMALL, "--out", file("two.json"));
      const out = file("two.jsonl");
      execFileSync(
        gpuCheck,
        ["--model", "--kit", file("two.json"), "--only", "profile.runtime,profile.probe.", "--out", out],
        { env: { ...process.env, OMP_NUM_THREADS: "1", INTERNEVO_SHARE_GPU: "1" } },
      );
      const { stdout, status } = await cli("profile", "assemble", out);
      expect(status).toBe(0);
      const { collectives, overlaps, provenance } = JSON.parse(stdout) as Profile;
      expect(new Set(collectives.map(({ op }) => op))).toEqual(
        new Set(["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "point-to-point"]),
      );
      // What overlapped is told by the order of the questions, over several runs of the probe.
      const asked = kitIn("two.json").pieces.flatMap((piece) =>
        piece.kind === "probe" ? piece.config.overlaps : [],
      );
      expect(overlaps.map(({ shape, op, bytes, placement }) => ({ shape, op, bytes, placement }))).toEqual(
        asked.map(({ module, collective: { op, bytes, placement } }) => ({
          shape: module,
          op,
          bytes,
          placement,
        })),
      );
      expect(provenance.notes.join("\n")).toMatch(
        /8 pieces of 13 without an answer: profile\.slice\.1 \(not run\)/,
      );
    },
    300_000,
  );

  it.skipIf(!hasModel)(
    "is measured by gpu-check with the kit on the model of a device, and comes back as a profile",
    async () => {
      await cli("profile", "prepare", job, ...SMALL, "--out", file("fresh.json"));
      const out = file("fresh.jsonl");
      const said = execFileSync(
        gpuCheck,
        ["--model", "--kit", file("fresh.json"), "--only", "profile.,plan.", "--out", out],
        { encoding: "utf8", env: { ...process.env, OMP_NUM_THREADS: "1" } },
      );
      expect(said).toMatch(/7 passed/);
      expect((await cli("profile", "assemble", out, "--out", file("fresh-profile.json"))).status).toBe(0);
      const plan = await cli("plan", job, "--profile", file("fresh-profile.json"));
      expect(plan.stdout).toContain("assembled");
    },
    300_000,
  );
});
