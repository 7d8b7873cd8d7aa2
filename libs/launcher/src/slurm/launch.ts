import { createHash, randomUUID } from "node:crypto";
import { chmodSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { validate, type Failure } from "@internevo/domain";
import type { TSchema } from "typebox";
import { rankEnvironment } from "../environment.ts";
import { eventOf, isFatal } from "../event.ts";
import type { NativeError } from "../failure.ts";
import { LAST_WORD_SECONDS, type LaunchOptions, type LaunchOutcome } from "../launch-options.ts";
import { LineSplitter, Tail } from "../process/lines.ts";
import type { EventOf, NativeProgram } from "../programs.ts";
import { slurmTools } from "./cli.ts";
import {
  isLive,
  isWaiting,
  SlurmAwayError,
  SlurmRefusalError,
  type SlurmControl,
  type SlurmJob,
  type SlurmNode,
  type SlurmRequest,
} from "./control.ts";
import { needsSlurmsWord, outcomeOf, refused, type Cause } from "./end.ts";
import { FileFollower, readClaim, readEnd, type JobEnd } from "./files.ts";
import { SubmittedJob } from "./job.ts";
import { LASTING_SECONDS, QueueWatch } from "./queue.ts";
import { readSlurmRecord, removeSlurmRecord, slurmJobName, type SlurmRecord } from "./record.ts";
import { slurmRest } from "./rest.ts";
import { batchScript, JOB_FILES } from "./script.ts";
import type { SlurmSettings } from "./settings.ts";
import { Wakeable } from "./wakeable.ts";
import { endWords, queueWords } from "./words.ts";

/** Between two looks at the files that a job writes. */
const FILES_MILLISECONDS = 300;
/** How long what a job wrote on another machine may take until it is seen here. */
const LAG_SECONDS = 15;
/** How long Slurm may take to end a job that was cancelled. */
const CANCEL_SECONDS = 60;
/** The same for one whose submission nobody has confirmed: it may not be there at all. */
const UNHEARD_SECONDS = 5;
const POLL_SECONDS = 10;
/** A time limit that leaves room for starting and for saving beside what was asked for. */
const MARGIN_SECONDS = 60;

export const controlOf = (settings: SlurmSettings): SlurmControl =>
  settings.rest ? slurmRest(settings.rest) : slurmTools();

type Program = NativeProgram<TSchema, TSchema>;

interface Size {
  readonly nodes: number;
  readonly ranksPerNode: number;
}

function sizeOf({ ranks, ranksPerNode = ranks }: LaunchOptions<Program>): Size {
  const perNode = Math.min(ranks, ranksPerNode);
  if (ranks < 1 || perNode < 1 || ranks % perNode !== 0)
    throw new RangeError(`ranks ${ranks} do not fill nodes of ${perNode}: give a multiple`);
  return { nodes: ranks / perNode, ranksPerNode: perNode };
}

/** The shorter of the site's limit and of what the caller allows: a shorter job starts earlier. */
function timeLimitOf(settings: SlurmSettings, timeoutSeconds: number | undefined): number | undefined {
  const wanted =
    timeoutSeconds === undefined
      ? undefined
      : timeoutSeconds + (settings.saveSeconds ?? 120) + MARGIN_SECONDS;
  const limits = [wanted, settings.timeLimitSeconds].filter((each) => each !== undefined);
  return limits.length === 0 ? undefined : Math.ceil(Math.min(...limits));
}

/** A new submission's directory and record; nothing has been submitted. */
function prepare(
  options: LaunchOptions<Program>,
  settings: SlurmSettings,
  size: Size,
  configText: string,
  digest: string,
): SlurmRecord {
  const marker = randomUUID();
  const directory = join(settings.directory ?? options.runDirectory, marker);
  mkdirSync(directory, { recursive: true });
  const configPath = join(directory, "config.json");
  writeFileSync(configPath, configText);
  const script = join(directory, JOB_FILES.script);
  writeFileSync(
    script,
    batchScript({
      settings,
      program: options.program.path,
      configPath,
      ...size,
      threadsPerRank: options.threadsPerRank,
      directory,
    }),
  );
  chmodSync(script, 0o755);
  return {
    marker,
    label: options.label ?? "",
    digest,
    directory,
    jobId: null,
    submittedAt: new Date().toISOString(),
    runningSince: null,
    cancelled: false,
    seenBytes: 0,
    settings,
  };
}

function requestOf(
  options: LaunchOptions<Program>,
  settings: SlurmSettings,
  size: Size,
  record: SlurmRecord,
): SlurmRequest {
  // TMPDIR is each node's own.
  const { TMPDIR: _, ...environment } = rankEnvironment({
    base: process.env,
    marker: record.marker,
    temporaryDirectory: "",
    threadsPerRank: options.threadsPerRank,
    ...(options.environment ? { extra: options.environment } : {}),
  });
  const timeLimitSeconds = timeLimitOf(settings, options.timeoutSeconds);
  return {
    name: slurmJobName(record.marker),
    comment: `${options.program.name}${options.label === undefined ? "" : ` ${options.label}`}`.replaceAll(
      /[^\w .:-]/g,
      " ",
    ),
    ...size,
    threadsPerRank: options.threadsPerRank,
    ...(timeLimitSeconds === undefined ? {} : { timeLimitSeconds }),
    settings,
    directory: record.directory,
    scriptPath: join(record.directory, JOB_FILES.script),
    logPath: join(record.directory, JOB_FILES.log),
    environment,
  };
}

const digestOf = (options: LaunchOptions<Program>, size: Size, configText: string): string =>
  createHash("sha256")
    .update(JSON.stringify([options.program.path, size, options.threadsPerRank, options.environment ?? {}]))
    .update(configText)
    .digest("hex");

/**
 * Cancels the Slurm job that a run directory's last owner left, if there is one. The caller owns the
 * directory.
 * @returns whether nothing of it is left; not while Slurm does not answer.
 */
export async function cancelSlurmLeftover(
  runDirectory: string,
  seconds = CANCEL_SECONDS,
  pause: (milliseconds: number) => Promise<unknown> = (milliseconds) =>
    new Promise((resolve) => setTimeout(resolve, milliseconds)),
): Promise<boolean> {
  const record = readSlurmRecord(runDirectory);
  if (!record) return true;
  const over = await new SubmittedJob(controlOf(record.settings), runDirectory, record).cancel(
    seconds,
    pause,
  );
  if (over) conclude(runDirectory, record);
  return over;
}

/** What a job never wrote needs no directory; a job that starts too late finds none, and ends. */
function conclude(runDirectory: string, record: SlurmRecord): void {
  if (record.cancelled && readClaim(join(record.directory, JOB_FILES.claim)) === undefined)
    rmSync(record.directory, { recursive: true, force: true });
  removeSlurmRecord(runDirectory);
}

/**
 * Runs a native program as a Slurm job until it ends. The job outlives its supervisor: with the same run
 * directory, label and configuration the next one finds it again, reads its events from the beginning, and
 * goes on. Nothing is submitted twice.
 * @throws whatever `onEvent` threw, after the job was cancelled.
 */
export async function launchOnSlurm<P extends Program>(
  options: LaunchOptions<P>,
  settings: SlurmSettings,
): Promise<LaunchOutcome> {
  const { program, runDirectory } = options;
  const begin = performance.now();
  const seconds = (): number => (performance.now() - begin) / 1000;
  const size = sizeOf(options);
  const configText = JSON.stringify(
    validate(program.configSchema, options.config, "internal", `the configuration of ${program.name}`),
    null,
    2,
  );
  const digest = digestOf(options, size, configText);
  const wake = new Wakeable([options.signal, options.killSignal, options.detachSignal]);
  const stopped = (more: { detached?: true } = {}): LaunchOutcome => ({
    status: "stopped",
    graceful: false,
    seconds: seconds(),
    exitCode: null,
    ...more,
  });
  try {
    let left = readSlurmRecord(runDirectory);
    const isOurs = left?.label === (options.label ?? "") && left.digest === digest && !left.cancelled;
    while (left && (!isOurs || options.killSignal?.aborted === true)) {
      if (options.detachSignal?.aborted) return stopped({ detached: true });
      if (await cancelSlurmLeftover(runDirectory, CANCEL_SECONDS, (milliseconds) => wake.pause(milliseconds)))
        left = undefined;
      else if (options.killSignal?.aborted) return stopped();
      else
        options.onQueue?.(
          "Slurm does not answer, or cannot end the job that ran here before: it is asked again",
          false,
        );
    }
    if (options.signal?.aborted || options.killSignal?.aborted) return stopped();
    if (options.detachSignal?.aborted) return stopped({ detached: true });
    const record = left ?? prepare(options, settings, size, configText, digest);
    const job = new SubmittedJob(controlOf(settings), runDirectory, record);
    // The record comes first: were this process killed during the submission, the next one would find it.
    job.update({});
    return await new Follower<P>(options, settings, size, job, wake, seconds).run();
  } finally {
    wake.close();
  }
}

/** Follows one Slurm job from its submission to its end. */
class Follower<P extends Program> {
  readonly #options: LaunchOptions<P>;
  readonly #settings: SlurmSettings;
  readonly #size: Size;
  readonly #job: SubmittedJob;
  readonly #control: SlurmControl;
  readonly #wake: Wakeable;
  readonly #seconds: () => number;
  readonly #stderr = new Tail();
  readonly #events: FileFollower;
  readonly #errors: FileFollower;
  readonly #repeatedBytes: number;
  #cause: Cause | undefined;
  #firstError: NativeError | undefined;
  #done = false;
  #lastWordAt: number | undefined;
  #lastEventAt = performance.now();
  #lines = 0;
  #asked = false;
  #stopBy: number | undefined;
  #said = "";
  #unaccounted: string | undefined;
  #refusedSince: number | undefined;

  constructor(
    options: LaunchOptions<P>,
    settings: SlurmSettings,
    size: Size,
    job: SubmittedJob,
    wake: Wakeable,
    seconds: () => number,
  ) {
    this.#options = options;
    this.#settings = settings;
    this.#size = size;
    this.#job = job;
    this.#control = controlOf(settings);
    this.#wake = wake;
    this.#seconds = seconds;
    this.#repeatedBytes = job.record.seenBytes;
    const out = new LineSplitter({
      onLine: (line) => this.#onLine(line),
      onOverlong: (bound) =>
        this.#fail({
          code: "internal",
          message: `${options.program.name} wrote a line of more than ${bound} bytes`,
        }),
    });
    const log = new LineSplitter({
      onLine: (line) => {
        this.#stderr.push(line);
        options.onLog?.(line);
      },
      onOverlong: (bound) => options.onLog?.(`(a line of more than ${bound} bytes was dropped)`),
    });
    this.#events = new FileFollower(job.file("events"), (chunk) => out.push(chunk), this.#repeatedBytes);
    this.#errors = new FileFollower(job.file("errors"), (chunk) => log.push(chunk));
  }

  #fail(failure: Failure, nodesLeft?: number): void {
    if (this.#cause === undefined || this.#cause.kind === "stop")
      this.#cause = { kind: "failure", failure, ...(nodesLeft === undefined ? {} : { nodesLeft }) };
  }

  #onLine(line: string): void {
    this.#lines += 1;
    if (this.#cause !== undefined && this.#cause.kind !== "stop") return;
    const event = eventOf(this.#options.program, line, this.#lines);
    if ("failure" in event) return this.#fail(event.failure);
    this.#lastEventAt = performance.now();
    if (isFatal(event)) this.#firstError ??= event;
    if (event.event === "done") this.#done = true;
    if (isFatal(event) || event.event === "done") this.#lastWordAt ??= performance.now();
    const hosts = (event as { hosts?: unknown }).hosts;
    if (event.event === "started" && Array.isArray(hosts) && new Set(hosts).size !== this.#size.nodes) {
      return this.#fail({
        code: "internal",
        message:
          `ranks were placed on ${new Set(hosts).size} nodes (${hosts.join(", ")}), ` +
          `and the mesh wants ${this.#size.nodes} of ${this.#size.ranksPerNode} ranks`,
        remedy: "see start and launchOptions of the cluster's slurm settings",
      });
    }
    try {
      this.#options.onEvent(event as EventOf<P>, this.#events.offset <= this.#repeatedBytes);
    } catch (error) {
      this.#cause = { kind: "thrown", error };
    }
  }

  #say(message: string, waits = false): void {
    if (message === this.#said) return;
    this.#said = message;
    this.#options.onQueue?.(message, waits);
  }

  /** What has been written since; a job that has begun to write runs, whatever its controller says. */
  #read(): void {
    if (this.#job.record.runningSince === null && readClaim(this.#job.file("claim")) !== undefined) {
      this.#lastEventAt = performance.now();
      this.#job.update({ runningSince: new Date().toISOString() });
    }
    this.#events.readOn();
    this.#errors.readOn();
    if (this.#events.offset > this.#job.record.seenBytes)
      this.#job.update({ seenBytes: this.#events.offset });
  }

  #obeySignals(): void {
    const { signal, killSignal } = this.#options;
    if (killSignal?.aborted && (this.#cause === undefined || this.#cause.kind === "stop"))
      this.#cause = { kind: "kill" };
    if (signal?.aborted) this.#cause ??= { kind: "stop" };
    if (this.#cause?.kind !== "stop") return;
    const graceSeconds = this.#options.graceSeconds ?? 30;
    this.#stopBy ??= performance.now() + graceSeconds * 1000;
    if (this.#job.record.runningSince === null || performance.now() >= this.#stopBy)
      this.#cause = { kind: "kill" };
  }

  #watchTime(): void {
    const { timeoutSeconds, silenceSeconds } = this.#options;
    const { runningSince } = this.#job.record;
    if (runningSince === null) return;
    if (timeoutSeconds !== undefined && Date.now() - Date.parse(runningSince) > timeoutSeconds * 1000)
      this.#fail({ code: "timeout", message: `the ranks did not end within ${timeoutSeconds} s` });
    if (silenceSeconds !== undefined && performance.now() - this.#lastEventAt > silenceSeconds * 1000)
      this.#fail({ code: "timeout", message: `the ranks said nothing for ${silenceSeconds} s` });
  }

  async run(): Promise<LaunchOutcome> {
    const { record } = this.#job;
    const request = requestOf(this.#options, this.#settings, this.#size, record);
    const queue = new QueueWatch(
      this.#control,
      this.#settings,
      this.#size.nodes,
      Date.parse(record.submittedAt),
    );
    const pollMilliseconds = (this.#settings.pollSeconds ?? POLL_SECONDS) * 1000;
    let nextLook = performance.now();
    let goneSince: number | undefined;
    let seen: SlurmJob | undefined;
    for (;;) {
      if (this.#options.detachSignal?.aborted)
        return {
          status: "stopped",
          graceful: false,
          detached: true,
          seconds: this.#seconds(),
          exitCode: null,
        };
      this.#obeySignals();
      this.#watchTime();
      const end = readEnd(this.#job.file("end"));
      this.#read();
      if (this.#cause !== undefined && this.#cause.kind !== "stop") return this.#cancelled(seen);
      if (end) return this.#ended(end, seen);
      if (this.#lastWordAt !== undefined && performance.now() - this.#lastWordAt > LAST_WORD_SECONDS * 1000) {
        await this.#job.cancel(CANCEL_SECONDS, (milliseconds) => this.#wake.pause(milliseconds));
        return this.#ended(undefined, seen);
      }
      if (performance.now() >= nextLook) {
        nextLook = performance.now() + pollMilliseconds;
        try {
          await this.#job.ensure(request);
          if (this.#cause?.kind === "stop" && !this.#asked) {
            if (this.#job.record.jobId !== null) await this.#control.askToEnd(this.#job.record.jobId);
            this.#asked = true;
          }
          const found = await this.#job.look();
          seen = found ?? seen;
          this.#refusedSince = undefined;
          if (found && isLive(found)) goneSince = undefined;
          else goneSince ??= performance.now();
          if (found && isWaiting(found)) {
            const givenUp = await queue.look(found);
            if (givenUp) this.#fail(givenUp.failure, givenUp.nodesLeft);
            this.#say(queueWords(found), true);
          } else if (found && isLive(found)) this.#say(`Slurm job ${found.id} runs on ${found.nodes}`);
        } catch (error) {
          const { jobId } = this.#job.record;
          if (error instanceof SlurmRefusalError && jobId === null) {
            this.#refusedSince ??= performance.now();
            if (performance.now() - this.#refusedSince >= LASTING_SECONDS * 1000) return this.#refused(error);
            this.#say(`${refused(error).message}; it is asked again`);
            nextLook = Math.min(nextLook, performance.now() + 1000);
          } else if (error instanceof SlurmRefusalError || error instanceof SlurmAwayError) {
            this.#say(
              `Slurm does not answer (${error.message}); ${jobId === null ? "the job is submitted when it does" : `job ${jobId} is followed by its files`}`,
            );
          } else throw error;
        }
      }
      // It has ended without leaving word: what it wrote may still be on its way.
      if (goneSince !== undefined && performance.now() - goneSince > LAG_SECONDS * 1000)
        return this.#ended(undefined, seen);
      if (goneSince !== undefined) nextLook = Math.min(nextLook, performance.now() + 1000);
      await this.#wake.pause(FILES_MILLISECONDS);
      if (this.#cause === undefined && this.#options.signal?.aborted) nextLook = performance.now();
    }
  }

  /**
   * The ranks are gone, or have said their last word: what that means Slurm may know better, and it may be
   * busy finding it out.
   */
  async #ended(end: JobEnd | undefined, seen: SlurmJob | undefined): Promise<LaunchOutcome> {
    this.#read();
    if (!needsSlurmsWord({ end, cause: this.#cause, done: this.#done, firstError: this.#firstError }))
      return this.#over(end, seen);
    // Of one that we have cancelled ourselves Slurm says no more than that.
    const job = this.#job.record.cancelled
      ? seen
      : await this.#accounted(
          await this.#job.settled(LAG_SECONDS, seen, (milliseconds) => this.#wake.pause(milliseconds)),
        );
    return this.#over(end, job, { nodesOut: await this.#job.nodesOut() });
  }

  /**
   * A job whose end nobody saw, and which the controller has forgotten (MinJobAge), as the site's accounting
   * has it.
   */
  async #accounted(seen: SlurmJob | undefined): Promise<SlurmJob | undefined> {
    const { jobId, marker } = this.#job.record;
    if (jobId === null || (seen && !isLive(seen))) return seen;
    const said = await this.#control.accounted(jobId, slurmJobName(marker));
    if (typeof said !== "string") return said;
    this.#unaccounted = said;
    return seen;
  }

  async #cancelled(seen: SlurmJob | undefined): Promise<LaunchOutcome> {
    const over = await this.#job.cancel(
      this.#job.record.jobId === null ? UNHEARD_SECONDS : CANCEL_SECONDS,
      (milliseconds) => this.#wake.pause(milliseconds),
    );
    this.#read();
    if (!over)
      this.#options.onLog?.(
        `Slurm has not confirmed the end of job ${this.#job.record.jobId ?? "?"}: it is cancelled when Slurm answers`,
      );
    return this.#over(readEnd(this.#job.file("end")), seen, { isOver: over });
  }

  #refused(error: SlurmRefusalError): LaunchOutcome {
    this.#job.update({ cancelled: true });
    conclude(this.#options.runDirectory, this.#job.record);
    return { status: "failed", failure: refused(error), seconds: this.#seconds(), exitCode: null };
  }

  #over(
    end: JobEnd | undefined,
    seen: SlurmJob | undefined,
    {
      isOver = true,
      nodesOut = [],
    }: { readonly isOver?: boolean; readonly nodesOut?: readonly SlurmNode[] } = {},
  ): LaunchOutcome {
    // A last line without its newline is none: whoever wrote it was ended.
    this.#read();
    const outcome = outcomeOf({
      end,
      job: seen,
      begun: readClaim(this.#job.file("claim")) !== undefined,
      cause: this.#cause,
      nodesOut,
      done: this.#done,
      firstError: this.#firstError,
      stderrTail: this.#stderr.text,
      jobId: this.#job.record.jobId,
      words: seen && !isLive(seen) ? endWords(seen) : undefined,
      unaccounted: this.#unaccounted,
    });
    if (isOver) conclude(this.#options.runDirectory, this.#job.record);
    if ("thrown" in outcome) throw outcome.thrown;
    return { ...outcome, seconds: this.#seconds(), exitCode: end?.exitCode ?? null };
  }
}
