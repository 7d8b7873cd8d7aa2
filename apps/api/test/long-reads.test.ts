import { resolveJob } from "@internevo/domain";
import { createProject, createToken, openDatabase, submitJob, type Database } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { sql } from "drizzle-orm";
import { afterEach, beforeEach, expect, it } from "vitest";
import { jobFile, problem, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
/** Not the API's connections. */
let beside: Database;
beforeEach(async () => {
  // A turn that lapses bounds nothing here.
  api = await startTestApi({ timeouts: { turnMilliseconds: 20 } });
  beside = openDatabase({ url: api.database.url, applicationName: "beside", maxConnections: 2 });
});
afterEach(async () => {
  await beside.close();
  await api.close();
});

const PROJECTS = ["nlp", "vision", "speech", "robots"];

/** Tokens of each project, as bearers. */
async function adminsOf(project: string, count: number): Promise<string[]> {
  await api.database.transaction((tx) => createProject(tx, { name: project }));
  const bearers: string[] = [];
  for (let at = 0; at < count; at += 1) {
    const made = { name: `${project}-${at}`, role: "admin", project, validForSeconds: null } as const;
    const { token } = await api.database.transaction((tx) => createToken(tx, made));
    bearers.push(`Bearer ${token}`);
  }
  return bearers;
}

/** Nothing is read of a table while the work goes on. */
async function whileLocked<T>(table: string, work: () => Promise<T>): Promise<T> {
  return beside.transaction(async (tx) => {
    await tx.execute(sql`lock table ${sql.identifier(table)} in access exclusive mode`);
    return work();
  });
}

/** Reads of a table that the lock holds up. */
async function heldUp(table: string): Promise<number> {
  const { rows } = await beside.db.execute<{ count: number }>(sql`
    select count(distinct pid)::int as count from pg_locks
    where not granted and relation = ${table}::regclass
      and database = (select oid from pg_database where datname = current_database())`);
  return rows[0]?.count ?? 0;
}

const get = (url: string, authorization: string) =>
  api.app.inject({ url: `/api/v1${url}`, headers: { authorization } });

/** Asks as everybody does, and says what others are told meanwhile. */
async function othersMeanwhile(table: string, asks: (() => ReturnType<typeof get>)[]): Promise<void> {
  const asked = await whileLocked(table, async () => {
    const all = asks.map((ask) => ask());
    await eventually("two are at work", async () => (await heldUp(table)) === 2);
    for (let at = 0; at < 20; at += 1)
      expect((await get("/whoami", api.bearer.viewer)).statusCode, String(at)).toBe(200);
    expect(await heldUp(table)).toBe(2);
    return all;
  });
  for (const reply of await Promise.all(asked)) expect(reply.statusCode).toBe(200);
}

it("comparisons are at work two at once, however slow they are, and others find a connection", async () => {
  const asks: (() => ReturnType<typeof get>)[] = [];
  for (const project of PROJECTS) {
    const bearers = await adminsOf(project, 4);
    const submit = (): Promise<string> =>
      api.database.transaction((tx) => submitJob(tx, { ...resolveJob(jobFile(api)), project }));
    const query = `job=${await submit()}&job=${await submit()}`;
    asks.push(...bearers.map((bearer) => () => get(`/comparison?${query}`, bearer)));
  }
  await othersMeanwhile("validation_losses", asks);
}, 60_000);

it("looks through the audit log are at work two at once", async () => {
  const asks: (() => ReturnType<typeof get>)[] = [];
  for (const project of PROJECTS) {
    const bearers = await adminsOf(project, 4);
    asks.push(...bearers.map((bearer) => () => get("/audit?action=zzz", bearer)));
  }
  await othersMeanwhile("audit_log", asks);
}, 60_000);

it("of one project one is at work, and beyond the most that wait they are refused", async () => {
  const bearers = await adminsOf("nlp", 2);
  const [first = ""] = bearers;
  const asked = await whileLocked("audit_log", async () => {
    const all = bearers.flatMap((bearer) =>
      Array.from({ length: 8 }, () => get("/audit?action=zzz", bearer)),
    );
    await eventually("one is at work", async () => (await heldUp("audit_log")) === 1);
    const more = Array.from({ length: 9 }, () => get("/audit?action=zzz", first));
    const refused = await Promise.race(more);
    expect(problem(refused, 429, "rate-limited").detail).toMatch(/^you have 16 requests of this kind/);
    expect(Number(refused.headers["retry-after"])).toBeGreaterThan(0);
    expect(await heldUp("audit_log")).toBe(1);
    return [...all, ...more];
  });
  const statuses = (await Promise.all(asked)).map(({ statusCode }) => statusCode);
  expect([statuses.filter((status) => status === 200).length, statuses.includes(503)]).toEqual([24, false]);
}, 60_000);
