import { randomBytes } from "node:crypto";
import { chmodSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import type { TSchema } from "typebox";
import { LAST_WORD_SECONDS, type LaunchOptions, type LaunchOutcome } from "../launch-options.ts";
import { readIfThere } from "../process/record-file.ts";
import type { NativeProgram } from "../programs.ts";
import { configTextOf, digestOf, goOnOrEnd, sizeOf, stoppedOutcome, type Size } from "../scheduled/begin.ts";
import { FollowedRanks } from "../scheduled/followed-ranks.ts";
import { Wakeable } from "../scheduled/wakeable.ts";
import { KubernetesApi, KubernetesAwayError, KubernetesRefusalError } from "./api.ts";
import { outcomeOf, readPodsEnd, refused, type PodsEnd } from "./end.ts";
import { isNotDone, LaunchedJobSet } from "./job.ts";
import { LaunchWatch } from "./launch-watch.ts";
import { jobSetOf, podHostname, type JobSetObject } from "./objects.ts";
import { allRun, waitingReason } from "./reasons.ts";
import { readKubernetesRecord, removeKubernetesRecord, type KubernetesRecord } from "./record.ts";
import { agentScript, POD_FILES, podScript } from "./script.ts";
import type { KubernetesSettings } from "./settings.ts";
import { WaitWatch } from "./shortage.ts";
import { namesInWords } from "./status.ts";

/** Between two looks at the files that pods write. */
const FILES_MILLISECONDS = 300;
/** Between two looks at what the API server has told. */
const LOOK_MILLISECONDS = 1000;
/** How long what a pod wrote may take until it is seen here. */
const LAG_SECONDS = 15;
/** How long Kubernetes may take to end pods. */
const CANCEL_SECONDS = 60;
/** A JobSet that is refused for so long is not wanted. */
const REFUSED_SECONDS = 10;

type Program = NativeProgram<TSchema, TSchema>;
type Pause = (milliseconds: number) => Promise<unknown>;

/** A new launch's directory and record; nothing has been written to the API server. */
function prepare(
  options: LaunchOptions<Program>,
  settings: KubernetesSettings,
  size: Size,
  configText: string,
  digest: string,
): KubernetesRecord {
  const marker = randomBytes(8).toString("hex");
  const directory = join(settings.directory ?? options.runDirectory, marker);
  mkdirSync(directory, { recursive: true });
  const configPath = join(directory, POD_FILES.config);
  const program =
    settings.programs === undefined
      ? options.program.path
      : join(settings.programs, basename(options.program.path));
  writeFileSync(configPath, configText);
  writeFileSync(join(directory, POD_FILES.agent), agentScript(directory));
  writeFileSync(
    join(directory, POD_FILES.script),
    podScript({
      ...size,
      program,
      configPath,
      directory,
      hostnames: Array.from({ length: size.nodes }, (_, index) => podHostname(marker, index)),
      mpirunOptions: settings.mpirunOptions ?? [],
    }),
  );
  for (const script of [POD_FILES.agent, POD_FILES.script]) chmodSync(join(directory, script), 0o755);
  return {
    marker,
    label: options.label ?? "",
    digest,
    directory,
    uid: null,
    submittedAt: new Date().toISOString(),
    runningSince: null,
    cancelled: false,
    seenBytes: 0,
    settings,
  };
}

const claimed = (record: KubernetesRecord): boolean =>
  readIfThere(join(record.directory, POD_FILES.claim)) !== undefined;

/** What pods never wrote needs no directory; a pod that starts too late finds none, and ends. */
function conclude(runDirectory: string, record: KubernetesRecord): void {
  if (record.cancelled && !claimed(record)) rmSync(record.directory, { recursive: true, force: true });
  removeKubernetesRecord(runDirectory);
}

/**
 * Deletes the JobSet that a run directory's last owner left, if there is one. The caller owns the directory.
 * @returns whether nothing of it is left; not while the API server does not answer.
 */
export async function cancelKubernetesLeftover(
  runDirectory: string,
  seconds = CANCEL_SECONDS,
  pause: Pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds)),
): Promise<boolean> {
  const record = readKubernetesRecord(runDirectory);
  if (!record) return true;
  try {
    const job = new LaunchedJobSet(new KubernetesApi(record.settings), runDirectory, record);
    if (!(await job.cancel(seconds, pause))) return false;
    conclude(runDirectory, job.record);
    return true;
  } catch (error) {
    if (error instanceof KubernetesAwayError) return false;
    throw error;
  }
}

/**
 * Runs a native program in the pods of a JobSet until it ends. They outlive their supervisor: with the same run
 * directory, label and configuration the next one finds them again, reads their events from the beginning, and goes
 * on. Nothing is launched twice.
 * @throws whatever `onEvent` threw, after the JobSet was deleted.
 */
