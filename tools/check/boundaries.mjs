// Module boundaries (.dependency-cruiser.cjs). A run that saw no modules is a failure: it would have found
// nothing to complain about.
import { cruise } from "dependency-cruiser";
import { readdirSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const ruleSet = require("../../.dependency-cruiser.cjs");

const sources = ["libs", "apps"].flatMap((room) =>
  readdirSync(room, { recursive: true }).filter(
    (path) => /(^|\/)src\/.*\.tsx?$/.test(path) && !path.includes("node_modules"),
  ),
);
const { output } = await cruise(
  ["libs", "apps"],
  { ...ruleSet.options, ruleSet: { forbidden: ruleSet.forbidden }, validate: true },
  undefined,
  undefined,
);
const { summary } = output;
for (const violation of summary.violations)
  console.error(`${violation.rule.severity} ${violation.rule.name}: ${violation.from} → ${violation.to}`);
console.log(
  `${summary.totalCruised} modules, ${summary.totalDependenciesCruised} dependencies, ${summary.error} violations`,
);
if (summary.totalCruised < sources.length) {
  console.error(`only ${summary.totalCruised} of ${sources.length} source files were seen`);
  process.exit(1);
}
process.exit(summary.error > 0 ? 1 : 0);
