import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { supervise } from "./supervisor.ts";

let directory: string;
beforeEach(() => (directory = mkdtempSync(join(tmpdir(), "internevo-supervisor-"))));
afterEach(() => rmSync(directory, { recursive: true }));

async function linesOf(logFile: string, script: string): Promise<{ lines: string[]; tail: readonly string[] }> {
  const lines: string[] = [];
  const supervised = supervise(
    { name: "service", command: "sh", args: ["-c", script], env: {}, directory, logFile, stopSignal: "SIGTERM", stopSeconds: 5 },
    { onLine: (_, line) => void lines.push(line), onEnd: () => {} },
  );
  const { tail } = await supervised.nextEnd();
  await supervised.stop();
  return { lines, tail };
}

it("keeps a process whose log has no room, and says so once", async () => {
  const logFile = join(directory, "full.log");
  // The device whose every write is refused for want of space.
  symlinkSync("/dev/full", logFile);
  const { lines, tail } = await linesOf(logFile, "echo one; echo two; exit 3");
  expect(tail).toEqual(["one", "two"]);
  expect(lines.filter((line) => line.includes("cannot be written"))).toEqual([expect.stringMatching(/^its log .*full\.log cannot be written: ENOSPC.*; lines are lost until it can$/)]);
});

it("appends what a process says to its log", async () => {
  const logFile = join(directory, "service.log");
  writeFileSync(logFile, "before\n");
  await linesOf(logFile, "echo one; echo two >&2");
  expect(readFileSync(logFile, "utf8").split("\n").sort()).toEqual(["", "before", "one", "two"]);
});
