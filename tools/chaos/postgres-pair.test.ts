import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openDatabase, withRetryOnConnectionLoss } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import { PostgresPair } from "./src/random/postgres-pair.ts";

let directory: string;
let pair: PostgresPair;
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), "internevo-pair-"));
  chmodSync(directory, 0o755);
  pair = await PostgresPair.start(directory);
});
afterAll(async () => {
  await pair?.stop();
  rmSync(directory, { recursive: true, force: true });
});

it("loses no commit that somebody was told of when either server dies, again and again", async () => {
  const database = openDatabase({ url: pair.url, applicationName: "pair-test" });
  const told: number[] = [];
  try {
    await database.db.execute("create table told (n int primary key)");
    let isWriting = true;
    const writing = (async () => {
      for (let n = 1; isWriting; n += 1) {
        // A commit of which nobody was told may have happened: the same again.
        await withRetryOnConnectionLoss(() =>
          database.db.execute(`insert into told values (${n}) on conflict do nothing`),
        );
        told.push(n);
      }
    })();
    for (const role of ["primary", "standby", "primary"] as const) {
      await eventually("the standby keeps up", () => pair.isSynchronous, 60);
      const before = told.length;
      await eventually("somebody writes", () => told.length > before + 10, 60);
      const pid = pair.pidOf(role) as number;
      process.kill(pid, "SIGKILL");
      const after = told.length;
      await eventually("commits go on", () => told.length > after + 10, 60);
      expect(pair.pidOf(role)).not.toBe(pid);
    }
    isWriting = false;
    await writing;
    expect(pair.failovers).toBe(2);
    const { rows } = await database.db.execute<{ n: number }>("select n from told order by n");
    expect(rows.map(({ n }) => n)).toEqual(told);
  } finally {
    await database.close();
  }
}, 120_000);

it("goes on where the answer of a promotion was lost", async () => {
  await eventually("the standby keeps up", () => pair.isSynchronous, 60);
  const failovers = pair.failovers;
  const [primary, standby] = [pair.pidOf("primary") as number, pair.pidOf("standby")];
  const client = new pg.Client({ connectionString: pair.standbyUrl });
  await client.connect();
  await client.query("select pg_promote()");
  await client.end();
  process.kill(primary, "SIGKILL");
  await eventually("the standby is the primary", () => pair.failovers === failovers + 1, 60);
  expect(pair.pidOf("primary")).toBe(standby);
  await eventually("there is a standby again", () => pair.isSynchronous, 60);
}, 120_000);
