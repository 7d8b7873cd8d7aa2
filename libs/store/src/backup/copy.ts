import { once } from "node:events";
import type { Socket } from "node:net";
import type { Readable, Writable } from "node:stream";
import type pg from "pg";

/** What a connection of `pg` can do besides queries; its types leave it out. */
interface RawConnection {
  readonly stream: Socket;
  query(text: string): void;
  sendCopyFromChunk(chunk: Buffer): void;
  endCopyFrom(): void;
  sendCopyFail(message: string): void;
}

const connectionOf = (connection: unknown): RawConnection => connection as RawConnection;

/** A COPY that runs as a query of a client: the client calls the methods. */
abstract class Copy implements pg.Submittable {
  readonly done: Promise<number>;
  protected readonly text: string;
  protected settle!: { readonly resolve: (rows: number) => void; readonly reject: (error: Error) => void };
  #rows = 0;

  constructor(text: string) {
    this.text = text;
    this.done = new Promise((resolve, reject) => (this.settle = { resolve, reject }));
    // Whoever waits hears it; nobody may wait yet.
    this.done.catch(() => {});
  }

  submit(connection: pg.Connection): void {
    connectionOf(connection).query(this.text);
  }

  handleCommandComplete({ text }: { readonly text: string }): void {
    this.#rows = Number(/^COPY (\d+)/.exec(text)?.[1] ?? 0);
  }

  handleReadyForQuery(): void {
    this.settle.resolve(this.#rows);
  }

  handleError(error: Error): void {
    this.settle.reject(error);
  }
}

class CopyOut extends Copy {
  readonly #sink: Writable;

  constructor(text: string, sink: Writable) {
    super(text);
    this.#sink = sink;
  }

  handleCopyData({ chunk }: { readonly chunk: Buffer }, connection: unknown): void {
    const { stream } = connectionOf(connection);
    // Whoever broke the sink knows why: the rest is read and thrown away.
    if (this.#sink.destroyed) return;
    // The chunk is a view of a buffer that the parser uses again.
    if (this.#sink.write(Buffer.from(chunk)) || stream.isPaused()) return;
    stream.pause();
    const goOn = (): void => {
      this.#sink.off("drain", goOn).off("close", goOn);
      stream.resume();
    };
    this.#sink.on("drain", goOn).on("close", goOn);
  }
}

class CopyIn extends Copy {
  readonly #source: Readable;
  #failure: Error | undefined;
  #isOver = false;

  constructor(text: string, source: Readable) {
    super(text);
    this.#source = source;
  }

  handleCopyInResponse(connection: unknown): void {
    void this.#send(connectionOf(connection));
  }

  override handleError(error: Error): void {
    this.#isOver = true;
    this.#source.destroy();
    super.handleError(this.#failure ?? error);
  }

  async #send(connection: RawConnection): Promise<void> {
    try {
      for await (const chunk of this.#source) {
        connection.sendCopyFromChunk(chunk as Buffer);
        // A connection that is lost meanwhile closes its stream, which ends the wait.
        if (connection.stream.writableNeedDrain)
          await Promise.race([once(connection.stream, "drain"), once(connection.stream, "close")]);
        if (this.#isOver) return;
      }
      connection.endCopyFrom();
    } catch (error) {
      if (this.#isOver) return;
      this.#failure = error as Error;
      connection.sendCopyFail("the source failed");
    }
  }
}

/**
 * Writes what a `copy … to stdout` gives into a stream, which is left open. @returns how many rows.
 */
export const copyOut = (client: pg.Client, statement: string, sink: Writable): Promise<number> =>
  client.query(new CopyOut(statement, sink)).done;

/** Feeds a `copy … from stdin` with a stream to its end. @returns how many rows. */
export const copyIn = (client: pg.Client, statement: string, source: Readable): Promise<number> =>
  client.query(new CopyIn(statement, source)).done;
