// Entry of `npm run quickstart`, `npm test` and `npm run setup`. Plain JavaScript without dependencies: it runs on whatever Node the machine has,
// before anything is installed, and hands over to the Node that the workspace pins.
import { spawn } from "node:child_process";
import { ensureNode, ensureNodePackages } from "./node.mjs";
import { ensureSystemPackages, SetupError } from "./system-packages.mjs";
import { root, runStep } from "./steps.mjs";

const purposes = {
  quickstart: { packages: ["build", "run"], projects: ["native", "@internevo/console"] },
  test: { packages: ["build", "run", "test"], projects: ["native", "@internevo/console"] },
  setup: { packages: ["build", "run", "test"], projects: ["native", "@internevo/console"] },
};

const [purpose, ...rest] = process.argv.slice(2);
const wanted = purposes[purpose];
if (!wanted) {
  console.error(`usage: node tools/setup/run.mjs ${Object.keys(purposes).join("|")} [arguments]`);
  process.exit(2);
}

try {
  const started = Date.now();
  ensureSystemPackages(wanted.packages);
  const node = ensureNode();
  ensureNodePackages(node);
  for (const project of wanted.projects) {
    runStep(`Building ${project}`, "from the cache when nothing changed", node.bin("nx"), ["run", `${project}:build`, "--outputStyle=static"], { env: node.env });
  }
  console.error(`\nSet-up done in ${((Date.now() - started) / 1000).toFixed(0)} s.`);
  if (purpose === "quickstart") await handOver(node, [`${root}/apps/cli/src/main.ts`, "quickstart", ...rest]);
  if (purpose === "test") await handOver(node, [`${root}/tools/check/all.mjs`, ...rest]);
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  console.error(`\n${error.message}`);
  process.exit(1);
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
