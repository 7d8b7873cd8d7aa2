import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { open } from "node:fs/promises";
import type * as Timers from "node:timers/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { eventually } from "@internevo/test-kit";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { readText } from "../src/files.ts";

const reader = vi.hoisted(() => ({ waits: () => {} }));
vi.mock("node:timers/promises", async (original) => {
  const timers = await original<typeof Timers>();
  return {
    ...timers,
    setTimeout: (...given: Parameters<typeof timers.setTimeout>) => {
      reader.waits();
      return timers.setTimeout(...given);
    },
  };
});
/** Resolves when the reader has next found the pipe empty: it waits a little before it looks again. */
const foundEmpty = (): Promise<void> => new Promise((resolve) => (reader.waits = resolve));

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

/**
 * Whether the command has begun to read: the program that it starts has opened the pipe, or asks the system for
 * what comes over its standard input.
 */
function reads(pid: number, path: string): boolean {
  const [program = ""] = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ");
  if (program === "") return false;
  const reading = (fd: string): boolean => {
    const target = readlinkSync(`/proc/${program}/fd/${fd}`);
    if (path !== "-") return target === path;
    if (!target.endsWith("[eventpoll]")) return false;
    return /^tfd:\s+0 /m.test(readFileSync(`/proc/${program}/fdinfo/${fd}`, "utf8"));
  };
  try {
    return readdirSync(`/proc/${program}/fd`).some(reading);
  } catch {
    return false; // It has closed a file since its files were listed.
  }
}

const expected = { code: "bad-request", field: "file", what: "a file" } as const;

describe("a pipe", () => {
  it("is read once somebody writes to it, to its end", async () => {
    const withoutWriter = foundEmpty();
    const text = readText(pipe, { ...expected, maximumBytes: 1 << 20 });
    await withoutWriter;
    const file = await open(pipe, "w");
    await file.write("a".repeat(200_000));
    await foundEmpty();
    await file.write("b");
    await file.close();
    expect(await text).toBe(`${"a".repeat(200_000)}b`);
  });

  it.each(["SIGINT", "SIGTERM", "SIGHUP"] as const)(
    "that nobody writes to keeps no command from ending: %s",
    async (signal) => {
      for (const path of [pipe, "-"]) {
        const child = spawn(process.execPath, [BIN, "validate", path], { stdio: "pipe" });
        await eventually(`a command that reads ${path}`, () => reads(child.pid as number, path));
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
