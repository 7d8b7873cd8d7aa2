import { mkdir, readdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { CHECKPOINT_NAME, checkpointName } from "@internevo/stages";

const DISCARDED = /^discarded-/;
const COUNTED = "counted-step";

/** None when the directory is not there. */
async function namesIn(directory: string): Promise<string[]> {
  try {
    return await readdir(directory);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}

/** Steps of the complete checkpoints, ascending; none when the directory is not there. */
export async function checkpointSteps(directory: string): Promise<number[]> {
  return (await namesIn(directory))
    .flatMap((name) => CHECKPOINT_NAME.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b);
}

/**
 * Removes checkpoints beyond a step, so that training goes on from one whose steps are all stored: a
 * supervisor that was killed between a step and its storing would leave a gap in the metrics for ever. A
 * checkpoint changes its name before it is deleted: half of one is never found.
 * @returns the steps of what was removed.
 */
export async function discardCheckpointsBeyond(directory: string, lastStoredStep: number): Promise<number[]> {
  const beyond = (await checkpointSteps(directory)).filter((step) => step > lastStoredStep);
  await discard(directory, beyond);
  return beyond;
}

async function discard(directory: string, steps: readonly number[]): Promise<void> {
  for (const step of steps)
    await rename(
      join(directory, checkpointName(step)),
      join(directory, `discarded-${step}-${process.pid}-${Date.now()}`),
    );
  for (const name of (await namesIn(directory)).filter((each) => DISCARDED.test(each)))
    await rm(join(directory, name), { recursive: true, force: true });
}

/**
 * Leaves the newest checkpoints of a run whose steps are all stored, and nothing else of it: ranks that end
 * before their last steps are stored leave the one more that was to be gone on from until then.
 */
export async function leaveNewest(directory: string, keep: number): Promise<void> {
  await discard(directory, (await checkpointSteps(directory)).slice(0, -keep));
  await rm(join(directory, COUNTED), { force: true });
}

/**
 * Tells the trainer which of its checkpoints must not give way to newer ones: the last whose steps are all
 * stored. A supervisor that has fallen behind its ranks, and then dies, would find none to go on from.
 */
export class CountedCheckpoint {
  readonly #directory: string;
  readonly #onFailure: (error: unknown) => void;
  #stored = 0;
  #written: number[] = [];
  #work = Promise.resolve();

  constructor(directory: string, onFailure: (error: unknown) => void) {
    this.#directory = directory;
    this.#onFailure = onFailure;
  }

  checkpointWritten(step: number): void {
    this.#written.push(step);
    this.#tell();
  }

  /** All steps up to this one are stored. */
  stepsStored(last: number): void {
    this.#stored = last;
    this.#tell();
  }

  /** What was to be told is told. */
  settled(): Promise<void> {
    return this.#work;
  }

  #tell(): void {
    const newest = this.#written.findLast((step) => step <= this.#stored);
    if (newest === undefined) return;
    this.#written = this.#written.filter((step) => step > newest);
    this.#work = this.#work.then(() => tellCounted(this.#directory, newest)).catch(this.#onFailure);
  }
}

/**
 * Replaces the file as a whole: half of a number would be another. @param step all steps up to it are stored.
 */
export async function tellCounted(directory: string, step: number): Promise<void> {
  const path = join(directory, COUNTED);
  await mkdir(directory, { recursive: true });
  await writeFile(`${path}.tmp`, `${step}\n`);
  await rename(`${path}.tmp`, path);
}
