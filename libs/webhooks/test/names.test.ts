import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { Names, UnknownNameError } from "../src/names.ts";

let directory: string;
beforeAll(() => void (directory = mkdtempSync(join(tmpdir(), "internevo-names-"))));
afterAll(() => rmSync(directory, { recursive: true }));

const { signal } = new AbortController();

it("looks names up, and says which lead nowhere", async () => {
  const names = new Names();
  expect(await names.resolve("localhost", "p", signal)).toContainEqual({ address: "127.0.0.1", family: 4 });
  // A name of RFC 6761, and one that looks like an option.
  for (const name of ["nowhere.invalid", "--help"])
    await expect(names.resolve(name, "p", signal)).rejects.toThrow(UnknownNameError);
});

it("ends a look at once when nobody waits for it any more", async () => {
  const over = new AbortController();
  const found = new Names().resolve("localhost", "p", over.signal);
  over.abort(new Error("over"));
  await expect(found).rejects.toThrow("over");
});

it("names that are never answered hold up no other project's webhooks", async () => {
  const identity = process.getuid?.() === 0 ? [] : ["--user", "--map-root-user"];
  const child = [join(import.meta.dirname, "silent-names.ts"), join(directory, "resolv.conf"), "80"];
  const { stdout } = await promisify(execFile)("unshare", [
    ...identity,
    "--mount",
    "--net",
    "--",
    process.execPath,
    "--disable-warning=ExperimentalWarning",
    ...child,
  ]);
  const { status, error, outcomes, seconds } = JSON.parse(stdout) as Record<string, unknown>;
  expect([status, error]).toEqual([204, null]);
  expect(outcomes).toEqual(Array(80).fill("stopped"));
  // The resolver gives a name up after 10 s, and there are 80 of them.
  expect(seconds).toBeLessThan(10);
});
