import { FairTurns } from "@internevo/service-kit";

/** Data that is read at once; one project leaves a place to the others. */
const AT_ONCE = 2;
const AT_ONCE_OF_ONE = 1;
/** Whoever has read for so long gives the place up, and waits for the next turn. */
const TURN_MILLISECONDS = 1000;
/** Whoever reads one part for so long waits for a file system: the place is given to others meanwhile. */
const STALLED_MILLISECONDS = 2 * TURN_MILLISECONDS;

/**
 * Lets projects take turns in reading data, whatever each has submitted, and however much there is to be read. So do
 * the jobs of one project.
 */
export class PreparingTurns {
  readonly #turns = new FairTurns({
    atOnce: AT_ONCE,
    atOnceOfOne: AT_ONCE_OF_ONE,
    mostOfOne: Infinity,
    mostWaiting: Infinity,
  });
  readonly #turnMilliseconds: number;
  readonly #stalledMilliseconds: number;

  constructor(turnMilliseconds = TURN_MILLISECONDS, stalledMilliseconds = STALLED_MILLISECONDS) {
    this.#turnMilliseconds = turnMilliseconds;
    this.#stalledMilliseconds = stalledMilliseconds;
  }

  /** Resolves when it is a project's turn. @returns what ends it; time ends it too */
  async #take(project: string, signal: AbortSignal): Promise<() => void> {
    const end = await this.#turns.take(project, signal);
    const stalled = setTimeout(end, this.#stalledMilliseconds).unref();
    return () => {
      clearTimeout(stalled);
      end();
    };
  }

  /**
   * @param work calls `pause` between parts of what it reads
   * @throws the signal's reason; what the work throws
   */
  async run<T>(
    project: string,
    signal: AbortSignal,
    work: (pause: () => Promise<void>) => Promise<T>,
  ): Promise<T> {
    let end = await this.#take(project, signal);
    let since = performance.now();
    const pause = async (): Promise<void> => {
      if (performance.now() - since < this.#turnMilliseconds) return;
      end();
      end = await this.#take(project, signal);
      since = performance.now();
    };
    try {
      return await work(pause);
    } finally {
      end();
    }
  }
}
