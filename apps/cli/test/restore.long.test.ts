import { spawn, type ChildProcess } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startLocalStack, type LocalStack } from "@internevo/local-stack";
import { DEFAULT_PROJECT } from "@internevo/domain";
import {
  createWebhook,
  getJob,
  getWebhook,
  migrateDatabase,
  openDatabase,
  recordCheckpoint,
  type Database,
} from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { createTestDatabase, testStack } from "@internevo/test-kit/stack";
import { storedRun } from "@internevo/test-kit/stored-run";
import { backupsIn, ok } from "./backups.ts";
import { run } from "./processes.ts";

const STEP = 20;

const folder = (name: string): string => join(root, name);
let root: string;
let stack: LocalStack;
let database: Database;
let jobId: string;
let webhookId: string;

const open = (url: string): Database => openDatabase({ url, applicationName: "test" });

/** A stack without services, with a job that has a checkpoint. */
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), "internevo-restore-"));
  stack = await startLocalStack({
    dataDirectory: folder("old"),
    services: [],
    databaseUrl: "",
    natsUrl: "",
    durable: false,
  });
  const { databaseUrl } = stack.info();
  await migrateDatabase(databaseUrl);
  database = open(databaseUrl);
  const stored = await storedRun(database, "running");
  ({ jobId } = stored);
  webhookId = await database.transaction(async (tx) => {
    const url = "https://ci.example.org/events";
    return (await createWebhook(tx, { name: "ci", url, project: DEFAULT_PROJECT })).webhook.id;
  });
  await stored.step(1, STEP);
  await database.transaction((tx) =>
    recordCheckpoint(tx, { runId: stored.runId, attempt: 1 }, { step: STEP, bytes: 1, seconds: 1 }),
  );
  const checkpoint = folder(`old/jobs/${jobId}/checkpoints/step-${STEP}`);
  mkdirSync(checkpoint, { recursive: true });
  for (const name of ["manifest.json", "shard-00000.safetensors"])
    writeFileSync(join(checkpoint, name), `what ${name} has`);
}, 120_000);
afterAll(async () => {
  await database.close();
  await stack.stop();
  rmSync(root, { recursive: true, force: true });
});

const { backUp, restore } = backupsIn(folder);

const MAIN = fileURLToPath(new URL("../src/main.ts", import.meta.url));

/** The program itself, without the one that hands over to it: a signal reaches it at once. */
const begin = (...args: string[]): ChildProcess =>
  spawn(process.execPath, ["--disable-warning=ExperimentalWarning", MAIN, ...args], { stdio: "ignore" });

/** @returns its status; null where the signal has ended it. */
async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<number | null> {
  const ended = child.exitCode === null ? once(child, "exit") : undefined;
  child.kill(signal);
  await ended;
  return child.exitCode;
}

/** Whatever a backup has written beside its target, or at it. */
const besides = (name: string): string[] => readdirSync(root).filter((each) => each.includes(name));

describe("a backup that is killed", { timeout: 600_000 }, () => {
  // So large that copying it takes its time.
  beforeAll(() => {
    const exports = folder(`old/jobs/${jobId}/exports`);
    mkdirSync(exports);
    writeFileSync(join(exports, "large"), "");
    truncateSync(join(exports, "large"), 1 << 29);
  });
  afterAll(() => rmSync(folder(`old/jobs/${jobId}/exports`), { recursive: true }));

  it("leaves nothing that looks like a backup, and the next one removes the rest", async () => {
    const staging = folder("old/backup.staging");
    const moments: readonly (readonly [what: string, came: () => boolean])[] = [
      ["files are held", () => existsSync(join(staging, "jobs"))],
      [
        "tables are written",
        () => besides("killed").some((each) => existsSync(join(root, each, "database"))),
      ],
      ["files are copied", () => besides("killed").some((each) => existsSync(join(root, each, "files")))],
    ];
    for (const [what, came] of moments) {
      const killed = begin("backup", folder("killed"), "--data-directory", folder("old"));
      await eventually(what, came, 60);
      expect([what, await end(killed, "SIGKILL"), existsSync(folder("killed"))]).toEqual([what, null, false]);
      expect(besides("killed").every((name) => name.endsWith(".unfinished"))).toBe(true);
    }
    await ok(backUp("unharmed"));
    expect(besides("killed")).toEqual([]);
    expect(existsSync(staging)).toBe(false);
    expect((await getJob(database.db, jobId))?.state).toBe("running");
  });

  it("by Ctrl-C removes what it began", async () => {
    const interrupted = begin("backup", folder("interrupted"), "--data-directory", folder("old"));
    await eventually("its tables", () => besides("interrupted").length > 0, 60);
    const status = await end(interrupted, "SIGINT");
    expect([status, besides("interrupted"), existsSync(folder("old/backup.staging"))]).toEqual([
      130,
      [],
      false,
    ]);
  });
});

