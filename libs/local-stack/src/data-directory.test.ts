import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { assertNotHalfRestored, makeDataDirectory, RESTORE_MARKER } from "./data-directory.ts";
import { lockDirectory } from "./directory-lock.ts";
import { readStackInfo } from "./stack-info.ts";

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "internevo-data-"));
});
afterEach(() => rmSync(directory, { recursive: true }));

describe("makeDataDirectory", () => {
  it("makes parents and logs, and leaves what is there", () => {
    const path = join(directory, "a", "b");
    makeDataDirectory(path);
    writeFileSync(join(path, "kept"), "");
    makeDataDirectory(path);
    expect(existsSync(join(path, "kept"))).toBe(true);
    expect(statSync(join(path, "logs")).isDirectory()).toBe(true);
    expect(statSync(path).mode & 0o777).toBe(0o700);
  });

  it("refuses what can be no directory, with field, value and remedy, and returns", () => {
    writeFileSync(join(directory, "file"), "");
    symlinkSync(join(directory, "circle"), join(directory, "circle"));
    execFileSync("mkfifo", [join(directory, "pipe")]);
    const paths = [
      "/proc/internevo",
      "/proc/self/a/b",
      "/sys/internevo",
      "/dev/null",
      "/dev/null/below",
      join(directory, "file"),
      join(directory, "file", "below"),
      join(directory, "pipe"),
      join(directory, "circle"),
      join(directory, "x".repeat(300)),
    ];
    // In a process of its own: what does not return here would not be ended by a test's time limit.
    const script = `
      import { assertNotHalfRestored, makeDataDirectory, RESTORE_MARKER } from ${JSON.stringify(join(import.meta.dirname, "data-directory.ts"))};
      const said = ${JSON.stringify(paths)}.map((path) => { try { makeDataDirectory(path); return null; } catch ({ code, details }) { return { code, details }; } });
      console.log(JSON.stringify(said));`;
    const { stdout, stderr, signal } = spawnSync(process.execPath, ["--input-type=module", "-e", script], {
      encoding: "utf8",
      timeout: 10_000,
      killSignal: "SIGKILL",
    });
    expect({ signal, stderr }).toEqual({ signal: null, stderr: "" });
    expect(JSON.parse(stdout)).toEqual(
      paths.map((value) => ({
        code: "bad-request",
        details: [
          {
            field: "dataDirectory",
            value,
            message: expect.any(String),
            remedy: expect.stringContaining("choose"),
          },
        ],
      })),
    );
  });
});

it("a directory in which no lock can be made is refused in the same words", () => {
  writeFileSync(join(directory, "file"), "");
  let said: unknown;
  try {
    lockDirectory(join(directory, "file"));
  } catch (error) {
    said = error;
  }
  expect(said).toMatchObject({
    code: "bad-request",
    details: [
      {
        field: "dataDirectory",
        message: "leads through something that is no directory",
        remedy: "choose a directory",
      },
    ],
  });
});

it("no stack runs by a record that is none", () => {
  for (const text of ["[]", "null", "{}", '{"pid":"x"}', '{"pid":1}']) {
    writeFileSync(join(directory, "stack.json"), text);
    expect(readStackInfo(directory), text).toBeUndefined();
  }
});

it("no stack runs below a file", () => {
  writeFileSync(join(directory, "file"), "");
  expect(readStackInfo(join(directory, "file"))).toBeUndefined();
});

describe("a directory into which a backup is restored", () => {
  it("is refused until the restore is finished", () => {
    writeFileSync(join(directory, RESTORE_MARKER), "");
    expect(() => assertNotHalfRestored(directory)).toThrow(`a restore into ${directory} is not finished`);
    rmSync(join(directory, RESTORE_MARKER));
    expect(() => assertNotHalfRestored(directory)).not.toThrow();
  });
});
