import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startLocalStack } from "@internevo/local-stack";
import { migrateDatabase } from "@internevo/store";

/** A Postgres that only one test uses, and may hold still. */
export interface OwnPostgres {
  /** Of a migrated database. */
  readonly url: string;
  /** Holds all of its processes still, or only those that serve connections. */
  freeze(which?: "all" | "connections"): void;
  /** Lets all of them go on. */
  thaw(): void;
  stop(): Promise<void>;
}

const childrenOf = (pid: number): number[] =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean).map(Number);

const withDescendants = (pid: number): number[] => [pid, ...childrenOf(pid).flatMap(withDescendants)];

/** A process that serves a connection calls itself `postgres: USER DATABASE HOST(PORT) STATE`. */
const servesConnection = (pid: number): boolean =>
  /^postgres: .*\(\d+\)/.test(readFileSync(`/proc/${pid}/cmdline`, "utf8"));

export async function startOwnPostgres(): Promise<OwnPostgres> {
  const dataDirectory = mkdtempSync(join(tmpdir(), "internevo-own-postgres-"));
  const stack = await startLocalStack({
    dataDirectory,
    services: [],
    databaseUrl: "",
    natsUrl: "",
    durable: false,
  });
  const url = stack.info().databaseUrl;
  await migrateDatabase(url);
  const frozen = new Set<number>();
  const thaw = (): void => {
    for (const pid of frozen) process.kill(pid, "SIGCONT");
    frozen.clear();
  };
  return {
    url,
    freeze(which = "all") {
      const pids = withDescendants(stack.pidOf("postgres") as number);
      for (const pid of which === "all" ? pids : pids.filter(servesConnection)) {
        process.kill(pid, "SIGSTOP");
        frozen.add(pid);
      }
    },
    thaw,
    async stop() {
      thaw();
      await stack.stop();
      rmSync(dataDirectory, { recursive: true, force: true });
    },
  };
}
