import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import type { ImportersReport } from "./importers.ts";

const COMMAND = new URL("./importers.ts", import.meta.url).pathname;

/** Some of what `npm run chaos -- importers` reads by the hundred thousand. */
describe("configurations that are changed at random", () => {
  it("make a job, or a problem that says what to do", async () => {
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [COMMAND, "--inputs", "3000", "--seed", "2"],
      { timeout: 150_000, maxBuffer: 2 ** 26 },
    ).catch((error: { stdout: string }) => error);
    const { violations, read, jobs, refused, roundTrips } = JSON.parse(stdout) as ImportersReport;
    expect(violations).toEqual([]);
    expect(read).toBe(3000);
    expect(Math.min(refused, roundTrips)).toBeGreaterThan(100);
    expect(jobs).toBeGreaterThan(10);
  }, 180_000);
});
