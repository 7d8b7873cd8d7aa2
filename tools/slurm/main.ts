// A Slurm cluster on this machine for as long as a command runs: `npm run slurm -- run [--nodes 3]
// [--cpus-per-node 4] -- COMMAND ...`; see docs/how-to/run-on-slurm.md.
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startSlurm, whyImpossible } from "./src/stand.ts";

const USAGE = "usage: npm run slurm -- run [--nodes 3] [--cpus-per-node 4] -- COMMAND ...";

function fail(message: string, status: number): never {
  console.error(message);
  process.exit(status);
}

function countOf(option: string, text: string | undefined, otherwise: number, most: number): number {
  const value = text === undefined ? otherwise : Number(text);
  return Number.isInteger(value) && value >= 1 && value <= most
    ? value
    : fail(`${option} is ${text}: give a whole number from 1 to ${most}\n${USAGE}`, 2);
}

const [verb = "", ...rest] = process.argv.slice(2);
const boundary = rest.indexOf("--");
const [file, ...parameters] = boundary < 0 ? [] : rest.slice(boundary + 1);
if (verb !== "run" || file === undefined) fail(USAGE, 2);
const options = ((): { nodes?: string; "cpus-per-node"?: string } => {
  try {
    return parseArgs({
      args: rest.slice(0, boundary),
      options: { nodes: { type: "string" }, "cpus-per-node": { type: "string" } },
    }).values;
  } catch (error) {
    return fail(`${(error as Error).message}\n${USAGE}`, 2);
  }
})();
const nodes = countOf("--nodes", options.nodes, 3, 16);
const cpusPerNode = countOf("--cpus-per-node", options["cpus-per-node"], 4, 256);
const impossible = whyImpossible();
if (impossible !== undefined) fail(`No Slurm can be started here: ${impossible}`, 1);

const slurm = await startSlurm({ nodes, cpusPerNode });
const clusters = join(slurm.directory, "clusters.json");
writeFileSync(clusters, JSON.stringify({ clusters: { slurm: { slurm: { pollSeconds: 1 } } } }));
console.error(
  `Slurm with nodes ${slurm.nodes.join(", ")}; jobs use it by cluster: { name: slurm, launcher: slurm }`,
);
const child = spawn(file, parameters, {
  stdio: "inherit",
  env: { ...process.env, ...slurm.environment, INTERNEVO_CLUSTERS: clusters },
});
const forward = (signal: NodeJS.Signals): void => void child.kill(signal);
process.on("SIGTERM", forward).on("SIGHUP", forward);
// The terminal sends Ctrl-C to the child as well.
process.on("SIGINT", () => {});
process.exitCode = await new Promise<number>((settle) => {
  child.once("error", (error) => (console.error(`${file} cannot be started: ${error.message}`), settle(2)));
  child.once("exit", (code, signal) => settle(code ?? (signal ? 128 + 15 : 1)));
});
await slurm.stop();
