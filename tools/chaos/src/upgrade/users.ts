import { setTimeout as sleep } from "node:timers/promises";
import { InternEvoClient } from "@internevo/client";

/** How long a user asks again before a request counts as failed. */
export const RETRY_SECONDS = 30;
const RETRY_PAUSE_MILLISECONDS = 200;

/**
 * A client of several addresses of the API, as a user with two of them has it: where one does not answer, the next
 * request goes to the other.
 */
export function clientOf(addresses: readonly string[], token: string): InternEvoClient {
  let at = 0;
  const next = (): void => void (at = (at + 1) % addresses.length);
  return new InternEvoClient({
    baseUrl: "http://any-of-them",
    token,
    fetch: async (input, init) => {
      const { pathname, search } = new URL(input instanceof Request ? input.url : input);
      try {
        const answer = await fetch(`${addresses[at]}${pathname}${search}`, init);
        if (answer.status >= 500) next();
        return answer;
      } catch (error) {
        next();
        throw error;
      }
    },
  });
}

interface Asked {
  asked: number;
  /** Requests that were answered only when they were repeated. */
  retried: number;
  longestSeconds: number;
  failed: string[];
}

/** Requests of users: each is repeated for a while, and counted. */
export class Requests {
  readonly #kinds = new Map<string, Asked>();
  readonly #refusals = new Map<string, number>();

  /** @returns the answer; undefined where no repetition brought one */
  async ask<T>(kind: string, request: () => Promise<T>): Promise<T | undefined> {
    const counted = this.#kinds.get(kind) ?? { asked: 0, retried: 0, longestSeconds: 0, failed: [] };
    this.#kinds.set(kind, counted);
    counted.asked += 1;
    const begin = performance.now();
    const seconds = (): number => (performance.now() - begin) / 1000;
    for (let tries = 1; ; tries += 1) {
      try {
        const answer = await request();
        if (tries > 1) counted.retried += 1;
        counted.longestSeconds = Math.max(counted.longestSeconds, seconds());
        return answer;
      } catch (error) {
        const words = `${kind}: ${(error as Error).message.replace(/[0-9a-f-]{36}/g, "ID")}`;
        this.#refusals.set(words, (this.#refusals.get(words) ?? 0) + 1);
        if (seconds() > RETRY_SECONDS) {
          counted.failed.push(words);
          return undefined;
        }
        await sleep(RETRY_PAUSE_MILLISECONDS);
      }
    }
  }

  get failed(): readonly string[] {
    return [...this.#kinds.values()].flatMap(({ failed }) => failed);
  }

  report(): {
    readonly kinds: Readonly<Record<string, Asked>>;
    readonly refusals: Readonly<Record<string, number>>;
  } {
    return { kinds: Object.fromEntries(this.#kinds), refusals: Object.fromEntries(this.#refusals) };
  }
}

const READ_PAUSE_MILLISECONDS = 300;
const CHANGE_PAUSE_MILLISECONDS = 2000;

export interface AskedFor {
  readonly jobId: string;
  readonly workloadId: string;
  readonly webhookId: string;
  /** A job file of a name; its jobs are cancelled again. */
  readonly jobFile: (name: string) => Record<string, unknown>;
}

/** Users who ask several times a second, submit and cancel, until they are told to end. */
export class Users {
  readonly requests = new Requests();
  /** Jobs that were submitted and cancelled, by name. */
  readonly cancelled = new Map<string, string>();
  /** What was answered wrongly. */
  readonly wrong: string[] = [];
  readonly #makeClient: () => InternEvoClient;
  readonly #loops: readonly Promise<void>[];
  #over = false;

  constructor(makeClient: () => InternEvoClient, about: AskedFor) {
    this.#makeClient = makeClient;
    this.#loops = [this.#read(about), this.#change(about)];
  }

  async end(): Promise<void> {
    this.#over = true;
    await Promise.all(this.#loops);
  }

  async #read({ jobId, workloadId, webhookId }: AskedFor): Promise<void> {
    const client = this.#makeClient();
    let lastStep = 0;
    while (!this.#over) {
      await this.requests.ask("list", () => client.listJobs({ limit: 20 }));
      const job = await this.requests.ask("show", () => client.getJob(jobId));
      if (job?.id !== undefined && job.id !== jobId) this.wrong.push(`show ${jobId} answered with ${job.id}`);
      const metrics = await this.requests.ask("metrics", () => client.jobMetrics(jobId, { after: lastStep }));
      for (const { step } of metrics?.items ?? []) {
        if (step !== lastStep + 1) this.wrong.push(`metrics have step ${step} after step ${lastStep}`);
        lastStep = step;
      }
      await this.requests.ask("workload", () => client.getWorkload(workloadId));
      await this.requests.ask("webhook", () => client.getWebhook(webhookId));
      await sleep(READ_PAUSE_MILLISECONDS);
    }
  }

  async #change({ jobFile }: AskedFor): Promise<void> {
    const client = this.#makeClient();
    for (let number = 0; !this.#over; number += 1) {
      const name = `cancelled-${number}`;
      const options = { idempotencyKey: `upgrade-${number}` };
      const submit = () => client.submitJob(jobFile(name), options);
      const job = await this.requests.ask("submit", submit);
      // As a user whose answer was lost does.
      const again = await this.requests.ask("submit again", submit);
      if (job !== undefined && again !== undefined && job.id !== again.id)
        this.wrong.push(`${name} was submitted twice with one key: ${job.id}, ${again.id}`);
      if (job !== undefined) {
        this.cancelled.set(name, job.id);
        await this.requests.ask("cancel", () =>
          client.cancelJob(job.id, { idempotencyKey: `upgrade-cancel-${number}` }),
        );
      }
      await sleep(CHANGE_PAUSE_MILLISECONDS);
    }
  }
}
