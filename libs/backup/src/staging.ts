import { constants } from "node:fs";
import { copyFile, link, mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ifThere, isAbsent } from "@internevo/domain";
import {
  CHECKPOINT_NAME,
  checkpointDirectory,
  checkpointName,
  exportDirectory,
  jobDirectory,
  timelineDirectory,
} from "@internevo/stages";
import type { JobStand } from "@internevo/store";
import { filesBelow, removeTree } from "./files.ts";
import { isFileOfJobs, isMeasuredSoFar, isPlainName, isTimeline } from "./shapes.ts";

const FOLDER = "backup.staging";
/** In the staging folder: where the backup is being written. */
const TARGET = "target";
/** Ends the name of a folder into which a backup is being written. */
export const UNFINISHED = ".unfinished";
const WHOLE = "manifest.json";
const ATTEMPT_TIMELINE = /^attempt-(\d+)\.json$/;
/** The file system has no hard links, or not here. */
const NO_LINKS = ["EPERM", "EXDEV", "EMLINK", "ENOTSUP", "ENOSYS", "EACCES"];

/** Steps of the complete checkpoints in a folder, ascending. */
async function stepsIn(directory: string): Promise<number[]> {
  const names = (await ifThere(() => readdir(directory))) ?? [];
  return names
    .flatMap((name) => CHECKPOINT_NAME.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b);
}

/** Gives a file a second name, or copies it where that cannot be. Whoever deletes it deletes the first name. */
async function linkFile(from: string, to: string): Promise<void> {
  try {
    await link(from, to);
  } catch (error) {
    const { code = "" } = error as NodeJS.ErrnoException;
    if (code === "EEXIST") {
      await rm(to);
      return linkFile(from, to);
    }
    if (!NO_LINKS.includes(code)) throw error;
    await copyFile(from, to, constants.COPYFILE_FICLONE);
  }
}

/**
 * Holds files of jobs fast, in a folder beside them, while a backup is taken: training goes on, and removes
 * its own names of them only.
 */
export class Staging {
  readonly #data: string;
  readonly #root: string;
  /** Which folder each staged checkpoint was, by its path: another may take its place. */
  readonly #staged = new Map<string, string>();
  readonly #leftOut = new Set<string>();
  /** Steps of each job's checkpoints when they were held last. */
  readonly #there = new Map<string, readonly number[]>();
  #target: string | undefined;

  constructor(dataDirectory: string) {
    this.#data = dataDirectory;
    this.#root = join(dataDirectory, FOLDER);
  }

  get root(): string {
    return this.#root;
  }

