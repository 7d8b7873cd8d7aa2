// `npm test`, after set-up: every check in turn, each shown as it runs, and one closing line with the counts.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { wantsCuda } from "../setup/cuda.mjs";
import { root } from "../setup/steps.mjs";

const results = join(root, "test-results");
rmSync(results, { recursive: true, force: true });
mkdirSync(results);
const vitestReport = join(results, "vitest.json");
const ctestReports = ["ctest.xml", "ctest-cuda.xml"].map((name) => join(root, "native", "build", name));
for (const report of ctestReports) rmSync(report, { force: true });

const nx = (target) => ["nx", ["run", target, "--outputStyle=static"]];
const steps = [
  ["format", ...nx("workspace:format")],
  ["lint", ...nx("workspace:lint")],
  ["types", ...nx("workspace:typecheck")],
  ["module boundaries", ...nx("workspace:boundaries")],
  ["docs", ...nx("workspace:docs")],
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

const outcome = [];
for (const [name, command, args] of steps) {
  const started = Date.now();
  console.log(`\n▸ ${name}`);
  const { status } = spawnSync(command, args, { cwd: root, stdio: ["ignore", "inherit", "inherit"] });
  outcome.push({ name, passed: status === 0, seconds: (Date.now() - started) / 1000 });
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
const passed = native.passed + typescript.passed;
const failed = native.failed + typescript.failed;
// A step can fail without a failed test (lint, types, a crash), and a green run without tests is no green
// run.
const green = failedSteps === 0 && native.passed > 0 && typescript.passed > 0;
console.log(
  `${passed} passed, ${Math.max(failed, green ? 0 : 1)} failed, ${native.skipped + typescript.skipped} skipped`,
);
process.exit(green ? 0 : 1);
