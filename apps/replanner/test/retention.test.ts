import type { RunningService } from "@internevo/service-kit";
import { existsSync } from "node:fs";
import { mkdir, readdir, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { checkpointDirectory, jobDirectory } from "@internevo/stages";
import { askRetentionRun, lastRetentionRun, listRemovals, setRetentionSettings } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { storedRun } from "@internevo/test-kit/stored-run";
import { createWorld, type World } from "@internevo/test-kit/world";
import { afterAll, beforeAll, expect, it } from "vitest";
import { replanner } from "../src/app.ts";

const environment = { INTERNEVO_REPLANNER_POLL_SECONDS: "0.2" };

let world: World;
let services: readonly RunningService[] = [];
beforeAll(async () => void (world = await createWorld()));
afterAll(() => world.close());

/** A job with a checkpoint of 1000 bytes, that ended so many days ago. */
async function ended(days: number): Promise<{ readonly jobId: string; readonly path: string }> {
  const run = await storedRun(world.database, "trained");
  const { jobId } = run;
  await run.end("succeeded");
  await world.database.db.execute(
    `update jobs set ended_at = clock_timestamp() - interval '${days} days' where id = '${jobId}'`,
  );
  const path = join(checkpointDirectory(world.dataDirectory, jobId), "step-8");
  await mkdir(path, { recursive: true });
  await writeFile(join(path, "shard-0"), Buffer.alloc(1000));
  return { jobId, path };
}
const untilEnded = (id?: number) =>
  eventually("the end of a run", async () => {
    const run = await lastRetentionRun(world.database.db);
    return run !== null && run.endedAt !== null && (id === undefined || run.id >= id) && run;
  });

it("removes what is due by the schedule and on request, one replanner at a time", async () => {
  const [old, fresh] = [await ended(100), await ended(5)];
  services = await Promise.all([1, 2].map(() => world.start(replanner, environment)));
  const { database } = world;
  await database.transaction((tx) => setRetentionSettings(tx, { checkpoints: 30 }));
  const scheduled = await untilEnded();
  expect(scheduled).toMatchObject({
    askedBy: null,
    removed: { checkpoints: { jobs: 1, files: 1, bytes: 1000, rows: 0 } },
    remarks: [],
  });
  expect([existsSync(old.path), existsSync(fresh.path)]).toEqual([false, true]);
  expect(await listRemovals(database.db, old.jobId)).toMatchObject([{ kind: "checkpoints", days: 30 }]);

  // A day has not passed: only who asks has what is due now removed.
  await database.transaction((tx) => setRetentionSettings(tx, { checkpoints: 2 }));
  const { id } = await database.transaction((tx) => askRetentionRun(tx, "ada"));
  expect(await untilEnded(id)).toMatchObject({
    id: scheduled.id + 1,
    askedBy: "ada",
    removed: { checkpoints: { jobs: 1, bytes: 1000 } },
  });
  expect(existsSync(fresh.path)).toBe(false);
  const figures = await Promise.all(
    services.map(async ({ healthUrl }) => {
      const text = await (await fetch(`${healthUrl}/metrics`)).text();
      return Number(
        /^internevo_retention_removed_bytes_total\{.*kind="checkpoints".*\} (\d+)/m.exec(text)?.[1] ?? 0,
      );
    }),
  );
  expect(figures.reduce((sum, bytes) => sum + bytes, 0)).toBe(2000);
});

it("goes on with what a replanner that was killed has begun, and nobody finds half of a checkpoint", async () => {
  const { database } = world;
  await Promise.all(services.map((service) => service.stop()));
  const { jobId, path } = await ended(100);
  const FILES = 5000;
  for (let file = 1; file < FILES; file += 1) await writeFile(join(path, `shard-${file}`), "");
  await database.transaction((tx) => askRetentionRun(tx, "ada"));
  const killed = await world.startProcess("replanner", environment);
  await eventually("a removal", async () => (await listRemovals(database.db, jobId)).length > 0);
  await killed.kill();
  const left = existsSync(path) ? (await readdir(path)).length : 0;
  expect([0, FILES]).toContain(left);
  await world.start(replanner, environment);
  await eventually("the end of the removal", async () =>
    (await listRemovals(database.db, jobId)).every(({ isDone }) => isDone),
  );
  expect(await readdir(jobDirectory(world.dataDirectory, jobId))).toEqual([]);
  expect(await listRemovals(database.db, jobId)).toMatchObject([{ files: FILES, isDone: true }]);
});

it("removes copies of text that no job needs which has not ended", async () => {
  const { jobId } = await storedRun(world.database, "going");
  /** A copy that was used eight days ago, by a job. */
  const copy = async (name: string, user: string): Promise<string> => {
    const path = join(world.dataDirectory, "datasets", `${name}.tokens`);
    const users = join(world.dataDirectory, "datasets", "users", `${name}.tokens`);
    await mkdir(users, { recursive: true });
    await writeFile(join(users, user), "");
    await writeFile(path, Buffer.alloc(1000));
    const used = new Date(Date.now() - 8 * 86_400_000);
    await utimes(path, used, used);
    return path;
  };
  const needed = await copy("needed", jobId);
  const unused = await copy("unused", (await ended(8)).jobId);
  await world.start(replanner, environment);
  await eventually("the copy is gone", () => !existsSync(unused));
  expect(existsSync(needed)).toBe(true);
});
