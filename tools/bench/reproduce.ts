// The paper's evaluation, predicted: `npm run reproduce [-- --no-write]`. Ends with 1 when a bar is missed
// without numbers that account for it.
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { shippedProfile } from "@internevo/cost-model";
import { observeCircumstances } from "./src/report.ts";
import { evaluateAblations } from "./src/reproduce/ablations.ts";
import { barsOf } from "./src/reproduce/bars.ts";
import { evaluateCases, evaluateRows } from "./src/reproduce/evaluate.ts";
import { evaluateScalability, SCALABILITY } from "./src/reproduce/longest.ts";
import { pageOf, writeReproduction } from "./src/reproduce/page.ts";
import { PROFILE } from "./src/reproduce/paper.ts";

const { values } = parseArgs({ options: { "no-write": { type: "boolean", default: false } } });
const observe = observeCircumstances("npm run reproduce");
const profile = shippedProfile(PROFILE);
console.error("planning every model and length");
const cases = evaluateCases(profile);
console.error("placing the paper's plans");
const rows = evaluateRows(profile);
console.error("looking for the largest lengths");
const scalability = SCALABILITY.map((each) => evaluateScalability(each, profile));
const bars = barsOf(cases, rows, scalability, profile);
console.error("taking the paper's measures away one by one");
const ablations = evaluateAblations(cases, rows, scalability, profile);
const reproduction = { cases, rows, scalability, bars, ablations, profile };
const directory = fileURLToPath(new URL("../../docs/benchmarks", import.meta.url));
console.log(
  values["no-write"]
    ? pageOf(reproduction, observe()).body
    : await writeReproduction(directory, reproduction, observe()),
);
for (const { name, checked, exceptions, missed } of bars) {
  const met =
    exceptions.length === 0
      ? "met"
      : `not met by ${exceptions.length} of ${checked}, for which numbers account`;
  console.error(`${missed.length > 0 ? "MISSED" : met}: ${name}`);
}
process.exitCode = bars.some(({ missed }) => missed.length > 0) ? 1 : 0;
