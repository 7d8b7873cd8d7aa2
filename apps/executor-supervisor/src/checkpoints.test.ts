import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { checkpointSteps, CountedCheckpoint, discardCheckpointsBeyond, leaveNewest } from "./checkpoints.ts";

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

it("leaves the newest of a run that is over, and nothing that was only to be told while it ran", async () => {
  await writeFile(join(directory, "counted-step"), "9\n");
  await leaveNewest(directory, 2);
  expect((await readdir(directory)).sort()).toEqual(["other", "step-10", "step-100", "step-200.tmp"]);
  await leaveNewest(directory, 2);
  await leaveNewest(directory, 3);
  expect(await checkpointSteps(directory)).toEqual([10, 100]);
  await leaveNewest(join(directory, "absent"), 2);
});

it("tells the last checkpoint whose steps are stored, whichever is known first", async () => {
  const failures: unknown[] = [];
  const counted = new CountedCheckpoint(directory, (error) => failures.push(error));
  const told = async () => {
    await counted.settled();
    return (await readdir(directory)).includes("counted-step")
      ? readFile(join(directory, "counted-step"), "utf8")
      : null;
  };
  counted.stepsStored(8);
  expect(await told()).toBeNull();
  counted.checkpointWritten(10);
  expect(await told()).toBeNull();
  counted.stepsStored(12);
  expect(await told()).toBe("10\n");
  counted.checkpointWritten(12);
  counted.checkpointWritten(14);
  expect(await told()).toBe("12\n");
  counted.stepsStored(40);
  expect(await told()).toBe("14\n");
  expect(failures).toEqual([]);
  expect(await checkpointSteps(directory)).toEqual([9, 10, 100]);
});

it("says that it cannot tell, and goes on", async () => {
  const failures: unknown[] = [];
  const counted = new CountedCheckpoint(join(directory, "step-9", "manifest.json"), (error) =>
    failures.push(error),
  );
  counted.checkpointWritten(1);
  counted.stepsStored(1);
  await counted.settled();
  expect(failures).toMatchObject([{ code: expect.stringMatching(/EEXIST|ENOTDIR/) }]);
});
