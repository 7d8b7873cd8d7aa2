// A cluster on one machine: `npm run testbed -- COMMAND`; see docs/how-to/use-the-testbed.md.
import { spawn, spawnSync } from "node:child_process";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { ProblemError } from "@internevo/domain";
import { CLUSTERS_VARIABLE } from "@internevo/launcher";
import {
  bandwidthOf,
  checkedName,
  DEFAULT_NAME,
  DEFAULT_SETTINGS,
  formatBandwidth,
  formatLatency,
  latencyOf,
  wholeNumber,
  type Settings,
} from "./src/options.ts";
import { compareLinks, comparisonText } from "./src/measure.ts";
import { processesInside } from "./src/processes.ts";
import {
  clustersFileOf,
  current,
  down,
  hostName,
  shape,
  up,
  whyImpossible,
  type State,
} from "./src/testbed.ts";

const USAGE = `usage: npm run testbed -- COMMAND
  up      build a testbed      [--name NAME] [--nodes 2] [--ranks-per-node 2] [--bandwidth 1gbit] [--latency 100us]
  shape   give its links another bandwidth, while it is used   [--name NAME] --bandwidth 250mbit
  down    take it away         [--name NAME]
  status  say what stands      [--name NAME]
  run     run a command whose launches can use it: cluster: { name: NAME, launcher: ssh }   [--name NAME] -- COMMAND ...
  probe   measure collectives inside a node and between nodes   [--name NAME]
  replan  test on one of its own that a run changes its plan when its links become slow: minutes
  demo    the whole product on it: profile, plan, try, train; builds it if it is down       [as up] [--job FILE]`;

const repository = resolve(import.meta.dirname, "../..");
const [command = "", ...rest] = process.argv.slice(2);
const boundary = rest.indexOf("--");
const own = boundary < 0 ? rest : rest.slice(0, boundary);
const foreign = boundary < 0 ? [] : rest.slice(boundary + 1);

function parsed() {
  try {
    return parseArgs({
      args: own,
      options: {
        name: { type: "string" },
        nodes: { type: "string" },
        "ranks-per-node": { type: "string" },
        bandwidth: { type: "string" },
        latency: { type: "string" },
        job: { type: "string" },
      },
    }).values;
  } catch (error) {
    throw new ProblemError("bad-request", `${(error as Error).message}\n${USAGE}`);
  }
}

type Values = ReturnType<typeof parsed>;

const settingsOf = (values: Values): Settings => ({
  nodes: values.nodes === undefined ? DEFAULT_SETTINGS.nodes : wholeNumber("--nodes", values.nodes, 64),
  ranksPerNode:
    values["ranks-per-node"] === undefined
      ? DEFAULT_SETTINGS.ranksPerNode
      : wholeNumber("--ranks-per-node", values["ranks-per-node"], 256),
  bandwidthBitsPerSecond:
    values.bandwidth === undefined ? DEFAULT_SETTINGS.bandwidthBitsPerSecond : bandwidthOf(values.bandwidth),
  latencySeconds: values.latency === undefined ? DEFAULT_SETTINGS.latencySeconds : latencyOf(values.latency),
});

const describe = ({ name, settings, burstBytes }: State): string =>
  `testbed ${name}: ${settings.nodes} nodes (${Array.from({ length: settings.nodes }, (_, node) => hostName(name, node)).join(", ")}) of ${settings.ranksPerNode} ranks; ` +
  `links of ${formatBandwidth(settings.bandwidthBitsPerSecond)} each way (bursts of ` +
  `${Math.round(burstBytes / 1024)} KiB), latency: ${formatLatency(settings.latencySeconds)}`;

/** Runs a command in the testbed's environment; signals reach it. @returns its exit code. */
function runWith(name: string, [file = "", ...parameters]: readonly string[]): Promise<number> {
  const child = spawn(file, parameters, {
    stdio: "inherit",
    env: { ...process.env, [CLUSTERS_VARIABLE]: clustersFileOf(name) },
  });
  const forward = (signal: NodeJS.Signals): void => void child.kill(signal);
  process.on("SIGTERM", forward).on("SIGHUP", forward);
  // The terminal sends Ctrl-C to the child as well.
  process.on("SIGINT", () => {});
  return new Promise((settle, reject) => {
    child.once("error", (error) =>
      reject(new ProblemError("bad-request", `${file} cannot be started: ${error.message}`)),
    );
    child.once("exit", (code, signal) => settle(code ?? (signal ? 128 + 15 : 1)));
  });
}

const isDown = (name: string): ProblemError =>
  new ProblemError(
    "unavailable",
    `testbed ${name} is down: \`npm run testbed -- up --name ${name}\` builds it`,
  );

async function main(): Promise<number> {
  const values = parsed();
  const name = checkedName(values.name ?? DEFAULT_NAME);
  switch (command) {
    case "up": {
      const { state, built } = await up(name, settingsOf(values));
      console.log(`${describe(state)}${built ? "" : " (stood already)"}`);
      return 0;
    }
    case "shape": {
      if (values.bandwidth === undefined)
        throw new ProblemError("bad-request", `the bandwidth is missing\n${USAGE}`);
      if (!current(name)) throw isDown(name);
      console.log(describe(await shape(name, bandwidthOf(values.bandwidth))));
      return 0;
    }
    case "down":
      console.log(`testbed ${name} is down; ${await down(name)} processes ended`);
      return 0;
    case "status": {
      const state = current(name);
      console.log(
        state
          ? `${describe(state)}; ${processesInside(state.holder.pid).length} processes inside`
          : `testbed ${name} is down`,
      );
      return state ? 0 : 1;
    }
    case "run":
      if (foreign.length === 0)
        throw new ProblemError("bad-request", `the command to run is missing\n${USAGE}`);
      if (!current(name)) throw isDown(name);
      return runWith(name, foreign);
    case "probe": {
      const state = current(name);
      if (!state) throw isDown(name);
      console.log(`${describe(state)}\n${comparisonText(await compareLinks(state))}`);
      return 0;
    }
    case "replan": {
      const why = whyImpossible();
      if (why !== undefined) throw new ProblemError("unavailable", `no testbed can be built here: ${why}`);
      if (own.length > 0) throw new ProblemError("bad-request", `replan takes no options\n${USAGE}`);
      const { status } = spawnSync(
        "vitest",
        ["run", "--config", join(import.meta.dirname, "vitest.config.ts")],
        { stdio: "inherit", cwd: repository },
      );
      return status ?? 1;
    }
    case "demo": {
      // One that stands is used as it is, and stays. Its name is the cluster's in the job file.
      const standing = current(name);
      const state = standing ?? (await up(name, settingsOf(values))).state;
      console.log(`${describe(state)}${standing ? " (stood already)" : ""}`);
      try {
        return await runWith(name, [
          process.execPath,
          join(repository, "apps/cli/src/main.ts"),
          "quickstart",
          "--job",
          values.job ?? join(repository, "examples/testbed.yaml"),
        ]);
      } finally {
        if (!standing) await down(name);
      }
    }
    default:
      throw new ProblemError("bad-request", USAGE);
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  if (!(error instanceof ProblemError)) throw error;
  console.error(error.message);
  process.exitCode = error.code === "bad-request" ? 2 : 1;
}
