import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { open } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { readText } from "./files.ts";

const BIN = fileURLToPath(new URL("../bin/internevo.mjs", import.meta.url));
const JOB = fileURLToPath(new URL("../../../examples/llama-7b-32k.yaml", import.meta.url));

let directory: string;
let pipe: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "internevo-pipes-"));
  pipe = join(directory, "pipe");
  execFileSync("mkfifo", [pipe]);
});
afterEach(() => rmSync(directory, { recursive: true }));

const expected = { code: "bad-request", field: "file", what: "a file" } as const;

describe("a pipe", () => {
  it("is read once somebody writes to it, to its end", async () => {
    const text = readText(pipe, { ...expected, maximumBytes: 1 << 20 });
    await wait(100);
    const file = await open(pipe, "w");
    await file.write("a".repeat(200_000));
    await wait(100);
    await file.write("b");
    await file.close();
    expect(await text).toBe(`${"a".repeat(200_000)}b`);
  });

  it.each(["SIGINT", "SIGTERM", "SIGHUP"] as const)(
    "that nobody writes to keeps no command from ending: %s",
    async (signal) => {
      for (const path of [pipe, "-"]) {
        const child = spawn(process.execPath, [BIN, "validate", path], { stdio: "pipe" });
        await wait(2500);
        child.kill(signal);
        const [status] = (await once(child, "exit")) as [number];
        expect(status).toBe(130);
      }
    },
    30_000,
  );

  it("may be a process substitution", () => {
    const run = (command: string): string => execFileSync("bash", ["-c", command], { encoding: "utf8" });
    expect(run(`'${process.execPath}' '${BIN}' validate <(cat '${JOB}')`)).not.toBe("");
    expect(run(`'${process.execPath}' '${BIN}' validate <(true) 2>&1 || true`)).toMatch(/is empty|job/);
  }, 30_000);
});
