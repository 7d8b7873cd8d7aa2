import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import type { Report } from "./src/checkpoints/report.ts";

const COMMAND = new URL("./checkpoints.ts", import.meta.url).pathname;

/** A few runs of what `npm run chaos -- checkpoints` does by the hundred. */
describe("runs that are killed, and checkpoints that are damaged", () => {
  it.each([
    ["killed", 3],
    ["truncated", 2],
    ["flipped", 2],
  ])(
    "end with the undisturbed losses, or are refused by name: %s",
    async (kind, runs) => {
      const { stdout } = await promisify(execFile)(
        process.execPath,
        [COMMAND, "--kind", kind, "--runs", String(runs), "--seed", "11"],
        { timeout: 110_000, maxBuffer: 2 ** 26 },
      );
      const { results } = JSON.parse(stdout) as Report;
      expect(results.map(({ violations }) => violations)).toEqual(Array.from({ length: runs }, () => []));
      expect(results.flatMap(({ story }) => story).join("; ")).toMatch(
        kind === "killed" ? /rank \d killed/ : /refused, and removed as the remedy says/,
      );
    },
    120_000,
  );
});
