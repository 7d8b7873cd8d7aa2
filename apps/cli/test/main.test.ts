import { eventually } from "@internevo/test-kit";
import { spawn } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";

const MAIN = new URL("../src/main.ts", import.meta.url).pathname;
const JOB = new URL("../../../examples/paper/7b-32k.yaml", import.meta.url).pathname;
const directory = mkdtempSync(join(tmpdir(), "internevo-main-"));
afterAll(() => rmSync(directory, { recursive: true }));

/** User time of a running process, in seconds. */
const processorSeconds = (pid: number): number =>
  Number(
    readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /, "")
      .split(" ")[11],
  ) / 100;

type Stdout = "pipe" | number;
function start(args: readonly string[], stdout: Stdout = "pipe") {
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", MAIN, ...args], {
    stdio: ["ignore", stdout, "pipe"],
    env: { ...process.env, NO_COLOR: "1" },
  });
  let stderr = "";
  child.stderr?.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null; stderr: string }>(
    (settle) => child.once("close", (code, signal) => settle({ code, signal, stderr })),
  );
  return { child, ended };
}

describe("the program", () => {
  it("ends quietly when its reader has seen enough", async () => {
    const { child, ended } = start(["--json", "plan", JOB, "--top", "500"]);
    child.stdout?.once("data", () => child.stdout?.destroy());
    const { code, stderr } = await ended;
    expect([code, stderr]).toEqual([0, ""]);
  }, 300_000);

  it("says that standard output cannot be written", async () => {
    const full = openSync("/dev/full", "w");
    try {
      const { code, stderr } = await start(["plan", JOB, "--top", "1"], full).ended;
      expect(stderr).toMatch(/^internevo: standard output cannot be written \(ENOSPC\)$/m);
      expect(stderr).not.toMatch(/^ {4}at |node:/m);
      expect(code).toBe(1);
    } finally {
      closeSync(full);
    }
  }, 300_000);

  it.each(["SIGINT", "SIGTERM"] as const)(
    "ends at %s in the middle of a search, and leaves nothing half-written",
    async (name) => {
      const folder = mkdtempSync(join(directory, "interrupted-"));
      const job = join(folder, "job.yaml");
      // Many layouts and shardings: seconds of search, without a pause.
      writeFileSync(
        job,
        `name: large\nmodel: llama-65b\nsequenceLengthTokens: 27720\nglobalBatchTokens: ${27720 * 27720}\nprecision: bf16\ncluster: { nodes: 3465, gpusPerNode: 8, memoryPerGpu: 80GB, profile: a800-128 }\n`,
      );
      const { child, ended } = start([
        "what-if",
        job,
        "--axis",
        "memory",
        "--values",
        "40GB,50GB,60GB,70GB,80GB,90GB,100GB,110GB,120GB",
        "--svg",
        join(folder, "a.svg"),
      ]);
      // To start takes a second of the processor: with three it is in the search.
      await eventually(
        "three seconds of the processor",
        () => child.exitCode !== null || processorSeconds(child.pid as number) >= 3,
        90,
      );
      expect(child.exitCode).toBeNull();
      child.kill(name);
      const { code, signal } = await ended;
      expect([code, signal]).toEqual(code === null ? [null, name] : [130, null]);
      expect(readdirSync(folder)).toEqual(["job.yaml"]);
    },
    300_000,
  );

  it("tells errors of the command line as JSON where JSON is asked for", async () => {
    for (const args of [
      ["--json", "plan"],
      ["--json", "nonsense"],
      ["--json", "plan", JOB, "--top", "0"],
    ]) {
      const { code, stderr } = await start(args).ended;
      expect(code).toBe(2);
      expect(JSON.parse(stderr)).toMatchObject({
        error: { code: "bad-request", message: expect.any(String) as string },
      });
    }
  }, 300_000);
});
