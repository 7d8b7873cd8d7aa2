import { sql } from "drizzle-orm";
import { startOwnPostgres, type OwnPostgres } from "@internevo/test-kit/own-postgres";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { isConnectionLoss } from "./connection-loss.ts";
import { openDatabase, type Database, type DatabaseOptions } from "./database.ts";

let postgres: OwnPostgres;
beforeAll(async () => {
  postgres = await startOwnPostgres();
}, 60_000);
afterAll(() => postgres.stop());

let database: Database;
afterEach(async () => {
  postgres.thaw();
  await database.close();
});

/** A database whose connections have all been used. */
async function opened(connections: number, options: Partial<DatabaseOptions> = {}): Promise<void> {
  database = openDatabase({
    url: postgres.url,
    applicationName: "answer-watch-test",
    maxConnections: connections,
    ...options,
  });
  await Promise.all(
    Array.from({ length: connections }, () => database.db.execute(sql`select pg_sleep(0.1)`)),
  );
}

const outcome = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => "answered",
    (error: unknown) => (isConnectionLoss(error) ? "lost" : error),
  );

describe("a Postgres that stands still", () => {
  it("loses every statement and transaction soon, and is used again when it goes on", async () => {
    await opened(3);
    const inTransaction = Promise.withResolvers<void>();
    const frozen = Promise.withResolvers<void>();
    const transaction = outcome(
      database.transaction(async (tx) => {
        await tx.execute(sql`create table never_kept ()`);
        inTransaction.resolve();
        await frozen.promise;
        await tx.execute(sql`select 1`);
      }),
    );
    await inTransaction.promise;
    postgres.freeze();
    frozen.resolve();
    const began = performance.now();
    const outcomes = Promise.all([
      transaction,
      ...Array.from({ length: 6 }, () => outcome(database.db.execute(sql`select 1`))),
    ]);
    expect(await outcomes).toEqual(Array.from({ length: 7 }, () => "lost"));
    expect(await database.isUp()).toBe(false);
    expect(performance.now() - began).toBeLessThan(25_000);
    postgres.thaw();
    await expect.poll(() => database.isUp(), { timeout: 15_000 }).toBe(true);
    const { rows } = await database.db.execute(sql`select to_regclass('never_kept') as kept`);
    expect(rows).toEqual([{ kept: null }]);
  }, 60_000);

  it("has an idempotent transaction repeated", async () => {
    await opened(1);
    postgres.freeze();
    const repeated: unknown[] = [];
    const done = database.idempotentTransaction((tx) => tx.execute(sql`select 7 as answer`), {
      onRetry: (error) => {
        repeated.push(error);
        postgres.thaw();
      },
    });
    expect((await done).rows).toEqual([{ answer: 7 }]);
    expect(repeated.map(isConnectionLoss)).toContain(true);
  }, 60_000);

  it("does not keep a process that closes its database", async () => {
    await opened(2);
    const listening = Promise.withResolvers<void>();
    database.notifications.listen("anything", () => listening.resolve());
    await listening.promise;
    postgres.freeze();
    const began = performance.now();
    await database.close();
    expect(performance.now() - began).toBeLessThan(5000);
  }, 60_000);

  it("is noticed where only the processes stand still that serve connections", async () => {
    await opened(2, { statementSeconds: 1 });
    postgres.freeze("connections");
    expect(await outcome(database.db.execute(sql`select 1`))).toBe("lost");
  }, 60_000);
});

it("leaves a slow statement alone while Postgres answers others", async () => {
  await opened(1);
  const { rows } = await database.db.execute(sql`select 'slow' as it from pg_sleep(9)`);
  expect(rows).toEqual([{ it: "slow" }]);
}, 60_000);
