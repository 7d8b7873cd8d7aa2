// Kills ranks, fills disks, and cuts and flips files of checkpoints, in many short runs of the real trainer, and checks that each ends with
// the losses and weights of the undisturbed run, or is refused clearly and does so after the remedy. Prints JSON, and a table on standard error.
// usage: npm run chaos -- checkpoints [--runs 200] [--seed 1] [--kind killed,full,truncated,flipped] [--run N,...]
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { KINDS, scenarioOf, type Kind } from "./src/checkpoints/draw.ts";
import { runScenario, type RunResult } from "./src/checkpoints/kinds.ts";
import { References } from "./src/checkpoints/reference.ts";
import { tableOf, type Report } from "./src/checkpoints/report.ts";
import { wholeNumber } from "./src/whole-number.ts";

const INSIDE = "CHAOS_MOUNT_NAMESPACE";

const { values } = parseArgs({
  options: {
    runs: { type: "string", default: "200" },
    seed: { type: "string", default: "1" },
    kind: { type: "string", default: KINDS.join(",") },
    run: { type: "string" },
  },
});
const seed = wholeNumber("--seed", values.seed, 0);
const count = wholeNumber("--runs", values.runs, 1);
const kinds = values.kind.split(",").map((kind) => {
  if (!(KINDS as readonly string[]).includes(kind))
    throw new Error(`--kind ${kind}: is not one of ${KINDS.join(", ")}`);
  return kind as Kind;
});
const numbers =
  values.run === undefined
    ? Array.from({ length: count }, (_, number) => number)
    : values.run.split(",").map((number) => wholeNumber("--run", number, 0));

async function main(): Promise<number> {
  const directory = mkdtempSync(join(tmpdir(), "internevo-chaos-"));
  const references = new References(directory);
  const results: RunResult[] = [];
  const begin = performance.now();
  let interrupted = false;
  process.on("SIGINT", () => (interrupted = true)).on("SIGTERM", () => (interrupted = true));
  for (const number of numbers) {
    if (interrupted) break;
    const scenario = scenarioOf(seed, number, kinds);
    const result = await runScenario(scenario, references, directory);
    results.push(result);
    const good = result.violations.length === 0;
    console.error(
      `${good ? "✓" : "✗"} ${number} ${scenario.kind}: ${scenario.setting.name}, ` +
        `${scenario.plan} (${result.seconds.toFixed(1)} s): ${result.story.join("; ")}`,
    );
    for (const violation of result.violations) console.error(`    ${violation}`);
    if (!good)
      console.error(
        `    again: npm run chaos -- checkpoints --seed ${seed} --kind ${kinds.join(",")} --run ${number}; what it left is in ${join(directory, `run-${number}`)}`,
      );
  }
  const report: Report = {
    chaos: "checkpoints",
    seed,
    runs: results.length,
    seconds: (performance.now() - begin) / 1000,
    results,
  };
  const broken = results.some(({ violations }) => violations.length > 0);
  if (!broken) rmSync(directory, { recursive: true });
  console.log(JSON.stringify(report, null, 2));
  console.error(`\n${tableOf(results)}`);
  return broken || interrupted ? 1 : 0;
}

/**
 * Runs all of this in a mount namespace of its own: small disks are mounted there, seen by nobody else, and
 * gone with the last process.
 */
function enterNamespace(): Promise<number> {
  const identity = process.getuid?.() === 0 ? [] : ["--user", "--map-root-user"];
  const child = spawn("unshare", [...identity, "--mount", "--", process.execPath, ...process.argv.slice(1)], {
    stdio: "inherit",
    env: { ...process.env, [INSIDE]: "1" },
  });
  process.on("SIGINT", () => {}).on("SIGTERM", () => child.kill("SIGTERM"));
  return new Promise((settle, fail) => {
    child.once("error", (error) =>
      fail(
        new Error(
          `unshare cannot be started (${error.message}): disks that are ` +
            "full need it; without them: --kind killed,truncated,flipped",
        ),
      ),
    );
    child.once("exit", (code) => settle(code ?? 1));
  });
}

process.exitCode =
  kinds.includes("full") && process.env[INSIDE] === undefined ? await enterNamespace() : await main();
