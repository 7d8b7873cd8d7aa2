import { Piscina } from "piscina";
import type { StoppableTask } from "./tasks.ts";
import { abortedLater } from "./when-aborted.ts";

type ThreadOptions = NonNullable<ConstructorParameters<typeof Piscina>[0]>;

/**
 * Threads whose work ends when nobody waits for it, and which are there for the next then. A new thread has
 * everything to load and nothing compiled: who asks and leaves again and again would keep all others waiting for
 * new ones.
 */
export class StoppableThreads {
  readonly #pool: Piscina;

  /** @param onError told of what happens to a thread when nobody waits for it. */
  constructor(options: ThreadOptions, onError: (error: Error) => void) {
    this.#pool = new Piscina(options);
    // Without a listener, such an event would end the process.
    this.#pool.on("error", onError);
  }

  /**
   * Settles when the thread is there for the next, also where the signal aborts: its searches end soon then. A
   * thread that does not come back in time is ended, and another one made ready in its place.
   * @param options.onFailed told at once of what went wrong: who asked need not wait for the thread
   */
  async run(
    task: object,
    {
      name,
      signal,
      onFailed,
    }: { readonly name: string; readonly signal: AbortSignal; readonly onFailed?: (error: unknown) => void },
  ): Promise<unknown> {
    const stop = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT);
    const end = abortedLater(signal, () => void Atomics.store(new Int32Array(stop), 0, 1));
    const stoppable: object & StoppableTask = { ...task, stop };
    try {
      return await this.#pool.run(stoppable, { name, signal: end.signal });
    } catch (error) {
      onFailed?.(error);
      const isEnded =
        end.signal.aborted || (error as NodeJS.ErrnoException).code === "ERR_WORKER_OUT_OF_MEMORY";
      // A pool that closes meanwhile makes no thread ready.
      if (isEnded) await this.#pool.run(null, { name: "warm" }).catch(() => undefined);
      throw error;
    } finally {
      end.settle();
    }
  }

  async destroy(): Promise<void> {
    await this.#pool.destroy();
  }
}
