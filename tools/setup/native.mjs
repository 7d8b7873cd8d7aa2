// Builds or tests the native core: the commands behind the Nx targets native:build and native:test.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { cudaOptions, wantsCuda } from "./cuda.mjs";
import { root } from "./steps.mjs";

const native = join(root, "native");
const build = join(native, "build");
const jobs = String(availableParallelism());

function run(command, args) {
  const result = spawnSync(command, args, { cwd: native, stdio: "inherit" });
  if (result.status !== 0) process.exit(result.status ?? 1);
}

/** A build tree of another checkout can't be used: CMake keeps absolute paths in it. */
function dropForeignTree() {
  const cache = join(build, "CMakeCache.txt");
  if (existsSync(cache) && !readFileSync(cache, "utf8").includes(`CMAKE_HOME_DIRECTORY:INTERNAL=${native}\n`))
    rmSync(build, { recursive: true });
}

/**
 * The tests compile for longer than the programs, and need a library of their own: only `test` builds them.
 */
function compile(withTests) {
  dropForeignTree();
  run("cmake", ["--preset", "default", `-DINTERNEVO_TESTS=${withTests ? "ON" : "OFF"}`, ...cudaOptions()]);
  run("cmake", ["--build", "--preset", "default", "-j", jobs]);
}

/** CMake leaves files that it no longer installs. What it installs stays: programs may be started meanwhile. */
function removeStale() {
  const installed = new Set(readFileSync(join(build, "install_manifest.txt"), "utf8").split("\n"));
  const look = (folder) => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) look(path);
      else if (!installed.has(path)) rmSync(path);
    }
  };
  look(join(native, "dist"));
}

/**
 * Tests of several ranks take two places (their PROCESSORS). There is one place more than cores: many tests
 * wait for programs that they start.
 * @param options of ctest that choose tests
 */
function runTests(report, options) {
  run("ctest", [
    "--preset",
    "default",
    "--parallel",
    String(availableParallelism() + 1),
    "--no-tests=error",
    "--output-junit",
    join(build, report),
    ...options,
  ]);
}

const task = process.argv[2];
if (task === "build") {
  compile(false);
  run("cmake", ["--install", build]);
  removeStale();
} else if (task === "test") {
  compile(true);
  runTests("ctest.xml", ["--label-exclude", "cuda"]);
} else if (task === "cuda-test") {
  if (!wantsCuda()) {
    console.error(
      "The tests of the CUDA backend are built with INTERNEVO_CUDA=1 in the environment: set it.",
    );
    process.exit(2);
  }
  compile(true);
  runTests("ctest-cuda.xml", [
    "--label-regex",
    process.env.INTERNEVO_CUDA_TESTS === "all" ? "cuda" : "^cuda$",
  ]);
} else {
  console.error("usage: native.mjs build|test|cuda-test");
  process.exit(2);
}
