import { sql } from "drizzle-orm";
import { followJobs, type Database } from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { followTracker, type Tracker } from "../src/index.ts";

/** Trackers that follow the jobs of a database, until a test has them stop. */
export class Following {
  readonly failures: string[] = [];
  readonly #database: Database;
  #stop = new AbortController();
  #following: Promise<void>[] = [];

  constructor(database: Database) {
    this.#database = database;
  }

  /** From now on: what ends later is followed. */
  async start(tracker: Tracker, projects: readonly string[] | null = null): Promise<void> {
    await followJobs(this.#database, tracker.key, projects);
    this.#following.push(
      followTracker({
        database: this.#database,
        tracker,
        projects,
        signal: this.#stop.signal,
        onSent: () => {},
        onFailed: ({ error }) => void this.failures.push(error),
        onError: (error) => {
          throw error;
        },
      }),
    );
  }

  async stop(): Promise<void> {
    this.#stop.abort(new Error("the test is over"));
    await Promise.all(this.#following);
    this.#following = [];
    this.#stop = new AbortController();
  }

  /** Until everything of a job has been sent to one of the trackers. */
  untilEnded(jobId: string): Promise<boolean> {
    return eventually(
      `the end of ${jobId}`,
      async () => {
        const { rows } = await this.#database.db.execute(
          sql`select 1 from tracker_cursors where job_id = ${jobId} and ended_at is not null`,
        );
        return rows.length > 0;
      },
      60,
      () => this.failures.join("\n"),
    );
  }
}
