// `npm test`, after set-up: every check in turn, each shown as it runs, and one closing line with the counts.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join, relative } from "node:path";
import { wantsCuda } from "../setup/cuda.mjs";
import { root } from "../setup/steps.mjs";

const results = join(root, "test-results");
rmSync(results, { recursive: true, force: true });
mkdirSync(results);
const vitestReport = join(results, "vitest.json");
const ctestReports = ["ctest.xml", "ctest-cuda.xml"].map((name) => join(root, "native", "build", name));
for (const report of ctestReports) rmSync(report, { force: true });

/** Tests that failed beside the others and passed alone. */
const unsteady = [];
const MOST_UNSTEADY = 3;

const nx = (target) => ["nx", ["run", target, "--outputStyle=static"]];
const steps = [
  // Each has one thread: two at a time, the longest first.
  [
    "lint, types, format, docs, module boundaries",
    "nx",
    [
      "run-many",
      "--projects=workspace",
      "--targets=lint,typecheck,format,docs,boundaries",
      `--parallel=${availableParallelism()}`,
      "--outputStyle=static",
    ],
  ],
  ["native core", ...nx("native:test")],
  // Set-up has compiled and linked it; here it is opened where no GPU is, and its program runs on the model
  // of one.
  ...(wantsCuda() ? [["CUDA backend", ...nx("native:cuda-test")]] : []),
  [
    "services, libraries, console",
    "vitest",
    ["run", "--reporter=default", "--reporter=json", `--outputFile.json=${vitestReport}`],
  ],
];

/** @returns whether the command ended well */
const succeeds = (command, args) =>
  spawnSync(command, args, { cwd: root, stdio: ["ignore", "inherit", "inherit"] }).status === 0;

const outcome = [];
for (const [name, command, args] of steps) {
  const started = Date.now();
  console.log(`\n▸ ${name}`);
  const ended = succeeds(command, args);
  const passed = ended || (command === "vitest" && passesAlone());
  outcome.push({ name, passed, seconds: (Date.now() - started) / 1000 });
}

/**
 * Tests that failed beside all others run once more, with nothing beside them. Those that pass then are named
 * as unsteady: each is a fault of the test or of what it tests, but says nothing of the change at hand. More
 * than a few failures are no accident of the machine.
 */
function passesAlone() {
  const failed = failedTests(vitestReport);
  if (failed.length === 0 || failed.length > MOST_UNSTEADY) return false;
  console.log(`\n▸ again, alone: ${failed.map(({ title }) => title).join("; ")}`);
  const files = [...new Set(failed.map(({ file }) => file))];
  const passed = succeeds("vitest", ["run", "--maxWorkers=1", ...files]);
  if (passed) unsteady.push(...failed);
  return passed;
}

/** Counts of a JUnit file's root element. */
function junitCounts(path) {
  if (!existsSync(path)) return { passed: 0, failed: 0, skipped: 0 };
  const suite = /<testsuite\b[^>]*>/.exec(readFileSync(path, "utf8"))?.[0] ?? "";
  const attribute = (name) => Number(new RegExp(`\\b${name}="(\\d+)"`).exec(suite)?.[1] ?? 0);
  const skipped = attribute("skipped") + attribute("disabled");
  return {
    passed: attribute("tests") - attribute("failures") - skipped,
    failed: attribute("failures"),
    skipped,
  };
}

/** Failed tests of a report; none where a file could not even be read, or the run broke off. */
function failedTests(path) {
  if (!existsSync(path)) return [];
  const { testResults } = JSON.parse(readFileSync(path, "utf8"));
  const failed = testResults.filter(({ status }) => status === "failed");
  const tests = failed.map(({ name, assertionResults }) =>
    assertionResults
      .filter(({ status }) => status === "failed")
      .map(({ fullName }) => ({ file: relative(root, name), title: fullName })),
  );
  return tests.some(({ length }) => length === 0) ? [] : tests.flat();
}

function vitestCounts(path) {
  if (!existsSync(path)) return { passed: 0, failed: 0, skipped: 0 };
  const report = JSON.parse(readFileSync(path, "utf8"));
  return { passed: report.numPassedTests, failed: report.numFailedTests, skipped: report.numPendingTests };
}

const native = { passed: 0, failed: 0, skipped: 0 };
for (const report of ctestReports) {
  for (const [kind, count] of Object.entries(junitCounts(report))) native[kind] += count;
}
const typescript = vitestCounts(vitestReport);
console.log("");
for (const { name, passed, seconds } of outcome)
  console.log(`${passed ? "✓" : "✗"} ${name} (${seconds.toFixed(0)} s)`);
const failedSteps = outcome.filter((each) => !each.passed).length;
for (const { file, title } of unsteady)
  console.log(`~ unsteady: ${file}: ${title} (failed beside the others, passed alone)`);
const passed = native.passed + typescript.passed + unsteady.length;
const failed = native.failed + typescript.failed - unsteady.length;
// A step can fail without a failed test (lint, types, a crash), and a green run without tests is no green
// run.
const green = failedSteps === 0 && native.passed > 0 && typescript.passed > 0;
console.log(
  `${passed} passed, ${Math.max(failed, green ? 0 : 1)} failed, ${native.skipped + typescript.skipped} skipped`,
);
process.exit(green ? 0 : 1);
