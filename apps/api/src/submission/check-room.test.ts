import { tmpdir } from "node:os";
import { resolveJob } from "@internevo/domain";
import { expect, it } from "vitest";
import {
  assertRoom,
  assertTextFits,
  checkpointRoom,
  roomWarnings,
  textRoom,
  textWarnings,
} from "./check-room.ts";

const job = resolveJob({
  name: "job",
  model: "llama-7b",
  sequenceLengthTokens: "4k",
  globalBatchTokens: "32k",
  checkpointing: { everySteps: 10, keepLast: 2 },
  cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: "80GiB" },
});

it("counts 12 bytes a parameter against what the disk has left", async () => {
  const room = await checkpointRoom(job, tmpdir());
  expect(room?.checkpointBytes).toBe(12 * 7_295_471_616);
  expect(room?.disk.freeBytes).toBeGreaterThan(0);
  for (const elsewhere of ["/nowhere", "/etc/passwd/below"])
    expect(await checkpointRoom(job, elsewhere)).toBeUndefined();
  await expect(checkpointRoom(job, "/tmp\0")).rejects.toThrow("null bytes");
  expect(await checkpointRoom({ ...job, checkpointing: null }, tmpdir())).toBeUndefined();
});

it("refuses a job of which not one checkpoint has room, and warns where they have it only one by one", () => {
  const checkpointBytes = 100e9;
  /** A disk that has so much beside the gibibyte that stays free. */
  const room = (bytes: number) => ({
    checkpointBytes,
    disk: { sizeBytes: 1e12, freeBytes: bytes + 2 ** 30 },
  });
  expect(() => assertRoom(room(99e9), "/data")).toThrow(
    expect.objectContaining({
      code: "job-invalid",
      details: [
        {
          field: "checkpointing",
          message: "save 93.1 GiB each, and /data has 93.2 GiB left, of which 1.00 GiB stay free",
          remedy: expect.any(String),
        },
      ],
    }),
  );
  expect(() => assertRoom(room(100e9), "/data")).not.toThrow();
  expect(roomWarnings(room(299e9), job, "/data").map(({ field }) => field)).toEqual([
    "checkpointing.keepLast",
  ]);
  expect(roomWarnings(room(300e9), job, "/data")).toEqual([]);
  // One is kept beside the only one that was asked for.
  const one = { checkpointing: { everySteps: 10, keepLast: 1 } };
  expect(roomWarnings(room(299e9), one, "/data")).toMatchObject([
    {
      value: 1,
      message:
        "keeps 2 checkpoints and needs 279.4 GiB while the next is written, and /data has 279.5 GiB left, of which 1.00 GiB stay free",
      remedy: "make room there",
    },
  ]);
  expect(roomWarnings(room(300e9), one, "/data")).toEqual([]);
  const three = { checkpointing: { everySteps: 10, keepLast: 3 } };
  expect(roomWarnings(room(399e9), three, "/data")[0]?.remedy).toMatch(/^keep fewer/);
});

it("refuses text that the whole disk has no room for, and warns where only what is left has none", async () => {
  const text = { data: { format: "text" as const, paths: ["/a.txt"] } };
  const disk = { sizeBytes: 200 * 2 ** 30, freeBytes: 100 * 2 ** 30 };
  const room = (gibibytes: number) => ({ writtenBytes: gibibytes * 2 ** 30, disk });
  for (const fits of [undefined, room(99)]) {
    expect(() => assertTextFits(fits, text, "/data")).not.toThrow();
    expect(textWarnings(fits, text, "/data")).toEqual([]);
  }
  expect(() => assertTextFits(room(199), text, "/data")).not.toThrow();
  expect(textWarnings(room(199), text, "/data")).toMatchObject([
    { field: "data.paths", value: 199 * 2 ** 30, remedy: expect.stringMatching(/^make room/) },
  ]);
  expect(() => assertTextFits(room(200), text, "/data")).toThrow(
    expect.objectContaining({
      code: "job-invalid",
      details: [expect.objectContaining({ field: "data.paths" })],
    }),
  );
  expect(await textRoom(7, tmpdir())).toMatchObject({ writtenBytes: 14 });
  for (const elsewhere of ["/nowhere", undefined]) expect(await textRoom(7, elsewhere)).toBeUndefined();
});
