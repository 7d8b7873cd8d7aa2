import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const COMMAND = new URL("./random.ts", import.meta.url).pathname;

interface Report {
  readonly killed: Readonly<Record<string, number>>;
  readonly notThereToBeKilled: number;
  readonly ranksLeft: number;
  readonly results: readonly { readonly job: string; readonly broken: readonly string[] }[];
}

it("ten random deaths cost time, and no job", async () => {
  const command = [COMMAND, "--kills", "10", "--jobs", "2", "--seed", "20", "--mean-seconds", "1"];
  const { stdout } = await promisify(execFile)(process.execPath, command, {
    timeout: 590_000,
    maxBuffer: 2 ** 26,
  });
  const { killed, notThereToBeKilled, ranksLeft, results } = JSON.parse(stdout) as Report;
  const deaths = Object.values(killed).reduce((sum, count) => sum + count, 0);
  expect(deaths + notThereToBeKilled).toBe(10);
  expect(deaths).toBeGreaterThan(3);
  expect(results.length).toBeGreaterThanOrEqual(2);
  expect(results.flatMap(({ job, broken }) => broken.map((each) => `${job}: ${each}`))).toEqual([]);
  expect(ranksLeft).toBe(0);
}, 600_000);
