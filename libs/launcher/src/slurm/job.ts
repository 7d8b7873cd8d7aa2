import { join } from "node:path";
import {
  isLive,
  SlurmAwayError,
  SlurmRefusalError,
  type SlurmControl,
  type SlurmJob,
  type SlurmNode,
  type SlurmRequest,
} from "./control.ts";
import { readClaim, readHosts } from "./files.ts";
import { slurmJobName, writeSlurmRecord, type SlurmRecord } from "./record.ts";
import { JOB_FILES } from "./script.ts";

/**
 * The Slurm job of a record: found again, submitted at most once. Name and claim make it so: the name finds a
 * submission whose answer was never heard, and of two that arrived all the same only the first to start does
 * anything.
 */
export class SubmittedJob {
  readonly #control: SlurmControl;
  readonly #runDirectory: string;
  #record: SlurmRecord;

  constructor(control: SlurmControl, runDirectory: string, record: SlurmRecord) {
    this.#control = control;
    this.#runDirectory = runDirectory;
    this.#record = record;
  }

  get record(): SlurmRecord {
    return this.#record;
  }

  update(change: Partial<SlurmRecord>): void {
    this.#record = { ...this.#record, ...change };
    writeSlurmRecord(this.#runDirectory, this.#record);
  }

  file(name: keyof typeof JOB_FILES): string {
    return join(this.#record.directory, JOB_FILES[name]);
  }

  /**
   * Asks Slurm. Of several jobs of the name that one counts that has claimed the work, and then the others
   * are cancelled; until one has, whichever starts first may be it, and none is.
   * @returns undefined when Slurm does not know it (any more).
   */
  async look(): Promise<SlurmJob | undefined> {
    const jobs = await this.#jobs();
    const claimed = readClaim(this.file("claim"));
    const wanted = claimed ?? this.#likely(jobs);
    if (claimed !== undefined)
      for (const job of jobs) if (job.id !== claimed && isLive(job)) await this.#control.cancel(job.id);
    if (wanted !== undefined && wanted !== this.#record.jobId) this.update({ jobId: wanted });
    return jobs.find((job) => job.id === wanted);
  }

  async #jobs(): Promise<SlurmJob[]> {
    return (await this.#control.jobsNamed(slurmJobName(this.#record.marker))).sort((a, b) => a.id - b.id);
  }

  /** The job that is told of while none has claimed the work. */
  #likely(jobs: readonly SlurmJob[]): number | undefined {
    const { jobId } = this.#record;
    const known = jobs.find(({ id }) => id === jobId);
    if (known && isLive(known)) return known.id;
    return jobs.find(isLive)?.id ?? jobId ?? jobs[0]?.id;
  }

  /**
   * Looks until Slurm says how the job ended: while it still ends processes its state (COMPLETING) does not
   * tell.
   * @param seconds how long that may take; @returns what Slurm said last, `seen` where it does not answer.
   */
  async settled(
    seconds: number,
    seen: SlurmJob | undefined,
    pause: (milliseconds: number) => Promise<unknown>,
  ): Promise<SlurmJob | undefined> {
    let last = seen;
    for (const end = performance.now() + seconds * 1000; ; await pause(500)) {
      try {
        const job = await this.look();
        if (!job) return last;
        last = job;
      } catch (error) {
        if (!(error instanceof SlurmAwayError || error instanceof SlurmRefusalError)) throw error;
      }
      if ((last && !isLive(last)) || performance.now() >= end) return last;
    }
  }

  /** Nodes of the job that can take none now; empty where Slurm does not answer. */
  async nodesOut(): Promise<SlurmNode[]> {
    const hosts = new Set(readHosts(this.file("hosts")));
    try {
      return (await this.#control.nodes()).filter(({ name, usable }) => !usable && hosts.has(name));
    } catch (error) {
      if (error instanceof SlurmAwayError || error instanceof SlurmRefusalError) return [];
      throw error;
    }
  }

  /** Submits unless that has been done. @throws SlurmRefusalError, SlurmAwayError */
  async ensure(request: SlurmRequest): Promise<void> {
    if (this.#record.jobId !== null) return;
    await this.look();
    if (this.#record.jobId !== null) return;
    this.update({ jobId: await this.#control.submit(request) });
  }

  /**
   * Cancels the job, however often it was submitted, and waits until its ranks are gone.
   * @param seconds how long Slurm may take; @returns whether it is over: if not, the record says that it is
   * to be cancelled.
   */
  async cancel(seconds: number, pause: (milliseconds: number) => Promise<unknown>): Promise<boolean> {
    if (!this.#record.cancelled) this.update({ cancelled: true });
    for (const end = performance.now() + seconds * 1000; ; await pause(500)) {
      try {
        const live = (await this.#jobs()).filter(isLive);
        if (live.length === 0) return true;
        if (performance.now() < end) for (const { id } of live) await this.#control.cancel(id);
      } catch (error) {
        if (!(error instanceof SlurmAwayError || error instanceof SlurmRefusalError)) throw error;
      }
      if (performance.now() >= end) return false;
    }
  }
}
