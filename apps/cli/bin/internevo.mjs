#!/usr/bin/env node
// Plain JavaScript that an old Node understands: it hands over to the Node that the workspace pins, which
// runs the sources.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { constants } from "node:os";
import { fileURLToPath } from "node:url";

const WANTED_MAJOR = 24;
const pinned = fileURLToPath(new URL("../../../.tools/node/bin/node", import.meta.url));
const compileCache = fileURLToPath(new URL("../../../.tools/compile-cache", import.meta.url));
const main = fileURLToPath(new URL("../src/main.ts", import.meta.url));
const isNewEnough = Number(process.versions.node.split(".")[0]) >= WANTED_MAJOR;
const own = isNewEnough ? process.execPath : undefined;
const node = existsSync(pinned) ? pinned : own;

if (node === undefined) {
  process.stderr.write(
    `internevo: this Node is ${process.versions.node}, and ${WANTED_MAJOR} or newer is needed; \`npm run setup\` installs it into the checkout\n`,
  );
  process.exit(5);
}

// What is compiled once is kept: half of the time that a command, or a service of the local stack, takes to
// start.
const env = { NODE_COMPILE_CACHE: compileCache, ...process.env };
const child = spawn(node, ["--disable-warning=ExperimentalWarning", main, ...process.argv.slice(2)], {
  stdio: "inherit",
  env,
});
// A terminal sends Ctrl-C to the whole group, so the child may have it already; twice is as once.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  process.stderr.write(`internevo: cannot start ${node}: ${error.message}\n`);
  process.exit(5);
});
child.on("exit", (code, signal) => process.exit(signal === null ? code : 128 + constants.signals[signal]));
