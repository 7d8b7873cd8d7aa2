// The queue for hosts with a simulated clock, as JSON: `npm run bench -- fair-share [--jobs 10000] [--projects 50]
// [--clusters 20] [--days 90] [--load 0.75] [--seed 1] [--write docs/benchmarks]`. The product's own functions decide who
// starts next; there is no database, and nothing waits. `--write` puts the figures into the page.
import { parseArgs } from "node:util";
import { DEFAULT_QUEUE_SETTINGS } from "@internevo/domain";
import { writeFairSharePage } from "./src/fair-share-page.ts";
import { drawJobs, ORDERS, simulateQueue, type SimulationOptions } from "./src/queue-simulation.ts";
import { observeCircumstances } from "./src/report.ts";

const { values } = parseArgs({
  options: {
    jobs: { type: "string", default: "10000" },
    projects: { type: "string", default: "50" },
    clusters: { type: "string", default: "20" },
    days: { type: "string", default: "90" },
    load: { type: "string", default: "0.75" },
    seed: { type: "string", default: "1" },
    write: { type: "string" },
  },
});
function above0(name: Exclude<keyof typeof values, "write">, isInteger = true): number {
  const value = Number(values[name]);
  if (!(value > 0) || (isInteger && !Number.isInteger(value)))
    throw new Error(
      `--${name} ${values[name]}: give ${isInteger ? "an integer from 1" : "a number above 0, such as 0.75"}`,
    );
  return value;
}

/** Half-lives and patiences that are compared, in hours. */
const OTHER_SETTINGS = [
  { halfLifeHours: 24, patienceHours: 336 },
  { halfLifeHours: 672, patienceHours: 336 },
  { halfLifeHours: 168, patienceHours: 168 },
  { halfLifeHours: 168, patienceHours: 672 },
].map((each) => ({ ...DEFAULT_QUEUE_SETTINGS, ...each }));

const options: SimulationOptions = {
  jobs: above0("jobs"),
  projects: above0("projects"),
  clusters: above0("clusters"),
  hostsOfACluster: 16,
  gpusOfAHost: 8,
  days: above0("days"),
  load: above0("load", false),
  seed: above0("seed"),
};
const circumstances = observeCircumstances(
  `npm run --silent bench -- fair-share ${process.argv.slice(2).join(" ")}`.trim(),
);
const drawn = drawJobs(options);
const result = {
  schemaVersion: 1,
  benchmark: "fair-share",
  options,
  settings: DEFAULT_QUEUE_SETTINGS,
  orders: ORDERS.map((order) => simulateQueue(drawn, order, options)),
  otherSettings: OTHER_SETTINGS.map((settings) => ({
    settings,
    result: simulateQueue(drawn, "fair-share", { ...options, settings }),
  })),
  circumstances: circumstances(),
};
if (values.write !== undefined) await writeFairSharePage(values.write, result);
console.log(JSON.stringify(result, null, 2));
