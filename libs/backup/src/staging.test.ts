import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { JobStand } from "@internevo/store";
import { Staging } from "./staging.ts";

let directory: string;
let staging: Staging;
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), "internevo-staging-"));
  staging = new Staging(directory);
  await staging.prepare(join(directory, "target.unfinished"));
});
afterEach(() => rmSync(directory, { recursive: true }));

const ONE = "7d9f5f0e-8f43-4a52-9a64-0c1ce7a7d1a5";
const job = (path: string): string => join(directory, "jobs", ONE, path);
function put(path: string, text: string): void {
  mkdirSync(dirname(job(path)), { recursive: true });
  writeFileSync(job(path), text);
}
function putCheckpoint(name: string, text = name): void {
  put(`checkpoints/${name}/shard`, text);
  put(`checkpoints/${name}/manifest.json`, "{}");
}
const stand = { jobId: ONE, state: "running", attempt: 2 } as JobStand;
const staged = async () => (await staging.files()).map(({ path }) => path.replace(`jobs/${ONE}/`, ""));

describe("files that are held fast", () => {
  it("are complete checkpoints, timelines of attempts that there are, exports and measured points", async () => {
    putCheckpoint("step-10");
    putCheckpoint("step-20.tmp");
    putCheckpoint("step-5.removed.tmp");
    put("checkpoints/step-30/shard", "without a manifest");
    put("checkpoints/counted-step", "10");
    put("timelines/attempt-2.json", "{}");
    put("timelines/attempt-3.json", "{}");
    put("timelines/trial-1.json", "{}");
    put("exports/hf/model.safetensors", "weights");
    put("measured-so-far.jsonl", "{}\n");
    put("measured-so-far-look.jsonl", "{}\n");
    put("slurm/run/record.json", "{}");
    symlinkSync("/etc/passwd", job("exports/link"));
    put("exports/new\nline", "a restore would refuse it");
    put("exports/folder\u007f/file", "and this");
    await staging.stageJob(stand);
    expect(await staging.steps(ONE)).toEqual([10]);
    expect(await staged()).toEqual([
      "checkpoints/step-10/manifest.json",
      "checkpoints/step-10/shard",
      "exports/hf/model.safetensors",
      "measured-so-far-look.jsonl",
      "measured-so-far.jsonl",
      "timelines/attempt-2.json",
      "timelines/trial-1.json",
    ]);
    expect([...staging.leftOut].sort()).toEqual(
      [job("exports/link"), job("exports/new\nline"), job("exports/folder\u007f")].sort(),
    );
  });

  it("stay when training removes its own names of them, and take no room", async () => {
    putCheckpoint("step-10");
    await staging.stageJob(stand);
    const held = join(staging.root, "jobs", ONE, "checkpoints/step-10/shard");
    expect(statSync(held).ino).toBe(statSync(job("checkpoints/step-10/shard")).ino);
    renameSync(job("checkpoints/step-10"), job("checkpoints/step-10.removed.tmp"));
    rmSync(job("checkpoints/step-10.removed.tmp"), { recursive: true });
    putCheckpoint("step-20");
    await staging.stageJob(stand);
    expect(await staging.steps(ONE)).toEqual([10, 20]);
    expect(readFileSync(held, "utf8")).toBe("step-10");
    await staging.drop(ONE, [10]);
    expect(await staging.steps(ONE)).toEqual([20]);
  });

  it("are those of the checkpoint that took another's place", async () => {
    putCheckpoint("step-10", "first");
    await staging.stageJob(stand);
    putCheckpoint("step-10.tmp", "second");
    renameSync(job("checkpoints/step-10"), job("checkpoints/step-10.removed.tmp"));
    renameSync(job("checkpoints/step-10.tmp"), job("checkpoints/step-10"));
    await staging.stageJob(stand);
    expect(readFileSync(join(staging.root, "jobs", ONE, "checkpoints/step-10/shard"), "utf8")).toBe("second");
  });

  it("are let go by the next backup, with what a killed one was writing", async () => {
    putCheckpoint("step-10");
    await staging.stageJob(stand);
    mkdirSync(join(directory, "target.unfinished"));
    const next = new Staging(directory);
    await next.prepare(join(directory, "other"));
    expect(existsSync(join(directory, "target.unfinished"))).toBe(false);
    expect(await next.files()).toEqual([]);
    await staging.remove();
    expect(existsSync(next.root)).toBe(true);
    await next.remove();
    expect(existsSync(next.root)).toBe(false);
    expect(existsSync(job("checkpoints/step-10/shard"))).toBe(true);
  });
});
