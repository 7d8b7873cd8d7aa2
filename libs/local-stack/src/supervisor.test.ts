import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@internevo/test-kit";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { LogRotation } from "./rotating-log.ts";
import { supervise } from "./supervisor.ts";

let directory: string;
beforeEach(() => (directory = mkdtempSync(join(tmpdir(), "internevo-supervisor-"))));
afterEach(() => rmSync(directory, { recursive: true }));

async function linesOf(
  logFile: string,
  script: string,
  logRotation?: LogRotation,
): Promise<{ lines: string[]; tail: readonly string[] }> {
  const lines: string[] = [];
  const supervised = supervise(
    {
      name: "service",
      command: "sh",
      args: ["-c", script],
      env: {},
      directory,
      logFile,
      stopSignal: "SIGTERM",
      stopSeconds: 5,
      ...(logRotation === undefined ? {} : { logRotation }),
    },
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
  expect(lines.filter((line) => line.includes("cannot be written"))).toEqual([
    expect.stringMatching(/^its log .*full\.log cannot be written: ENOSPC.*; lines are lost until it can$/),
  ]);
});

it("appends what a process says to its log", async () => {
  const logFile = join(directory, "service.log");
  writeFileSync(logFile, "before\n");
  await linesOf(logFile, "echo one; echo two >&2");
  expect(readFileSync(logFile, "utf8").split("\n").sort()).toEqual(["", "before", "one", "two"]);
});

it("keeps a log within its size, the newest lines in so many files, and loses none between two files", async () => {
  const logFile = join(directory, "long.log");
  // Some lines from before, which are no part of what is counted below.
  writeFileSync(logFile, "before\n".repeat(20));
  const { lines } = await linesOf(logFile, "i=0; while [ $i -lt 500 ]; do i=$((i+1)); echo line-$i; done", {
    mostBytes: 1000,
    keptFiles: 3,
  });
  expect(lines).toHaveLength(500);
  expect(readdirSync(directory).sort()).toEqual(["long.log", "long.log.1", "long.log.2", "long.log.3"]);
  const files = ["long.log.3", "long.log.2", "long.log.1", "long.log"].map((name) =>
    readFileSync(join(directory, name), "utf8"),
  );
  for (const text of files) expect(text.length).toBeLessThanOrEqual(1000);
  const kept = files.join("").trimEnd().split("\n");
  expect(kept.length).toBeGreaterThan(250);
  // Whole, in order, and up to the last one.
  expect(kept).toEqual(lines.slice(-kept.length));
});

it("starts a process again that ends, but for one that may end", async () => {
  const ends: (number | undefined)[] = [];
  const supervised = supervise(
    {
      name: "service",
      command: "sleep",
      args: ["600"],
      env: {},
      directory,
      logFile: join(directory, "service.log"),
      stopSignal: "SIGTERM",
      stopSeconds: 5,
    },
    { onLine: () => {}, onEnd: (_, __, restartInSeconds) => void ends.push(restartInSeconds) },
  );
  const end = async (): Promise<void> => {
    const ended = supervised.nextEnd();
    const pid = await eventually("its process", async () => supervised.pid() ?? false);
    process.kill(pid, "SIGTERM");
    await ended;
  };
  await end();
  await eventually("its second start", async () => supervised.starts() === 2);
  supervised.letEnd();
  await end();
  await supervised.stop();
  expect([ends.map((seconds) => seconds !== undefined), supervised.starts()]).toEqual([[true, false], 2]);
});
