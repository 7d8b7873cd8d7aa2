import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  closeSync,
  ftruncateSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { gzipSync } from "node:zlib";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createTestDatabase, testStack, type TestDatabase } from "@internevo/test-kit/stack";
import { storedRun } from "@internevo/test-kit/stored-run";
import { backUp, restore, type Manifest } from "../src/index.ts";
import { MANIFEST, MANIFEST_SUM, manifestTexts, sha256, tablePath } from "../src/manifest.ts";

let root: string;
let test: TestDatabase;
let jobId: string;
let manifest: Manifest;
const backup = (path: string): string => join(root, "backup", path);

beforeEach(async () => {
  root = mkdtempSync(join(tmpdir(), "internevo-restore-"));
  mkdirSync(join(root, "data"));
  test = await createTestDatabase();
  ({ jobId } = await storedRun(test.database, "running"));
  const signal = new AbortController().signal;
  manifest = await backUp({
    to: backup(""),
    dataDirectory: join(root, "data"),
    databaseUrl: test.url,
    signal,
  });
});
afterEach(async () => {
  await test.drop();
  rmSync(root, { recursive: true });
});

/** Writes the manifest anew, as whoever changed the backup would. */
function rewrite(change: (manifest: Manifest) => void): void {
  const changed = structuredClone(manifest);
  change(changed);
  const texts = manifestTexts(changed);
  writeFileSync(backup(MANIFEST), texts.manifest);
  writeFileSync(backup(MANIFEST_SUM), texts.sum);
}

/** Puts what is no file where a file of a job belongs. */
function plant(put: (path: string) => void): string {
  const path = `files/jobs/${jobId}/exports/planted`;
  mkdirSync(dirname(backup(path)), { recursive: true });
  put(backup(path));
  rewrite(({ files }) => files.push({ path, bytes: 0, sha256: sha256("") }));
  return path;
}

/** Into a database that cannot be reached, unless one is given. */
const restored = (databaseUrl = "postgres://me@127.0.0.1:1/none") =>
  restore({
    from: backup(""),
    dataDirectory: join(root, "new"),
    databaseUrl,
    goesOn: false,
    signal: AbortSignal.timeout(20_000),
  });

const refused = (path: string, message: string) => ({
  code: "data-invalid",
  details: [{ value: backup(path), message: expect.stringContaining(message) as string }],
});

describe("a restore reads ordinary files of the size that they must have", () => {
  it("and no links, pipes, or files without an end", async () => {
    const zero = plant((path) => symlinkSync("/dev/zero", path));
    await expect(restored()).rejects.toMatchObject(refused(zero, "no ordinary file"));
    rmSync(backup(zero));
    const pipe = plant((path) => execFileSync("mkfifo", [path]));
    await expect(restored()).rejects.toMatchObject(refused(pipe, "no ordinary file"));
    rmSync(backup(pipe));
    const sparse = plant((path) => {
      const file = openSync(path, "w");
      ftruncateSync(file, 2 ** 40);
      closeSync(file);
    });
    await expect(restored()).rejects.toMatchObject(refused(sparse, "more than 0 bytes"));
    expect(existsSync(join(root, "new"))).toBe(false);
  });

  it("of the manifest too", async () => {
    for (const name of [MANIFEST_SUM, MANIFEST]) {
      rmSync(backup(name));
      symlinkSync("/dev/zero", backup(name));
      await expect(restored()).rejects.toMatchObject(refused(name, "no ordinary file"));
    }
  });

  it("and of a table no more than its rows", async () => {
    const name = `restored_${randomUUID().replaceAll("-", "")}`;
    const client = new pg.Client({ connectionString: testStack().databaseUrl });
    await client.connect();
    await client.query(`create database ${name}`);
    const url = new URL(test.url);
    url.pathname = `/${name}`;
    const path = tablePath("jobs");
    const bomb = gzipSync(Buffer.alloc(64 << 20, "\n"));
    writeFileSync(backup(path), bomb);
    rewrite(({ files }) => {
      const at = files.findIndex((file) => file.path === path);
      const sum = execFileSync("sha256sum", [backup(path)], { encoding: "utf8" }).slice(0, 64);
      files[at] = { path, bytes: bomb.length, sha256: sum };
    });
    try {
      await expect(restored(url.href)).rejects.toMatchObject(refused(path, "more than 1 rows"));
    } finally {
      await client.query(`drop database ${name} with (force)`);
      await client.end();
    }
  });
});

describe("secrets of a backup", () => {
  const put = (change: object, more = ""): void => {
    const own = { postgresPassword: "a".repeat(32), natsToken: "b".repeat(32), apiToken: "c".repeat(32) };
    const text = `${JSON.stringify({ ...own, ...change })}${more}`;
    writeFileSync(backup("secrets.json"), text);
    rewrite(({ files }) =>
      files.push({ path: "secrets.json", bytes: Buffer.byteLength(text), sha256: sha256(text) }),
    );
  };

  it("that are none are refused", async () => {
    for (const change of [
      { postgresPassword: "" },
      { postgresPassword: "two words" },
      { natsToken: "line\nbreak" },
      { apiToken: 7 },
      { postgresPort: "5432" },
      { natsPort: 70_000 },
      { other: "x" },
    ]) {
      put(change);
      await expect(restored(), JSON.stringify(change)).rejects.toMatchObject({ code: "data-invalid" });
    }
    put({}, "}");
    await expect(restored()).rejects.toMatchObject({ code: "data-invalid" });
    expect(existsSync(join(root, "new"))).toBe(false);
  });

  it("that its manifest does not have are not taken", async () => {
    writeFileSync(backup("secrets.json"), JSON.stringify({ apiToken: "of somebody" }));
    await expect(restored()).rejects.toMatchObject({ code: "unavailable" });
    expect(readFileSync(backup(MANIFEST), "utf8")).not.toContain("secrets.json");
  });
});
