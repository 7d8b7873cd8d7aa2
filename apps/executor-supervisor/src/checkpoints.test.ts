import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { checkpointSteps, discardCheckpointsBeyond } from "./checkpoints.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-checkpoints-"));
  for (const name of ["step-9", "step-10", "step-100", "step-200.tmp", "other"]) {
    await mkdir(join(directory, name));
    await writeFile(join(directory, name, "manifest.json"), "{}");
  }
});
afterEach(() => rm(directory, { recursive: true, force: true }));

it("knows complete checkpoints, by number", async () => {
  expect(await checkpointSteps(directory)).toEqual([9, 10, 100]);
  expect(await checkpointSteps(join(directory, "absent"))).toEqual([]);
});

it("removes what lies beyond the stored steps, wholly, and nothing else", async () => {
  expect(await discardCheckpointsBeyond(directory, 10)).toEqual([100]);
  expect((await readdir(directory)).sort()).toEqual(["other", "step-10", "step-200.tmp", "step-9"]);
  expect(await discardCheckpointsBeyond(directory, 10)).toEqual([]);
  expect(await discardCheckpointsBeyond(join(directory, "absent"), 0)).toEqual([]);
});