  /** Links and the like, and odd names, which were left out: paths in the data directory. */
  get leftOut(): readonly string[] {
    return [...this.#leftOut];
  }

  /**
   * Removes what a backup that was killed has left, here and where it was writing. No other may run.
   * @param target where this one will write.
   */
  async prepare(target: string): Promise<void> {
    const before = await ifThere(() => readFile(join(this.#root, TARGET), "utf8"));
    if (before?.endsWith(UNFINISHED)) await removeTree(before);
    await removeTree(this.#root);
    await mkdir(this.#root, { recursive: true, mode: 0o700 });
    await writeFile(join(this.#root, TARGET), target, { mode: 0o600 });
    this.#target = target;
  }

  /** Holds what there is of a job now; what is gone since an earlier call stays held. */
  async stageJob(stand: JobStand): Promise<void> {
    await this.stageCheckpoints(stand.jobId);
    await this.#stageTimelines(stand);
    await this.#stageTree(
      exportDirectory(this.#data, stand.jobId),
      exportDirectory(this.#root, stand.jobId),
      false,
    );
    await this.stageMeasured(stand.jobId);
  }

  /** Points that a measurement for a job or a workload has measured so far: the file grows, so it is copied. */
  async stageMeasured(owner: string): Promise<void> {
    const names = (await ifThere(() => readdir(jobDirectory(this.#data, owner)))) ?? [];
    for (const name of names.filter(isMeasuredSoFar)) {
      await mkdir(jobDirectory(this.#root, owner), { recursive: true, mode: 0o700 });
      await ifThere(() =>
        copyFile(join(jobDirectory(this.#data, owner), name), join(jobDirectory(this.#root, owner), name)),
      );
    }
  }

  /** Holds the checkpoints that a job has now. */
  async stageCheckpoints(jobId: string): Promise<void> {
    const [from, to] = [checkpointDirectory(this.#data, jobId), checkpointDirectory(this.#root, jobId)];
    const steps = await stepsIn(from);
    // The newest last: the oldest gives way first.
    for (const name of steps.map(checkpointName))
      await this.#stageCheckpoint(join(from, name), join(to, name));
    this.#there.set(jobId, steps);
  }

  /** Holds the checkpoints of jobs again and again, until work is done: none of them is there too shortly. */
  async whileStaging<T>(jobIds: readonly string[], work: () => Promise<T>): Promise<T> {
    let isDone = false;
    const staging = (async () => {
      while (!isDone && jobIds.length > 0) for (const id of jobIds) await this.stageCheckpoints(id);
    })();
    // Its failure is heard when the work is done.
    staging.catch(() => {});
    try {
      return await work();
    } finally {
      isDone = true;
      await staging;
    }
  }

  /** Steps of the checkpoints that are held, ascending. */
  steps(jobId: string): Promise<number[]> {
    return stepsIn(checkpointDirectory(this.#root, jobId));
  }

  /** Steps of those that the job had when they were held last, ascending. */
  there(jobId: string): readonly number[] {
    return this.#there.get(jobId) ?? [];
  }

  /** Lets go of checkpoints that do not belong to the backup. */
  async drop(jobId: string, steps: readonly number[]): Promise<void> {
    for (const step of steps)
      await removeTree(join(checkpointDirectory(this.#root, jobId), checkpointName(step)));
  }

  /** What is held, as paths in the data directory. */
  async files(): Promise<{ readonly path: string; readonly bytes: number }[]> {
    return (await filesBelow(this.#root)).filter(({ path }) => isFileOfJobs(path));
  }

  /** Lets go of everything, unless another backup has the folder by now. */
  async remove(): Promise<void> {
    const target = await ifThere(() => readFile(join(this.#root, TARGET), "utf8"));
    if (target === this.#target) await removeTree(this.#root);
  }

  /** All of a checkpoint or nothing: it changes its name before it is deleted, or another takes its place. */
  async #stageCheckpoint(from: string, to: string): Promise<void> {
    const identity = async (): Promise<string | undefined> => {
      const found = await ifThere(() => stat(from));
      return found && `${found.ino} ${found.mtimeMs}`;
    };
    const before = await identity();
    if (before === undefined || this.#staged.get(from) === before) return;
    const half = `${to}.half`;
    await removeTree(half);
    await this.#stageTree(from, half, true);
    const isWhole = (await ifThere(() => stat(join(half, WHOLE)))) !== undefined;
    if (!isWhole || (await identity()) !== before) return removeTree(half);
    await removeTree(to);
    await rename(half, to);
    this.#staged.set(from, before);
  }

  /** Those of attempts that the snapshot has. */
  async #stageTimelines({ jobId, attempt }: JobStand): Promise<void> {
    const [from, to] = [timelineDirectory(this.#data, jobId), timelineDirectory(this.#root, jobId)];
    const names = (await ifThere(() => readdir(from))) ?? [];
    const isLater = (name: string): boolean => Number(ATTEMPT_TIMELINE.exec(name)?.[1] ?? 0) > (attempt ?? 0);
    for (const name of names.filter((each) => isTimeline(each) && !isLater(each))) {
      await mkdir(to, { recursive: true, mode: 0o700 });
      await ifThere(() => linkFile(join(from, name), join(to, name)));
    }
  }

  /** @param isWhole whether a file that is gone meanwhile ends it: the rest is of no use */
  async #stageTree(from: string, to: string, isWhole: boolean): Promise<void> {
    const entries = (await ifThere(() => readdir(from, { withFileTypes: true }))) ?? [];
    if (entries.length > 0) await mkdir(to, { recursive: true, mode: 0o700 });
    for (const entry of entries) {
      const [source, target] = [join(from, entry.name), join(to, entry.name)];
      if (entry.name.endsWith(".tmp")) continue;
      if (!isPlainName(entry.name)) this.#leftOut.add(source);
      else if (entry.isDirectory()) await this.#stageTree(source, target, isWhole);
      else if (!entry.isFile()) this.#leftOut.add(source);
      else
        try {
          await linkFile(source, target);
        } catch (error) {
          if (!isAbsent(error)) throw error;
          if (isWhole) return;
        }
    }
  }
}