export async function launchOnKubernetes<P extends Program>(
  options: LaunchOptions<P>,
  settings: KubernetesSettings,
): Promise<LaunchOutcome> {
  const { runDirectory } = options;
  const begin = performance.now();
  const seconds = (): number => (performance.now() - begin) / 1000;
  const size = sizeOf(options);
  const configText = configTextOf(options);
  const digest = digestOf(options, size, configText);
  const wake = new Wakeable([options.signal, options.killSignal, options.detachSignal]);
  const pause: Pause = (milliseconds) => wake.pause(milliseconds);
  try {
    const begun = await goOnOrEnd(options, {
      left: readKubernetesRecord(runDirectory),
      digest,
      seconds,
      endLeft: () => cancelKubernetesLeftover(runDirectory, CANCEL_SECONDS, pause),
      away: "Kubernetes does not answer, or cannot end what ran here before: it is asked again",
    });
    if ("status" in begun) return begun;
    const record = begun.left ?? prepare(options, settings, size, configText, digest);
    const api = new KubernetesApi(settings);
    const job = new LaunchedJobSet(api, runDirectory, record);
    // The record comes first: were this process killed meanwhile, the next one would find it.
    job.update({});
    const watch = new LaunchWatch(api, job);
    try {
      return await new Follower<P>({ options, size, job, watch, pause, seconds }).run();
    } finally {
      watch.close();
    }
  } finally {
    wake.close();
  }
}

interface Following<P extends Program> {
  readonly options: LaunchOptions<P>;
  readonly size: Size;
  readonly job: LaunchedJobSet;
  readonly watch: LaunchWatch;
  readonly pause: Pause;
  readonly seconds: () => number;
}

/** Follows one JobSet from its writing to its end. */
class Follower<P extends Program> {
  readonly #options: LaunchOptions<P>;
  readonly #size: Size;
  readonly #job: LaunchedJobSet;
  readonly #watch: LaunchWatch;
  readonly #pause: Pause;
  readonly #seconds: () => number;
  readonly #ranks: FollowedRanks<P>;
  readonly #waits: WaitWatch;
  readonly #wanted: JobSetObject;
  #asked = false;
  #refusedSince: number | undefined;
  #goneSince: number | undefined;
  #isDeleted = false;

