import { formatInteger } from "@internevo/domain";
import { circumstancesText, table, writePage, type Circumstances } from "./report.ts";
import type { QueueStoreResult } from "./queue-store.ts";

const ms = (value: number): string => `${value.toFixed(1)} ms`;

/** Writes the figures of the page `queue.md` in a folder. */
export const writeQueuePage = (
  directory: string,
  { load, waitingAtTheEnd, holdingAtTheEnd, operations }: QueueStoreResult,
  circumstances: Circumstances,
): Promise<void> =>
  writePage({
    directory,
    name: "queue",
    title: "The queue beside many stored jobs",
    body: [
      `This page says how long the product takes for what it does with its queue. Postgres holds ${formatInteger(load.jobs)} jobs that are over, each with its hold of hosts in this month, of ${load.projects} projects; every third project has quotas. ${formatInteger(load.alive)} jobs hold hosts of ${load.clusters} clusters of ${load.hostsOfACluster} hosts, or wait for them; at the end ${formatInteger(holdingAtTheEnd)} held and ${formatInteger(waitingAtTheEnd)} waited. Half of them give way to more urgent work. Their draw has seed ${load.seed}.`,
      "Each time is of one call on one connection, with its transaction where it writes. Every write is on disk when the call ends. Changes of the queue come one after the other, whoever asks.",
      table(
        ["what", "times", "p50", "p99", "longest"],
        Object.entries(operations).map(([what, { count, p50, p99, most }]) => [
          what,
          formatInteger(count),
          ms(p50),
          ms(p99),
          ms(most),
        ]),
      ),
      circumstancesText(circumstances),
    ].join("\n\n"),
    images: {},
  });
