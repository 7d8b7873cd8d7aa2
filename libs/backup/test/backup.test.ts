import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { gunzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { checkpointDirectory, checkpointName } from "@internevo/stages";
import { recordCheckpoint } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { storedRun, type StoredRun } from "@internevo/test-kit/stored-run";
import { backUp, type Manifest } from "../src/index.ts";

let root: string;
let test: TestDatabase;
let run: StoredRun;
beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), "internevo-backup-"));
  mkdirSync(join(root, "data"));
  test = await createTestDatabase();
  run = await storedRun(test.database, "running");
});
afterEach(async () => {
  await test.drop();
  rmSync(root, { recursive: true });
});

const take = (to: string, signal = new AbortController().signal): Promise<Manifest> =>
  backUp({ to: join(root, to), dataDirectory: join(root, "data"), databaseUrl: test.url, signal });

const checkpoints = (): string => checkpointDirectory(join(root, "data"), run.jobId);

/** As ranks do: under another name until all of it is there. */
function write(step: number): void {
  const path = join(checkpoints(), checkpointName(step));
  mkdirSync(`${path}.tmp`, { recursive: true });
  for (const name of ["shard-00000.safetensors", "shard-00001.safetensors", "manifest.json"])
    writeFileSync(join(`${path}.tmp`, name), String(step));
  renameSync(`${path}.tmp`, path);
}

function remove(step: number): void {
  const path = join(checkpoints(), checkpointName(step));
  if (!existsSync(path)) return;
  renameSync(path, `${path}.removed.tmp`);
  rmSync(`${path}.removed.tmp`, { recursive: true });
}

const announce = (step: number): Promise<void> =>
  test.database.transaction((tx) =>
    recordCheckpoint(tx, { runId: run.runId, attempt: 1 }, { step, bytes: 1, seconds: 1 }),
  );

/** A value of the only row of a table, as the backup has it. */
function valueOf(to: string, { tables }: Manifest, table: string, column: string): string | undefined {
  const at = tables.find(({ name }) => name === table)?.columns.indexOf(column) ?? -1;
  return gunzipSync(readFileSync(join(root, to, "database", `${table}.copy.gz`)))
    .toString()
    .split("\t")[at];
}

const backedUp = (to: string): string => checkpointDirectory(join(root, to, "files"), run.jobId);

describe("a backup", () => {
  it("has the checkpoint that its database knows of, however fast they are replaced", async () => {
    const stop = new AbortController();
    let last = 0;
    const training = (async () => {
      while (!stop.signal.aborted) {
        const step = last + 10;
        await run.step(last + 1, step);
        write(step);
        await announce(step);
        remove(last);
        last = step;
        await sleep(5);
      }
    })();
    try {
      await eventually("the first checkpoint", () => last > 0);
      for (let at = 0; at < 8; at += 1) {
        const to = `backup-${at}`;
        const manifest = await take(to);
        const announced = Number(valueOf(to, manifest, "attempts", "checkpoint_step"));
        expect(manifest.warnings).toEqual([]);
        const steps = readdirSync(backedUp(to)).map((name) => Number(name.slice("step-".length)));
        expect(Math.max(...steps)).toBe(announced);
        for (const step of steps)
          for (const name of ["shard-00000.safetensors", "shard-00001.safetensors", "manifest.json"])
            expect(readFileSync(join(backedUp(to), checkpointName(step), name), "utf8")).toBe(String(step));
        expect(manifest.tables.find(({ name }) => name === "step_metrics")?.rows).toBeGreaterThanOrEqual(
          announced,
        );
      }
    } finally {
      stop.abort();
      await training;
    }
    expect(last).toBeGreaterThan(80);
  });

  it("of a job that has lost its checkpoint is taken, and says so", async () => {
    await run.step(1, 20);
    await announce(20);
    write(10);
    write(30);
    const manifest = await take("backup");
    expect(manifest.warnings).toEqual([
      `job ${run.jobId}: its checkpoint of step 20 was not there; it would go on from an older one, or from its beginning`,
    ]);
    expect(readdirSync(backedUp("backup"))).toEqual(["step-10"]);
  });

  it("is refused while another is taken, and leaves that one alone", async () => {
    write(10);
    await run.step(1, 10);
    await announce(10);
    const outcomes = await Promise.allSettled([take("one"), take("two")]);
    const refused = outcomes.filter((outcome) => outcome.status === "rejected");
    expect(refused.map(({ reason }) => reason as unknown)).toEqual(
      refused.map(() => expect.objectContaining({ code: "conflict" }) as unknown),
    );
    expect(refused.length).toBeLessThan(2);
    for (const name of readdirSync(root).filter((each) => each !== "data"))
      expect(existsSync(join(root, name, "manifest.json"))).toBe(true);
  });

  it("that is aborted leaves nothing", async () => {
    write(10);
    await run.step(1, 10);
    await announce(10);
    const stop = new AbortController();
    const reason = new Error("enough");
    const taking = backUp({
      to: join(root, "backup"),
      dataDirectory: join(root, "data"),
      databaseUrl: test.url,
      signal: stop.signal,
      onProgress: (what) => what === "table jobs" && stop.abort(reason),
    });
    await expect(taking).rejects.toBe(reason);
    expect([readdirSync(root), readdirSync(join(root, "data"))]).toEqual([["data"], ["jobs"]]);
  });

  it("of a database that cannot be reached says so", async () => {
    const to = join(root, "backup");
    const signal = new AbortController().signal;
    await expect(
      backUp({
        to,
        dataDirectory: join(root, "data"),
        databaseUrl: "postgres://me@127.0.0.1:1/none",
        signal,
      }),
    ).rejects.toMatchObject({ code: "unavailable", details: [{ field: "DATABASE_URL" }] });
    await expect(
      backUp({ to: "/proc/backup", dataDirectory: join(root, "data"), databaseUrl: test.url, signal }),
    ).rejects.toMatchObject({ code: "bad-request", details: [{ field: "to" }] });
  });
});
