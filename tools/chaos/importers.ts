// Reads configurations that are nearly those of the four frameworks, and some that are nothing of the kind,
// by the hundred thousand: each must make a job, or a problem with field and remedy, in a second and in
// bounded memory; and what is exported must be read back as the same plan. Inputs that reach new code are
// changed further; before them, texts that grow are read. Prints JSON.
// usage: npm run chaos -- importers [--inputs 200000] [--seed 1]
import { fork } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { wholeNumber } from "./src/whole-number.ts";
import type { WorkerReport } from "./src/importers/worker.ts";

const { values } = parseArgs({
  options: { inputs: { type: "string", default: "200000" }, seed: { type: "string", default: "1" } },
});
const inputs = wholeNumber("--inputs", values.inputs, 1);
const seed = wholeNumber("--seed", values.seed, 0);

const MOST_MEGABYTES = 512;
const HANGS_AFTER_SECONDS = 60;

export type ImportersReport = {
  readonly chaos: "importers";
  readonly seed: number;
  readonly seconds: number;
} & WorkerReport;

/**
 * Runs the reading in a process of its own; one that hangs or outgrows its memory is ended, and its last
 * input told.
 */
function report(directory: string): Promise<WorkerReport> {
  const current = join(directory, "input.json");
  const worker = fork(
    new URL("./src/importers/worker.ts", import.meta.url),
    [String(inputs), String(seed), current],
    { execArgv: [`--max-old-space-size=${MOST_MEGABYTES}`], stdio: ["ignore", "ignore", "inherit", "ipc"] },
  );
  // A worker that reads hears of nothing else, not even that nobody waits for it.
  for (const signal of ["SIGINT", "SIGTERM"] as const)
    process.once(signal, () => {
      worker.kill("SIGKILL");
      process.exit(1);
    });
  return new Promise((settle) => {
    const end = (violation: string): void => {
      clearInterval(watch);
      worker.kill("SIGKILL");
      const last = existsSync(current)
        ? (JSON.parse(readFileSync(current, "utf8").split("\n", 1)[0] as string) as Omit<
            WorkerReport["violations"][number],
            "violation"
          >)
        : { input: -1, framework: "internevo" as const, files: [{ name: "", text: "" }] as const };
      settle({
        read: last.input,
        refused: 0,
        jobs: 0,
        roundTrips: 0,
        blocks: 0,
        corpus: 0,
        slowestSeconds: HANGS_AFTER_SECONDS,
        violations: [{ ...last, violation }],
        violationCount: 1,
      });
    };
    const watch = setInterval(() => {
      if (existsSync(current) && Date.now() - statSync(current).mtimeMs > HANGS_AFTER_SECONDS * 1000)
        end(`took more than ${HANGS_AFTER_SECONDS} s`);
    }, 1000);
    worker.once("message", (message) => {
      clearInterval(watch);
      settle(message as WorkerReport);
    });
    worker.once("exit", (code, signal) => end(`the process ended: ${signal ?? code}`));
  });
}

const begin = performance.now();
const directory = mkdtempSync(join(tmpdir(), "internevo-chaos-"));
const found = await report(directory);
rmSync(directory, { recursive: true });
for (const { input, framework, violation } of found.violations)
  console.error(`✗ ${input} ${framework}: ${violation}`);
console.log(
  JSON.stringify(
    {
      chaos: "importers",
      seed,
      seconds: (performance.now() - begin) / 1000,
      ...found,
    } satisfies ImportersReport,
    null,
    2,
  ),
);
process.exitCode = found.violationCount === 0 ? 0 : 1;
