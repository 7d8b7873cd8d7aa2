import {
  acquireLease,
  isConnectionLoss,
  OUTBOX_CHANNEL,
  pause,
  pruneIdempotencyKeys,
  pruneMessages,
  reconcile,
  relayOutbox,
} from "@internevo/store";
import type { CommandRuntime } from "./command.ts";

const RELAY_POLL_SECONDS = 2;
const RECONCILE_SECONDS = 4;
const PRUNE_SECONDS = 3600;
const BATCH = 50;

/**
 * Publishes the outbox: at once when a row is committed, else every two seconds. Any number of processes may.
 */
export async function runRelay(runtime: CommandRuntime): Promise<void> {
  const { database, bus, shutdown, log, metrics } = runtime;
  let news = new AbortController();
  const unlisten = database.notifications.listen(OUTBOX_CHANNEL, () => news.abort());
  const onShutdown = () => news.abort();
  shutdown.addEventListener("abort", onShutdown, { once: true });
  while (!shutdown.aborted) {
    news = new AbortController();
    let published = 0;
    try {
      if (bus.isConnected()) published = await relayOutbox(database, bus, BATCH);
      if (published > 0) metrics.published.inc(published);
    } catch (error) {
      log.warn({ err: error }, "the outbox waits: the broker or the database is away");
      await pause(500, shutdown);
    }
    if (published < BATCH && !shutdown.aborted) await pause(RELAY_POLL_SECONDS * 1000, news.signal);
  }
  unlisten();
  shutdown.removeEventListener("abort", onShutdown);
}

/**
 * Puts right what crashes have left, and forgets what is old. A lease that is left to expire lets one process
 * at a time do it.
 */
export async function runReconciler(runtime: CommandRuntime): Promise<void> {
  const { database, bus, shutdown, log, metrics, holder } = runtime;
  while (!shutdown.aborted) {
    await pause(RECONCILE_SECONDS * 1000, shutdown);
    if (shutdown.aborted || !bus.isConnected()) continue;
    try {
      if (await acquireLease(database.db, "maintenance:reconcile", holder, RECONCILE_SECONDS)) {
        const { recommanded, cancelled, abandoned } = await reconcile(database, (message) =>
          bus.keeps("job.profile", message),
        );
        if (recommanded + cancelled > 0)
          log.warn({ recommanded, cancelled }, "commands that had vanished were written again");
        if (abandoned > 0) log.warn({ abandoned }, "hosts of work that is over were given back");
        metrics.recommanded.inc(recommanded);
      }
      if (await acquireLease(database.db, "maintenance:prune", holder, PRUNE_SECONDS)) {
        await pruneMessages(database.db);
        await pruneIdempotencyKeys(database.db);
      }
    } catch (error) {
      if (!isConnectionLoss(error) && bus.isConnected())
        log.warn({ err: error }, "maintenance failed and will be tried again");
    }
  }
}
