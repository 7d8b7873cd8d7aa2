// The queue for hosts beside many stored jobs, as JSON: `npm run bench -- queue [--jobs 100000] [--alive 500]
// [--operations 2000] [--seed 1] [--write docs/benchmarks]`. The real Postgres, one call after the other.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startLocalStack } from "@internevo/local-stack";
import { migrateDatabase, openDatabase } from "@internevo/store";
import { writeQueuePage } from "./src/queue-page.ts";
import { measureQueueStore } from "./src/queue-store.ts";
import { observeCircumstances } from "./src/report.ts";

const { values } = parseArgs({
  options: {
    jobs: { type: "string", default: "100000" },
    alive: { type: "string", default: "500" },
    operations: { type: "string", default: "2000" },
    seed: { type: "string", default: "1" },
    write: { type: "string" },
  },
});
function positive(name: Exclude<keyof typeof values, "write">): number {
  const value = Number(values[name]);
  if (!Number.isInteger(value) || value < 1)
    throw new Error(`--${name} ${values[name]}: give an integer from 1`);
  return value;
}
const load = {
  jobs: positive("jobs"),
  projects: 50,
  clusters: 20,
  hostsOfACluster: 16,
  alive: positive("alive"),
  operations: positive("operations"),
  seed: positive("seed"),
};

const circumstances = observeCircumstances(
  `npm run --silent bench -- queue ${process.argv.slice(2).join(" ")}`.trim(),
);
const directory = mkdtempSync(join(tmpdir(), "internevo-queue-"));
const stack = await startLocalStack({ dataDirectory: directory, services: [] });
try {
  const { databaseUrl } = stack.info();
  await migrateDatabase(databaseUrl);
  const database = openDatabase({ url: databaseUrl, applicationName: "bench", statementSeconds: null });
  const result = await measureQueueStore(database, load);
  await database.close();
  const where = circumstances();
  if (values.write !== undefined) await writeQueuePage(values.write, result, where);
  console.log(
    JSON.stringify({ schemaVersion: 1, benchmark: "queue", circumstances: where, ...result }, null, 2),
  );
} finally {
  await stack.stop();
  rmSync(directory, { recursive: true, force: true });
}
