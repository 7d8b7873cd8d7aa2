import type { StageProgress } from "@internevo/contracts";
import { pause, type LoggedType } from "@internevo/store";

export type FeedEvent = { readonly type: LoggedType; readonly data: Record<string, unknown> };

export interface JobFeedOptions {
  /** Appends to the job's log; rejects when it cannot any more. */
  readonly append: (events: readonly FeedEvent[]) => Promise<void>;
  readonly onError: (error: unknown) => void;
  /** Default 500. */
  readonly intervalMilliseconds?: number;
  /** Lines kept of one feed; what comes after is counted only. Default 500. */
  readonly maximumLogLines?: number;
}

/**
 * Tells people how a stage goes on, without a transaction for every word: lines of log gather for a moment,
 * and of progress only the newest is told.
 */
export class JobFeed {
  readonly #options: Required<JobFeedOptions>;
  #progress: FeedEvent | undefined;
  #logs: FeedEvent[] = [];
  #lines = 0;
  #writing: Promise<void> | undefined;
  #failed = false;
  readonly #closing = new AbortController();

  constructor(options: JobFeedOptions) {
    this.#options = { intervalMilliseconds: 500, maximumLogLines: 500, ...options };
  }

  /** @param waits see {@link StageProgress}. */
  progress(stage: string, message: string, done: number, total: number, waits = false): void {
    const data: Omit<StageProgress, "at"> = { stage, message, done, total, waits };
    this.#progress = { type: "progress", data };
    this.#wake();
  }

  log(level: "info" | "warn" | "error", source: string, message: string): void {
    this.#lines += 1;
    const { maximumLogLines } = this.#options;
    if (this.#lines > maximumLogLines + 1) return;
    const text =
      this.#lines > maximumLogLines
        ? `more than ${maximumLogLines} lines: the rest is not shown`
        : message.slice(0, 4000);
    this.#logs.push({ type: "log", data: { level, source, message: text } });
    this.#wake();
  }

  /** Everything that was said is in the log, unless it could not be written. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#writing;
  }

  #wake(): void {
    if (!this.#failed) this.#writing ??= this.#drain();
  }

  async #drain(): Promise<void> {
    try {
      while (this.#progress !== undefined || this.#logs.length > 0) {
        const events = [...this.#logs, ...(this.#progress ? [this.#progress] : [])];
        this.#logs = [];
        this.#progress = undefined;
        await this.#options.append(events);
        await pause(this.#options.intervalMilliseconds, this.#closing.signal);
      }
    } catch (error) {
      this.#failed = true;
      this.#options.onError(error);
    } finally {
      this.#writing = undefined;
    }
  }
}
