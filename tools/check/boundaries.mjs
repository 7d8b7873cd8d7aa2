// Module boundaries (.dependency-cruiser.cjs), and that every room declares the packages that it uses. A run
// that saw no modules is a failure: it would have found nothing to complain about.
import { cruise } from "dependency-cruiser";
import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { readManifests, undeclared } from "./declared-dependencies.ts";

const require = createRequire(import.meta.url);
const ruleSet = require("../../.dependency-cruiser.cjs");

const rooms = ["libs", "apps", "tools"];
const sources = rooms.flatMap((room) =>
  readdirSync(room, { recursive: true }).filter(
    (path) => /(^|\/)src\/.*\.tsx?$/.test(path) && !path.includes("node_modules"),
  ),
);
const { output } = await cruise(
  rooms,
  { ...ruleSet.options, ruleSet: { forbidden: ruleSet.forbidden }, validate: true },
  undefined,
  undefined,
);
const { modules, summary } = output;
for (const violation of summary.violations)
  console.error(`${violation.rule.severity} ${violation.rule.name}: ${violation.from} → ${violation.to}`);
console.log(
  `${summary.totalCruised} modules, ${summary.totalDependenciesCruised} dependencies, ${summary.error} violations`,
);
if (summary.totalCruised < sources.length) {
  console.error(`only ${summary.totalCruised} of ${sources.length} source files were seen`);
  process.exit(1);
}
const own = modules.filter(({ source }) => rooms.some((room) => source.startsWith(`${room}/`)));
const faults = undeclared(own, readManifests(own.map(({ source }) => source)));
for (const fault of faults) console.error(`undeclared ${fault}`);
process.exit(summary.error + faults.length > 0 ? 1 : 0);
