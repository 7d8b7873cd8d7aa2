import { isConnectionLoss, isDiskFull, recordTokenUse, type Database } from "@internevo/store";
import type { FastifyInstance } from "fastify";

const WRITE_MILLISECONDS = 10_000;

/**
 * Remembers which tokens are in use, so that an admin sees those that are not. Written together every ten
 * seconds: a request waits for nothing.
 * @returns what notes a use, by the token's id.
 */
export function registerTokenUse(app: FastifyInstance, database: Database): (id: string) => void {
  const used = new Set<string>();
  async function write(): Promise<void> {
    if (used.size === 0) return;
    const ids = [...used];
    used.clear();
    try {
      await recordTokenUse(database.db, ids);
    } catch (error) {
      if (!isConnectionLoss(error) && !isDiskFull(error)) throw error;
      for (const id of ids) used.add(id);
    }
  }
  const timer = setInterval(() => {
    write().catch((error: unknown) => app.log.error({ err: error }, "the use of tokens could not be stored"));
  }, WRITE_MILLISECONDS).unref();
  app.addHook("onClose", async () => {
    clearInterval(timer);
    await write();
  });
  return (id) => void used.add(id);
}
