import { resolve } from "node:path";
import { keepLease, LEASE_TTL_SECONDS, type Service } from "@internevo/service-kit";
import { removeDue, removeUnusedCopies } from "@internevo/stages";
import { acquireLease, beginRetentionRun, isRetentionDue } from "@internevo/store";
import { Counter } from "prom-client";

const LEASE = "maintenance:retention";
const EVERY_HOURS = 24;
const DATASETS_EVERY_SECONDS = 3600;

/** What the service has to know. */
interface RetentionConfig {
  readonly INTERNEVO_DATA_DIRECTORY: string;
  readonly INTERNEVO_REPLANNER_POLL_SECONDS: number;
}

/** Removes what ended jobs leave, once a day and on request. Any number of replanners may: one at a time does. */
export function startRetention(
  service: Pick<Service<unknown>, "database" | "log" | "health" | "name" | "every"> & {
    readonly config: RetentionConfig;
  },
): void {
  const { config, database, log, health, name } = service;
  const registers = [health.registry];
  const bytes = new Counter({
    name: "internevo_retention_removed_bytes_total",
    help: "Bytes of files that retention removed",
    labelNames: ["kind"],
    registers,
  });
  const rows = new Counter({
    name: "internevo_retention_removed_rows_total",
    help: "Rows in Postgres that retention removed",
    labelNames: ["kind"],
    registers,
  });
  service.every(DATASETS_EVERY_SECONDS, "copies of text that nobody needs", async (signal) => {
    const dataDirectory = resolve(config.INTERNEVO_DATA_DIRECTORY);
    const removed = await removeUnusedCopies({ database, dataDirectory, now: new Date(), signal });
    bytes.inc({ kind: "datasets" }, removed.bytes);
    if (removed.files > 0) log.info(removed, "copies of text that nobody used for days were removed");
  });
  service.every(config.INTERNEVO_REPLANNER_POLL_SECONDS, "retention", async (signal) => {
    if (!(await isRetentionDue(database.db, EVERY_HOURS))) return;
    const fence = await acquireLease(database.db, LEASE, name, LEASE_TTL_SECONDS);
    if (!fence) return;
    const stop = new AbortController();
    const keeper = keepLease({ database, fence, stop, isCancelled: () => Promise.resolve(false) });
    try {
      // Another replanner may have done it before the lease was free.
      if (!(await isRetentionDue(database.db, EVERY_HOURS))) return;
      const runId = await database.transaction((tx) => beginRetentionRun(tx, fence));
      await removeDue({
        database,
        dataDirectory: resolve(config.INTERNEVO_DATA_DIRECTORY),
        fence,
        runId,
        now: new Date(),
        signal: AbortSignal.any([signal, stop.signal]),
        onRemoved: (kind, removed) => {
          bytes.inc({ kind }, removed.bytes);
          rows.inc({ kind }, removed.rows);
        },
        onFailure: (error, { jobId, kind }) =>
          log.warn({ err: error, jobId, kind }, "retention could not delete this; the next run tries again"),
      });
      log.info({ runId }, "retention has removed what was due");
    } finally {
      await keeper.close();
    }
  });
}
