import { randomUUID } from "node:crypto";
import { chmodSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { TSchema } from "typebox";
import { rankEnvironment } from "../environment.ts";
import { LAST_WORD_SECONDS, type LaunchOptions, type LaunchOutcome } from "../launch-options.ts";
import type { NativeProgram } from "../programs.ts";
import { configTextOf, digestOf, goOnOrEnd, sizeOf, stoppedOutcome, type Size } from "../scheduled/begin.ts";
import { FollowedRanks } from "../scheduled/followed-ranks.ts";
import { Wakeable } from "../scheduled/wakeable.ts";
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
import { needsSlurmsWord, outcomeOf, refused } from "./end.ts";
import { readClaim, readEnd, type JobEnd } from "./files.ts";
import { SubmittedJob } from "./job.ts";
import { LASTING_SECONDS, QueueWatch } from "./queue.ts";
import { readSlurmRecord, removeSlurmRecord, slurmJobName, type SlurmRecord } from "./record.ts";
import { slurmRest } from "./rest.ts";
import { batchScript, JOB_FILES } from "./script.ts";
import type { SlurmSettings } from "./settings.ts";
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
  const { runDirectory } = options;
  const begin = performance.now();
  const seconds = (): number => (performance.now() - begin) / 1000;
  const size = sizeOf(options);
  const configText = configTextOf(options);
  const digest = digestOf(options, size, configText);
  const wake = new Wakeable([options.signal, options.killSignal, options.detachSignal]);
  try {
    const begun = await goOnOrEnd(options, {
      left: readSlurmRecord(runDirectory),
      digest,
      seconds,
      endLeft: () =>
        cancelSlurmLeftover(runDirectory, CANCEL_SECONDS, (milliseconds) => wake.pause(milliseconds)),
      away: "Slurm does not answer, or cannot end the job that ran here before: it is asked again",
    });
    if ("status" in begun) return begun;
    const record = begun.left ?? prepare(options, settings, size, configText, digest);
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
  readonly #ranks: FollowedRanks<P>;
  #asked = false;
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
    this.#ranks = new FollowedRanks(options, {
      eventsPath: job.file("events"),
      errorsPath: job.file("errors"),
      repeatedBytes: job.record.seenBytes,
      ...size,
      placementRemedy: "see start and launchOptions of the cluster's slurm settings",
    });
  }

  /** What has been written since; a job that has begun to write runs, whatever its controller says. */
  #read(): void {
    if (this.#job.record.runningSince === null && readClaim(this.#job.file("claim")) !== undefined) {
      this.#ranks.begun();
      this.#job.update({ runningSince: new Date().toISOString() });
    }
    this.#ranks.read();
    if (this.#ranks.offset > this.#job.record.seenBytes) this.#job.update({ seenBytes: this.#ranks.offset });
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
      if (this.#options.detachSignal?.aborted) return stoppedOutcome(this.#seconds(), { detached: true });
      this.#ranks.obey(this.#job.record.runningSince);
      const end = readEnd(this.#job.file("end"));
      this.#read();
      if (this.#ranks.mustEnd) return this.#cancelled(seen);
      if (end) return this.#ended(end, seen);
      if ((this.#ranks.sinceLastWord ?? 0) > LAST_WORD_SECONDS * 1000) {
        await this.#job.cancel(CANCEL_SECONDS, (milliseconds) => this.#wake.pause(milliseconds));
        return this.#ended(undefined, seen);
      }
      if (performance.now() >= nextLook) {
        nextLook = performance.now() + pollMilliseconds;
        try {
          await this.#job.ensure(request);
          if (this.#ranks.cause?.kind === "stop" && !this.#asked) {
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
            if (givenUp) this.#ranks.fail(givenUp.failure, givenUp.nodesLeft);
            this.#ranks.say(queueWords(found), true);
          } else if (found && isLive(found)) this.#ranks.say(`Slurm job ${found.id} runs on ${found.nodes}`);
        } catch (error) {
          const { jobId } = this.#job.record;
          if (error instanceof SlurmRefusalError && jobId === null) {
            this.#refusedSince ??= performance.now();
            if (performance.now() - this.#refusedSince >= LASTING_SECONDS * 1000) return this.#refused(error);
            this.#ranks.say(`${refused(error).message}; it is asked again`);
            nextLook = Math.min(nextLook, performance.now() + 1000);
          } else if (error instanceof SlurmRefusalError || error instanceof SlurmAwayError) {
            this.#ranks.say(
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
      if (this.#ranks.cause === undefined && this.#options.signal?.aborted) nextLook = performance.now();
    }
  }

  /**
   * The ranks are gone, or have said their last word: what that means Slurm may know better, and it may be
   * busy finding it out.
   */
  async #ended(end: JobEnd | undefined, seen: SlurmJob | undefined): Promise<LaunchOutcome> {
    this.#read();
    const { cause, done, firstError } = this.#ranks;
    if (!needsSlurmsWord({ end, cause, done, firstError })) return this.#over(end, seen);
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
      cause: this.#ranks.cause,
      nodesOut,
      done: this.#ranks.done,
      firstError: this.#ranks.firstError,
      stderrTail: this.#ranks.stderrTail,
      jobId: this.#job.record.jobId,
      words: seen && !isLive(seen) ? endWords(seen) : undefined,
      unaccounted: this.#unaccounted,
    });
    if (isOver) conclude(this.#options.runDirectory, this.#job.record);
    if ("thrown" in outcome) throw outcome.thrown;
    return { ...outcome, seconds: this.#seconds(), exitCode: end?.exitCode ?? null };
  }
}
