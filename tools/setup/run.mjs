// Entry of the scripts in package.json. Plain JavaScript without dependencies: it runs on whatever Node the
// machine has, before anything is installed, and hands over to the Node that the workspace pins.
import { spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { ensureCuda, wantsCuda } from "./cuda.mjs";
import { ensureNode, ensureNodePackages } from "./node.mjs";
import { ensureSystemPackages, SetupError } from "./system-packages.mjs";
import { buildProgress } from "./progress.mjs";
import { followStep, root } from "./steps.mjs";

const [purpose, ...rest] = process.argv.slice(2);

/** A tool of a folder, by name: `npm run bench -- search`. */
function tool(folder) {
  const names = readdirSync(`${root}/tools/${folder}`).flatMap((name) =>
    name.endsWith(".ts") ? [name.slice(0, -3)] : [],
  );
  const [name, ...args] = rest;
  if (!names.includes(name)) usage(`npm run ${folder} -- ${names.join("|")} [arguments]`);
  return [`${root}/tools/${folder}/${name}.ts`, ...args];
}

function usage(text) {
  console.error(`usage: ${text}`);
  process.exit(2);
}

const purposes = {
  quickstart: {
    packages: ["build", "run"],
    command: () => [`${root}/apps/cli/src/main.ts`, "quickstart", ...rest],
  },
  test: {
    packages: ["build", "run", "test", "format", "testbed", "slurm"],
    command: () => [`${root}/tools/check/all.mjs`, ...rest],
  },
  bench: { packages: ["build", "run"], command: () => tool("bench") },
  reproduce: { packages: ["build", "run"], command: () => [`${root}/tools/bench/reproduce.ts`, ...rest] },
  chaos: { packages: ["build", "run"], command: () => tool("chaos") },
  record: { packages: ["build", "run"], command: () => [`${root}/tools/reference/record.ts`, ...rest] },
  // Plain tests of plain code: nothing but npm's packages takes part.
  "test:unit": {
    packages: [],
    builds: false,
    command: () => [
      `${root}/node_modules/vitest/vitest.mjs`,
      "run",
      "--config",
      `${root}/vitest.unit.config.ts`,
      ...rest,
    ],
  },
  // Kills, losses and backups of whole jobs: some minutes each.
  "test:long": {
    packages: ["build", "run", "test", "slurm"],
    command: () => [
      `${root}/node_modules/vitest/vitest.mjs`,
      "run",
      "--config",
      `${root}/vitest.long.config.ts`,
      ...rest,
    ],
  },
  // Reads and writes configurations only: nothing that is built takes part.
  frameworks: {
    packages: ["frameworks"],
    builds: false,
    command: () => [`${root}/tools/frameworks/check.ts`, ...rest],
  },
  // Sends to real servers; nothing that is built takes part.
  trackers: {
    packages: ["run", "trackers"],
    builds: false,
    command: () => [`${root}/tools/trackers/check.ts`, ...rest],
  },
  // Trains: the trainer takes part.
  models: {
    packages: ["build", "run", "frameworks"],
    command: () => [`${root}/tools/frameworks/models.ts`, ...rest],
  },
  format: {
    packages: ["format"],
    builds: false,
    command: () => [`${root}/tools/check/format.mjs`, "--write", ...rest],
  },
  testbed: {
    packages: ["build", "run", "testbed"],
    command: () => [`${root}/tools/testbed/main.ts`, ...rest],
  },
  slurm: { packages: ["build", "run", "slurm"], command: () => [`${root}/tools/slurm/main.ts`, ...rest] },
  // What the images hold; what runs there comes with them.
  image: { packages: ["build"], command: () => undefined },
  kubernetes: { packages: ["build", "run"], command: () => [`${root}/tools/kubernetes/main.ts`, ...rest] },
  // Node and its packages alone: planning runs nothing that is built, and needs no root.
  "setup:planner": { packages: [], builds: false, command: () => undefined },
  // What a machine needs that runs the services: nothing of the tests.
  "setup:services": { packages: ["build", "run"], command: () => undefined },
  setup: { packages: ["build", "run", "test", "format", "testbed", "slurm"], command: () => undefined },
};
const wanted = purposes[purpose];
if (!wanted) usage(`node tools/setup/run.mjs ${Object.keys(purposes).join("|")} [arguments]`);
const command = wanted.command();

try {
  const started = Date.now();
  const builds = wanted.builds !== false;
  // What was never built is compiled without Nx, which comes with npm's packages: it need not wait for them.
  const isFirst = builds && !existsSync(`${root}/native/dist`);
  // Debian's packages, NVIDIA's wheels and what is compiled with them on one side, Node and npm's packages on the
  // other: neither needs the other.
  const [, node] = await allOrFirstFailure([
    async () => {
      await ensureSystemPackages(builds && wantsCuda() ? [...wanted.packages, "cuda"] : wanted.packages);
      if (builds) await ensureCuda();
      if (isFirst) await build("native", process.execPath, [`${root}/tools/setup/native.mjs`, "build"]);
    },
    async () => {
      const pinned = await ensureNode();
      await ensureNodePackages(pinned);
      if (isFirst) await buildByNx(pinned, "@internevo/console");
      return pinned;
    },
  ]);
  if (builds && !isFirst)
    for (const project of ["native", "@internevo/console"]) await buildByNx(node, project);
  console.error(`\nSet-up done in ${((Date.now() - started) / 1000).toFixed(0)} s.`);
  if (command) await handOver(node, command);
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  console.error(`\n${error.message}`);
  process.exit(1);
}

/** @param options of spawn */
async function build(project, command, args, options) {
  const onLine = buildProgress((line) => console.error(`  ${project}: ${line}`));
  const why = "nothing where nothing changed; the first time takes minutes";
  await followStep(`Building ${project}`, why, command, args, { ...options, onLine });
}

function buildByNx(node, project) {
  const args = ["run", `${project}:build`, "--outputStyle=stream-without-prefixes"];
  return build(project, node.bin("nx"), args, { env: node.env });
}

/**
 * Runs all to their ends, so that none is cut off in the middle of installing; then tells what the others threw,
 * and throws what the first in order threw.
 */
async function allOrFirstFailure(tasks) {
  const results = await Promise.allSettled(tasks.map((task) => task()));
  const [first, ...others] = results.filter((each) => each.status === "rejected");
  for (const { reason } of others) console.error(`\n${reason.message}`);
  if (first) throw first.reason;
  return results.map((each) => each.value);
}

/** Runs the rest in the pinned Node; signals reach it, its status is ours. */
function handOver(node, args) {
  return new Promise((resolve) => {
    const child = spawn(node.executable, args, { cwd: root, env: node.env, stdio: "inherit" });
    // The terminal sends Ctrl-C to the whole group; what is sent to this process alone is passed on.
    for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
    process.on("SIGINT", () => {});
    child.on("exit", (code, signal) => {
      process.exitCode = code ?? (signal ? 128 + 15 : 1);
      resolve();
    });
  });
}
