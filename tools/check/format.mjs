// Layout of the sources: prettier for TypeScript, JavaScript, CSS and HTML, clang-format for C++ and CUDA.
// `npm run format` writes; `node tools/check/format.mjs` only says which files differ and ends with status 1.
import { spawnSync } from "node:child_process";
import { globSync } from "node:fs";
import { root } from "../setup/steps.mjs";

const write = process.argv.includes("--write");

/** Runs a formatter in the workspace and gives back whether it found nothing to change. */
function run(command, args) {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: ["ignore", "inherit", "inherit"] });
  if (error) throw new Error(`${command} could not be started: ${error.message}`);
  return status === 0;
}

const sources = globSync("native/{include,src,emulator,tests}/**/*.{h,cpp,cu}", { cwd: root });

const passed = [
  run("prettier", [write ? "--write" : "--check", "--log-level=warn", "."]),
  run("clang-format", write ? ["-i", ...sources] : ["--dry-run", "--Werror", ...sources]),
];
if (passed.includes(false)) {
  console.error(
    "Some sources are not laid out as the formatters do it. Run `npm run format` and look at what it changed.",
  );
  process.exit(1);
}