  constructor({ options, size, job, watch, pause, seconds }: Following<P>) {
    const { record } = job;
    this.#options = options;
    this.#size = size;
    this.#job = job;
    this.#watch = watch;
    this.#pause = pause;
    this.#seconds = seconds;
    this.#ranks = new FollowedRanks(options, {
      eventsPath: job.file("events"),
      errorsPath: job.file("errors"),
      repeatedBytes: record.seenBytes,
      ...size,
      placementRemedy: "see hostNetwork and mpirunOptions of the cluster's kubernetes settings",
    });
    this.#waits = new WaitWatch(record.settings, size.nodes, Date.parse(record.submittedAt));
    this.#wanted = jobSetOf({
      ...size,
      marker: record.marker,
      label: record.label,
      program: options.program.name,
      threadsPerRank: options.threadsPerRank,
      settings: record.settings,
      directory: record.directory,
      environment: options.environment ?? {},
    });
  }

  /** What has been written since. Ranks run when all pods do, or when they have written something. */
  #read(): void {
    this.#ranks.read();
    const { record } = this.#job;
    const runs = this.#ranks.offset > 0 || (claimed(record) && allRun(this.#watch.seen, this.#size.nodes));
    if (record.runningSince === null && runs) {
      this.#ranks.begun();
      this.#job.update({ runningSince: new Date().toISOString() });
    }
    if (this.#ranks.offset > record.seenBytes) this.#job.update({ seenBytes: this.#ranks.offset });
  }

  async run(): Promise<LaunchOutcome> {
    for (let nextLook = 0; ; await this.#pause(FILES_MILLISECONDS)) {
      if (this.#options.detachSignal?.aborted) return stoppedOutcome(this.#seconds(), { detached: true });
      this.#ranks.obey(this.#job.record.runningSince);
      const end = readPodsEnd(this.#job.file("end"));
      this.#read();
      if (this.#ranks.mustEnd || end) return this.#over(end);
      if ((this.#ranks.sinceLastWord ?? 0) > LAST_WORD_SECONDS * 1000) return this.#over(undefined);
      const isAsked = this.#ranks.cause?.kind === "stop" && !this.#asked;
      if (performance.now() >= nextLook || isAsked) {
        nextLook = performance.now() + LOOK_MILLISECONDS;
        const refusal = await this.#look();
        if (refusal) return this.#refused(refusal);
      }
      // It has ended without leaving word: what it wrote may still be on its way.
      if (this.#goneSince !== undefined && performance.now() - this.#goneSince > LAG_SECONDS * 1000)
        return this.#over(undefined);
    }
  }

  /** @returns what the API server refuses for good. */
  async #look(): Promise<KubernetesRefusalError | undefined> {
    try {
      await this.#job.ensure(this.#wanted);
      this.#refusedSince = undefined;
      await this.#watch.withWorkload();
      if (this.#ranks.cause?.kind === "stop" && !this.#asked) {
        await this.#job.askToEnd();
        this.#asked = true;
      }
      if (this.#watch.away !== undefined) throw new KubernetesAwayError(this.#watch.away);
      await this.#judge();
    } catch (error) {
      if (!isNotDone(error)) throw error;
      const { uid } = this.#job.record;
      if (error instanceof KubernetesRefusalError && uid === null) {
        this.#refusedSince ??= performance.now();
        if (performance.now() - this.#refusedSince >= REFUSED_SECONDS * 1000) return error;
        this.#ranks.say(`${refused(error).message}; it is asked again`);
      } else
        this.#ranks.say(
          `Kubernetes does not answer (${(error as Error).message}); ` +
            (uid === null ? "the job is submitted when it does" : "the job is followed by its files"),
        );
    }
    return undefined;
  }

  /** What the objects mean that the API server tells. */
  async #judge(): Promise<void> {
    const { record, name } = this.#job;
    const { seen } = this.#watch;
    // A watch may be behind what was just written.
    const jobSet = seen.jobSet ?? (await this.#job.find());
    this.#isDeleted = jobSet === undefined && !record.cancelled && !this.#asked;
    const isOver =
      jobSet === undefined ||
      (jobSet.status?.terminalState ?? "") !== "" ||
      // Those that are left may wait for it for ever.
      this.#watch.hasLostPod ||
      (record.runningSince !== null && this.#watch.isIdle);
    if (isOver) this.#goneSince ??= performance.now();
    else this.#goneSince = undefined;
    if (isOver || this.#ranks.cause) return;
    const { queue } = record.settings;
    const reason = waitingReason(seen, { queue, nodes: this.#size.nodes });
    if (!reason) {
      this.#waits.runs();
      const nodes = [...new Set(seen.pods.flatMap(({ spec }) => spec?.nodeName ?? []))].sort();
      return this.#ranks.say(`${name} runs on ${namesInWords(nodes)}`);
    }
    this.#ranks.say(`${name} waits: ${reason.words}`, true);
    if (record.runningSince !== null) return;
    const isAdmitted = queue === undefined || seen.pods.length > 0;
    const givenUp = this.#waits.look({ reason, nodes: this.#watch.nodes, isAdmitted });
    if (givenUp) this.#ranks.fail(givenUp.failure, givenUp.nodesLeft);
  }

  #refused(error: KubernetesRefusalError): LaunchOutcome {
    this.#job.update({ cancelled: true });
    conclude(this.#options.runDirectory, this.#job.record);
    return { status: "failed", failure: refused(error), seconds: this.#seconds(), exitCode: null };
  }

  /** Ranks may have ended before a look found out. */
  async #isDeletedByOthers(): Promise<boolean> {
    const { uid, cancelled } = this.#job.record;
    if (this.#isDeleted || uid === null || cancelled || this.#asked || this.#ranks.cause)
      return this.#isDeleted;
    try {
      const jobSet = await this.#job.find();
      return jobSet === undefined || jobSet.metadata.deletionTimestamp !== undefined;
    } catch (error) {
      if (!isNotDone(error)) throw error;
      return false;
    }
  }

  /** The ranks are gone, or have to go: nothing of them stays in the cluster. */
  async #over(end: PodsEnd | undefined): Promise<LaunchOutcome> {
    // As it is now: deleting changes it.
    const { seen, nodesOut } = this.#watch;
    const isDeleted = await this.#isDeletedByOthers();
    const isOver = await this.#job.cancel(CANCEL_SECONDS, this.#pause);
    if (!isOver)
      this.#options.onLog?.(
        `Kubernetes has not confirmed the end of ${this.#job.name}: it is deleted when it answers`,
      );
    // A last line without its newline is none: whoever wrote it was ended.
    this.#read();
    const last = end ?? readPodsEnd(this.#job.file("end"));
    const outcome = outcomeOf({
      ...seen,
      end: last,
      name: this.#job.name,
      isDeleted,
      cause: this.#ranks.cause,
      nodesOut: nodesOut.length > 0 ? nodesOut : this.#watch.nodesOut,
      done: this.#ranks.done,
      firstError: this.#ranks.firstError,
      stderrTail: this.#ranks.stderrTail,
    });
    if (isOver) conclude(this.#options.runDirectory, this.#job.record);
    if ("thrown" in outcome) throw outcome.thrown;
    return { ...outcome, seconds: this.#seconds(), exitCode: last?.exitCode ?? null };
  }
}
