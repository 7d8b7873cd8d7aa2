import { Socket } from "node:net";
import pg from "pg";

/** Postgres, or the way to it, has not answered: nobody knows whether the statement was carried out. */
export class SilentPostgresError extends Error {
  readonly code = "ETIMEDOUT";
}

export interface AnswerWatchOptions {
  readonly url: string;
  readonly applicationName: string;
  /** A new connection is made within so long, or Postgres counts as away. */
  readonly connectMilliseconds: number;
  /** A connection in use that is silent for longer is cut, whatever others hear. Null: never. */
  readonly longestSilenceMilliseconds: number | null;
}

/** Between two looks at the connections that are in use. */
const LOOK_MILLISECONDS = 250;
/** After so many looks in a row that heard nothing, and as many again, Postgres is asked for a sign of life. */
const SILENT_LOOKS = 8;

interface Silence {
  bytesRead: number;
  /** Not a time: a process that was held still itself has looked at nothing meanwhile. */
  looks: number;
}

/**
 * Watches a pool's connections that are in use. A frozen Postgres, or one whose machine is gone, neither
 * answers nor closes a connection, and cannot end a statement that takes too long. So a silent connection is
 * no proof: the statement may be slow. It is cut where a new connection is not answered either; what waits for
 * it then fails as after any loss, and the pool makes another one.
 */
export class AnswerWatch {
  readonly #options: AnswerWatchOptions;
  readonly #inUse = new Map<pg.Client, Silence>();
  #timer: NodeJS.Timeout | undefined;
  #isAsking = false;

  constructor(pool: pg.Pool, options: AnswerWatchOptions) {
    this.#options = options;
    pool.on("acquire", (client) => {
      if (!(client instanceof pg.Client)) return;
      this.#inUse.set(client, { bytesRead: bytesReadBy(client), looks: 0 });
      this.#timer ??= setInterval(() => this.#look(), LOOK_MILLISECONDS);
    });
    pool.on("release", (_error, client) => {
      if (client instanceof pg.Client) this.#inUse.delete(client);
    });
  }

  #look(): void {
    if (this.#inUse.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
      return;
    }
    const { longestSilenceMilliseconds: longest } = this.#options;
    let isSilent = false;
    for (const [client, silence] of this.#inUse) {
      const bytesRead = bytesReadBy(client);
      silence.looks = bytesRead === silence.bytesRead ? silence.looks + 1 : 0;
      silence.bytesRead = bytesRead;
      if (longest !== null && silence.looks * LOOK_MILLISECONDS >= longest)
        cut(client, `Postgres has not answered for ${longest / 1000} s on a connection that is in use`);
      else isSilent ||= silence.looks > 0 && silence.looks % SILENT_LOOKS === 0;
    }
    if (isSilent && !this.#isAsking) void this.#askForSign();
  }

  async #askForSign(): Promise<void> {
    this.#isAsking = true;
    const asked = [...this.#inUse].filter(([, { looks }]) => looks >= SILENT_LOOKS);
    try {
      if (await answersAnew(this.#options)) return;
      for (const [client, silence] of asked)
        // It may have heard something meanwhile, or be used by another one now.
        if (this.#inUse.get(client) === silence && silence.looks >= SILENT_LOOKS)
          cut(client, "Postgres answers neither a connection that is in use nor a new one");
    } finally {
      this.#isAsking = false;
    }
  }
}

function bytesReadBy({ connection: { stream } }: pg.Client): number {
  return stream instanceof Socket ? stream.bytesRead : 0;
}

/** A connection in an unknown state is never used again: the pool drops one that has lost its stream. */
function cut(client: pg.Client, why: string): void {
  client.connection.stream.destroy(new SilentPostgresError(why));
}

/** Whether Postgres answers a new connection, be it by refusing it: it may have too many of them. */
async function answersAnew(options: AnswerWatchOptions): Promise<boolean> {
  const client = new pg.Client({
    connectionString: options.url,
    application_name: `${options.applicationName}-watch`,
    connectionTimeoutMillis: options.connectMilliseconds,
  });
  // What becomes of this connection later says nothing.
  client.on("error", () => {});
  try {
    await client.connect();
    return true;
  } catch (error) {
    return error instanceof pg.DatabaseError;
  } finally {
    // The answer is known: whether this connection ends in order changes nothing.
    void client.end().catch(() => {});
  }
}