describe("a restore", { timeout: 600_000 }, () => {
  beforeAll(async () => void (await ok(backUp("after"))));

  /** Changes a byte in the middle of a file of a backup. @returns what puts it right */
  function flip(path: string): () => void {
    const before = readFileSync(path);
    const after = Buffer.from(before);
    const middle = after.length >> 1;
    after[middle] = (after[middle] as number) ^ 1;
    writeFileSync(path, after);
    return () => writeFileSync(path, before);
  }

  it("refuses a backup with one changed byte, wherever it is, and leaves nothing", async () => {
    const from = folder("after");
    const checkpoint = `files/jobs/${jobId}/checkpoints/step-${STEP}/shard-00000.safetensors`;
    for (const path of ["manifest.json", "database/step_metrics.copy.gz", checkpoint, "secrets.json"]) {
      const mend = flip(join(from, path));
      const refused = await restore("after", "damaged");
      mend();
      expect([path, refused.status, refused.stderr]).toEqual([
        path,
        2,
        expect.stringContaining("is damaged") as string,
      ]);
      expect(existsSync(folder("damaged"))).toBe(false);
    }
    const shorter = join(from, "database/jobs.copy.gz");
    const whole = readFileSync(shorter);
    rmSync(shorter);
    expect(await restore("after", "damaged")).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("jobs.copy.gz is missing") as string,
    });
    writeFileSync(shorter, whole);
  });

  it("refuses a backup of a newer version", async () => {
    const path = join(folder("after"), "manifest.json");
    const [before, sum] = [readFileSync(path, "utf8"), readFileSync(`${path}.sha256`, "utf8")];
    const changed = JSON.stringify({ ...(JSON.parse(before) as object), productVersion: "99.0.0" });
    writeFileSync(path, changed);
    writeFileSync(`${path}.sha256`, `${createHash("sha256").update(changed).digest("hex")}  manifest.json\n`);
    const refused = await restore("after", "newer");
    writeFileSync(path, before);
    writeFileSync(`${path}.sha256`, sum);
    expect([refused.status, refused.stderr]).toEqual([7, expect.stringContaining("99.0.0") as string]);
    expect(existsSync(folder("newer"))).toBe(false);
  });

  it("and a backup refuse places that are not empty", async () => {
    mkdirSync(folder("full"));
    writeFileSync(folder("full/note"), "mine");
    for (const refused of [
      await backUp("full"),
      await backUp("full/note"),
      await restore("after", "full"),
      await restore("after", "old"),
    ])
      expect([refused.status, refused.stdout]).toEqual([7, ""]);
    expect(readdirSync(folder("full"))).toEqual(["note"]);
    const inside = await backUp("old/backup");
    expect([inside.status, inside.stderr]).toEqual([
      2,
      expect.stringContaining("lies in the data directory") as string,
    ]);
    const nowhere = await run(["backup", folder("x"), "--data-directory", folder("none")]);
    expect([nowhere.status, nowhere.stderr]).toEqual([
      4,
      expect.stringContaining("there is no stack in") as string,
    ]);
    expect((await restore("full", "x")).status).toBe(4);
  });

  it("that is killed leaves a directory in which no stack starts", async () => {
    const killed = begin("restore", folder("after"), "--data-directory", folder("half"));
    await eventually("its database", () => existsSync(folder("half/postgres")), 60);
    expect(await end(killed, "SIGKILL")).toBeNull();
    const up = await run(["up", "--data-directory", folder("half")]);
    expect([up.status, up.stderr]).toEqual([7, expect.stringContaining("is not finished") as string]);
    rmSync(folder("half"), { recursive: true });
    await ok(restore("after", "half"));
  });

  it("keeps the tokens, and is backed up where nothing runs", async () => {
    const secrets = (name: string) =>
      JSON.parse(readFileSync(folder(`${name}/secrets.json`), "utf8")) as Record<string, unknown>;
    expect(secrets("half")["apiToken"]).toBe(secrets("old")["apiToken"]);
    expect(statSync(folder("after")).mode & 0o777).toBe(0o700);
    expect(statSync(folder("after/secrets.json")).mode & 0o777).toBe(0o600);
    const again = await run(["backup", folder("again"), "--json", "--data-directory", folder("half")]);
    expect(JSON.parse(again.stdout)).toMatchObject({
      written: folder("again"),
      counts: { jobs: 1, checkpoints: 1 },
    });
  });

  it("fills a database of one's own, which must be empty, and a backup has it again", async () => {
    const { databaseUrl } = testStack();
    const own = await createTestDatabase();
    const name = `restored_${randomUUID().replaceAll("-", "")}`;
    const url = new URL(databaseUrl);
    url.pathname = `/${name}`;
    const env = { DATABASE_URL: url.href };
    const maintenance = open(databaseUrl);
    await maintenance.db.execute(`create database ${name}`);
    const args = ["restore", folder("after"), "--data-directory", folder("external")];
    try {
      const refused = await run(args, { DATABASE_URL: own.url });
      expect([refused.status, refused.stderr]).toEqual([
        7,
        expect.stringContaining("the database has tables already") as string,
      ]);
      const nobody = await run(args, { DATABASE_URL: "postgres://me@127.0.0.1:1/none" });
      expect([nobody.status, nobody.stderr]).toEqual([
        5,
        expect.stringContaining("the database does not answer") as string,
      ]);
      expect(existsSync(folder("external"))).toBe(false);
      const { stderr } = await ok(run(args, env));
      expect(stderr).toContain("1 job held and 0 workloads paused");
      expect(stderr).toContain("1 webhook disabled, so that its receiver is told nothing");
      expect(stderr).toContain("`internevo webhook set NAME --enable`");
      expect(readdirSync(folder("external"))).not.toContain("postgres");
      await ok(run(["backup", folder("external-again"), "--data-directory", folder("external")], env));
      const there = open(url.href);
      expect((await getJob(there.db, jobId))?.state).toBe("held");
      const { disabledReason } = await getWebhook(there.db, webhookId);
      expect(disabledReason).toMatch(/^restored from a backup of /);
      expect(existsSync(folder(`external/jobs/${jobId}/checkpoints/step-${STEP}/manifest.json`))).toBe(true);
      await there.close();
    } finally {
      await own.drop();
      await maintenance.db.execute(`drop database ${name} with (force)`);
      await maintenance.close();
    }
  });
});
