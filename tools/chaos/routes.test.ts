import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import type { RoutesReport } from "./routes.ts";

const COMMAND = new URL("./routes.ts", import.meta.url).pathname;

/** Some seconds of what `npm run chaos -- routes` does for minutes. */
describe("every route", () => {
  it("answers what is allowed, nearly that, and what nobody means as it is documented", async () => {
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [COMMAND, "--requests", "400", "--seconds", "90", "--seed", "4"],
      { timeout: 170_000, maxBuffer: 2 ** 26 },
    ).catch((error: { stdout: string }) => error);
    const { violations, operations, requests, statuses } = JSON.parse(stdout) as RoutesReport;
    expect(violations).toEqual([]);
    // Every operation was asked, and some answered with success.
    expect(requests).toBeGreaterThan(Object.keys(operations).length);
    expect(Object.keys(operations).length).toBeGreaterThan(25);
    expect(statuses["200"]).toBeGreaterThan(5);
  }, 180_000);
});
