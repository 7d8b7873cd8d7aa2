import type { Failure } from "@internevo/domain";
import type { TSchema } from "typebox";
import { eventOf, isFatal, isSummaryOfMpirun } from "../event.ts";
import type { NativeError } from "../failure.ts";
import type { LaunchOptions } from "../launch-options.ts";
import { LineSplitter, Tail } from "../process/lines.ts";
import type { EventOf, NativeProgram } from "../programs.ts";
import { FileFollower } from "./file-follower.ts";

/** Why a job is taken back. */
export interface GivenUp {
  readonly failure: Failure;
  /** Nodes that can take jobs, where the reason is that they are fewer than the job needs. */
  readonly nodesLeft?: number;
}

/** Why a supervisor ends a job. */
export type Cause =
  | { readonly kind: "stop" }
  | { readonly kind: "kill" }
  | ({ readonly kind: "failure" } & GivenUp)
  | { readonly kind: "thrown"; readonly error: unknown };

export interface FollowOptions {
  readonly eventsPath: string;
  readonly errorsPath: string;
  /** So many bytes of the events an earlier supervisor has told. */
  readonly repeatedBytes: number;
  readonly nodes: number;
  readonly ranksPerNode: number;
  /** What to look at where ranks sit on another number of nodes. */
  readonly placementRemedy: string;
}

/** Follows ranks by the files that they write, and says why they have to end: their own events, signals, time. */
export class FollowedRanks<P extends NativeProgram<TSchema, TSchema>> {
  readonly #launch: LaunchOptions<P>;
  readonly #options: FollowOptions;
  readonly #stderr = new Tail();
  readonly #events: FileFollower;
  readonly #errors: FileFollower;
  #cause: Cause | undefined;
  #firstError: NativeError | undefined;
  #done = false;
  #lastWordAt: number | undefined;
  #lastEventAt = performance.now();
  #lines = 0;
  #stopBy: number | undefined;
  #said = "";

  constructor(launch: LaunchOptions<P>, options: FollowOptions) {
    this.#launch = launch;
    this.#options = options;
    const out = new LineSplitter({
      onLine: (line) => this.#onLine(line),
      onOverlong: (bound) =>
        this.fail({
          code: "internal",
          message: `${launch.program.name} wrote a line of more than ${bound} bytes`,
        }),
    });
    const log = new LineSplitter({
      onLine: (line) => {
        this.#stderr.push(line);
        launch.onLog?.(line);
      },
      onOverlong: (bound) => launch.onLog?.(`(a line of more than ${bound} bytes was dropped)`),
    });
    this.#events = new FileFollower(options.eventsPath, (chunk) => out.push(chunk), options.repeatedBytes);
    this.#errors = new FileFollower(options.errorsPath, (chunk) => log.push(chunk));
  }

  /** Why the job has to end; undefined while it may go on. */
  get cause(): Cause | undefined {
    return this.#cause;
  }

  /** Whether the job has to end at once, and not in order. */
  get mustEnd(): boolean {
    return this.#cause !== undefined && this.#cause.kind !== "stop";
  }

  /** The ranks have said that they are done. */
  get done(): boolean {
    return this.#done;
  }

  get firstError(): NativeError | undefined {
    return this.#firstError;
  }

  get stderrTail(): string {
    return this.#stderr.text;
  }

  /** Bytes of events that were told. */
  get offset(): number {
    return this.#events.offset;
  }

  /** Milliseconds since the ranks have said their last word; undefined: they have not. */
  get sinceLastWord(): number | undefined {
    return this.#lastWordAt === undefined ? undefined : performance.now() - this.#lastWordAt;
  }

  /** The first cause counts; an orderly end gives way to any other. */
  fail(failure: Failure, nodesLeft?: number): void {
    if (!this.mustEnd)
      this.#cause = { kind: "failure", failure, ...(nodesLeft === undefined ? {} : { nodesLeft }) };
  }

  #onLine(line: string): void {
    this.#lines += 1;
    if (this.mustEnd) return;
    if (isSummaryOfMpirun(line)) return this.#launch.onLog?.(line);
    const event = eventOf(this.#launch.program, line, this.#lines);
    if ("failure" in event) return this.fail(event.failure);
    this.#lastEventAt = performance.now();
    if (isFatal(event)) this.#firstError ??= event;
    if (event.event === "done") this.#done = true;
    if (isFatal(event) || event.event === "done") this.#lastWordAt ??= performance.now();
    const hosts = (event as { hosts?: unknown }).hosts;
    const { nodes, ranksPerNode, placementRemedy, repeatedBytes } = this.#options;
    if (event.event === "started" && Array.isArray(hosts) && new Set(hosts).size !== nodes) {
      return this.fail({
        code: "internal",
        message:
          `ranks were placed on ${new Set(hosts).size} nodes (${hosts.join(", ")}), ` +
          `and the mesh wants ${nodes} of ${ranksPerNode} ranks`,
        remedy: placementRemedy,
      });
    }
    try {
      this.#launch.onEvent(event as EventOf<P>, this.#events.offset <= repeatedBytes);
    } catch (error) {
      this.#cause = { kind: "thrown", error };
    }
  }

  /** Tells people where the job is; what was said last is not said again. */
  say(message: string, waits = false): void {
    if (message === this.#said) return;
    this.#said = message;
    this.#launch.onQueue?.(message, waits);
  }

  /** The ranks have begun: their silence counts from now. */
  begun(): void {
    this.#lastEventAt = performance.now();
  }

  /** Tells what has been written since. */
  read(): void {
    this.#events.readOn();
    this.#errors.readOn();
  }

  /**
   * Finds out whether the ranks have to end, by the caller's signals and bounds. @param runningSince null: they
   * have not begun.
   */
  obey(runningSince: string | null): void {
    this.#obeySignals(runningSince !== null);
    if (runningSince !== null) this.#watchTime(runningSince);
  }

  /** @param isRunning whether ranks have begun, so that they can end in order. */
  #obeySignals(isRunning: boolean): void {
    const { signal, killSignal, graceSeconds = 30 } = this.#launch;
    if (killSignal?.aborted && !this.mustEnd) this.#cause = { kind: "kill" };
    if (signal?.aborted) this.#cause ??= { kind: "stop" };
    if (this.#cause?.kind !== "stop") return;
    this.#stopBy ??= performance.now() + graceSeconds * 1000;
    if (!isRunning || performance.now() >= this.#stopBy) this.#cause = { kind: "kill" };
  }

  #watchTime(runningSince: string): void {
    const { timeoutSeconds, silenceSeconds } = this.#launch;
    if (timeoutSeconds !== undefined && Date.now() - Date.parse(runningSince) > timeoutSeconds * 1000)
      this.fail({ code: "timeout", message: `the ranks did not end within ${timeoutSeconds} s` });
    if (silenceSeconds !== undefined && performance.now() - this.#lastEventAt > silenceSeconds * 1000)
      this.fail({ code: "timeout", message: `the ranks said nothing for ${silenceSeconds} s` });
  }
}
