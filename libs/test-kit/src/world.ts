import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { DestinationStream } from "pino";
import type { TObject } from "typebox";
import type { JobStreamEvent } from "@internevo/contracts";
import { shippedProfile } from "@internevo/cost-model";
import { isAtRest, resolveJob, type JobState, type Profile } from "@internevo/domain";
import { killLeftovers } from "@internevo/launcher";
import { startService, type RunningService, type ServiceDefinition } from "@internevo/service-kit";
import {
  allSteps,
  findRun,
  getJob,
  listJobs,
  requestCancel,
  storeGivenProfile,
  submitJob,
  subscribeJobEvents,
  type Database,
  type JobRow,
} from "@internevo/store";
import { eventually } from "./eventually.ts";
import { PATIENCE } from "./patience.ts";
import { createTestDatabase, testStack, type TestDatabase } from "./stack.ts";

const ROOT = join(import.meta.dirname, "..", "..", "..");

/** A job small enough that a whole one takes seconds on two ranks. */
export const smallJob = (over: Record<string, unknown> = {}): Record<string, unknown> => ({
  name: "small",
  model: {
    name: "tiny",
    hiddenSize: 64,
    layers: 2,
    heads: 4,
    kvHeads: 2,
    ffnHiddenSize: 128,
    vocabularySize: 256,
  },
  sequenceLengthTokens: 64,
  globalBatchTokens: 512,
  precision: "fp32",
  steps: 30,
  optimizer: { peakLearningRate: 0.003, minLearningRate: 0.0003, warmupSteps: 5 },
  data: { format: "text", paths: ["/usr/share/common-licenses/GPL-3"] },
  cluster: { name: `test-${randomUUID().slice(0, 8)}`, nodes: 1, gpusPerNode: 2, memoryPerGpu: "512MiB" },
  checkpointing: { everySteps: 10, keepLast: 2 },
  trials: { count: 2, warmupSteps: 1, steps: 2 },
  ...over,
});

export interface ServiceProcess {
  readonly name: string;
  readonly pid: number;
  /** Settles when it has ended. */
  readonly gone: Promise<void>;
  /** kill -9, and waits until it is gone. */
  kill(): Promise<void>;
}

/** A database, a namespace on the broker and a data directory of a test's own, with services on them. */
export interface World {
  readonly database: Database;
  readonly dataDirectory: string;
  readonly environment: Readonly<Record<string, string>>;
  start<S extends TObject>(
    definition: ServiceDefinition<S>,
    environment?: Readonly<Record<string, string>>,
  ): Promise<RunningService>;
  /** As a process of its own, so that it can be killed. */
  startProcess(name: string, environment?: Readonly<Record<string, string>>): Promise<ServiceProcess>;
  /** Of a cluster that overlaps nothing, as our executor: jobs that name it are planned without measuring. */
  readonly profile: Profile;
  /** Names it in a job. */
  readonly profileId: string;
  submit(job: Record<string, unknown>): Promise<string>;
  job(jobId: string): Promise<JobRow>;
  /** Follows the job until an event is what is waited for. */
  /** `seconds`: of an idle machine. */
  untilEvent(
    jobId: string,
    found: (event: JobStreamEvent) => boolean,
    seconds?: number,
  ): Promise<JobStreamEvent>;
  untilState(jobId: string, state: JobState, seconds?: number): Promise<void>;
  /** Cancels what has not ended: a job keeps its hosts until then, and no service here ends it. */
  endJobs(): Promise<void>;
  /** Pids of the native programs' ranks of this world. */
  rankPids(): number[];
  /** Freezes every rank, or lets all go on. */
  signalRanks(signal: "SIGSTOP" | "SIGCONT"): void;
  untilNoRanks(seconds?: number): Promise<void>;
  /** Of the steps of a job's run, in order; none while it has no run. */
  lossesOf(jobId: string): Promise<number[]>;
  /** What the services logged, newest last. */
  logs(this: void): string;
  close(): Promise<void>;
}

/** Settings of services. Quick rather than exact: the figures are not what is tested. */
export const QUICK = {
  INTERNEVO_PROBE_SAMPLES: "1",
  INTERNEVO_PROBE_POINT_SECONDS: "0.002",
  INTERNEVO_PROBE_SPREAD: "1",
  INTERNEVO_PROFILE_SLICE_ROUNDS: "1",
  INTERNEVO_PROFILE_AGAIN_SECONDS: "0",
  INTERNEVO_PROFILE_MOST_SPREAD_PERCENT: "1e9",
  INTERNEVO_MOST_OTHERS_PERCENT: "100",
  INTERNEVO_TRIAL_RUNNER_REPEAT_SECONDS: "5",
};

const RANKS = ["internevo-train", "internevo-probe"];

function pidsOf(stackDirectory: string): number[] {
  const wanted = `INTERNEVO_STACK_DIRECTORY=${stackDirectory}`;
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const command = readFileSync(`/proc/${pid}/comm`, "utf8").trim();
        return RANKS.includes(command) &&
          readFileSync(`/proc/${pid}/environ`, "latin1").split("\0").includes(wanted)
          ? [Number(pid)]
          : [];
      } catch {
        return [];
      }
    });
}

/** Services on a database, a namespace and a data directory of their own. */
class TestWorld implements World {
  readonly database: Database;
  readonly dataDirectory = mkdtempSync(join(tmpdir(), "internevo-world-"));
  readonly environment: Readonly<Record<string, string>>;
  readonly profile: Profile;
  readonly profileId: string;
  readonly #test: TestDatabase;
  readonly #services: RunningService[] = [];
  readonly #children = new Set<ChildProcess>();
  readonly #lines: string[] = [];

  constructor(test: TestDatabase, profile: Profile, profileId: string) {
    this.#test = test;
    this.database = test.database;
    this.profile = profile;
    this.profileId = profileId;
    // Another build of the native programs may be tested.
    const native = process.env["INTERNEVO_NATIVE_DIRECTORY"];
    this.environment = {
      ...(native ? { INTERNEVO_NATIVE_DIRECTORY: native } : {}),
      DATABASE_URL: test.url,
      NATS_URL: testStack().natsUrl,
      INTERNEVO_NAMESPACE: `test-${randomUUID().slice(0, 8)}`,
      INTERNEVO_DATA_DIRECTORY: this.dataDirectory,
      INTERNEVO_STACK_DIRECTORY: this.dataDirectory,
      // Tests run beside each other, whoever else measures.
      INTERNEVO_MACHINE_DIRECTORY: this.dataDirectory,
      HEALTH_PORT: "0",
      LOG_LEVEL: "info",
      ...QUICK,
    };
    // Ranks of services in this process inherit the mark from it.
    process.env["INTERNEVO_STACK_DIRECTORY"] = this.dataDirectory;
  }

  readonly #keep = (line: string): void => {
    this.#lines.push(line.trimEnd());
    if (this.#lines.length > 2000) this.#lines.shift();
  };

  #last(lines: number): string {
    return this.#lines.slice(-lines).join("\n");
  }

  // Handed on as a value, which needs no `this`.
  readonly logs = (): string => this.#lines.join("\n");

  async start<S extends TObject>(
    definition: ServiceDefinition<S>,
    more: Readonly<Record<string, string>> = {},
  ): Promise<RunningService> {
    const running = await startService(definition, {
      environment: { ...this.environment, ...more },
      logDestination: { write: this.#keep } satisfies DestinationStream,
    });
    this.#services.push(running);
    return running;
  }

  async startProcess(name: string, more: Readonly<Record<string, string>> = {}): Promise<ServiceProcess> {
    const child = spawn(process.execPath, [join(ROOT, "apps", name, "src", "main.ts")], {
      cwd: this.dataDirectory,
      env: {
        PATH: process.env["PATH"] ?? "",
        HOME: process.env["HOME"] ?? "/",
        ...this.environment,
        ...more,
      },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#children.add(child);
    const gone = new Promise<void>((resolve) =>
      child.once("close", () => (this.#children.delete(child), resolve())),
    );
    createInterface({ input: child.stderr }).on("line", this.#keep);
    await new Promise<void>((resolve, reject) => {
      createInterface({ input: child.stdout }).on("line", (line) => {
        this.#keep(line);
        if (line.includes('"event":"ready"')) resolve();
      });
      void gone.then(() => reject(new Error(`${name} ended before it was ready:\n${this.#last(20)}`)));
    });
    return { name, pid: child.pid as number, gone, kill: () => (child.kill("SIGKILL"), gone) };
  }

  submit(job: Record<string, unknown>): Promise<string> {
    return this.database.transaction((tx) => submitJob(tx, resolveJob(job)));
  }

  async job(jobId: string): Promise<JobRow> {
    const row = await getJob(this.database.db, jobId);
    if (!row) throw new Error(`there is no job ${jobId}`);
    return row;
  }

  async untilEvent(
    jobId: string,
    found: (event: JobStreamEvent) => boolean,
    seconds = 60,
  ): Promise<JobStreamEvent> {
    const late = AbortSignal.timeout(PATIENCE * seconds * 1000);
    for await (const event of subscribeJobEvents(this.database, jobId, 0, { signal: late, pollSeconds: 0.2 }))
      if (found(event)) return event;
    const { state, reason } = await this.job(jobId);
    const waited = late.aborted ? `${PATIENCE * seconds} s ` : "";
    throw new Error(
      `waited ${waited}in vain: the job is ${state} (${reason ?? "no reason"})\n${this.#last(40)}`,
    );
  }

  async untilState(jobId: string, state: JobState, seconds?: number): Promise<void> {
    const isState = (event: JobStreamEvent): boolean => {
      if (event.type !== "state") return false;
      const to = event.data["to"] as JobState;
      if (isAtRest(to) && to !== state)
        throw new Error(`the job ended as ${to}: ${String(event.data["reason"])}\n${this.#last(40)}`);
      return to === state;
    };
    await this.untilEvent(jobId, isState, seconds);
  }

  async endJobs(): Promise<void> {
    const { items } = await listJobs(this.database.db, { limit: 200 });
    for (const { id } of items.filter(({ state }) => !isAtRest(state))) {
      await this.database.transaction((tx) => requestCancel(tx, id));
      // Its past is of no interest: it may have rested before.
      await eventually("the job's end", async () => (await this.job(id)).state === "cancelled", 30);
    }
  }

  rankPids(): number[] {
    return pidsOf(this.dataDirectory);
  }

  signalRanks(signal: "SIGSTOP" | "SIGCONT"): void {
    for (const pid of this.rankPids()) process.kill(pid, signal);
  }

  async untilNoRanks(seconds = 5): Promise<void> {
    await eventually(
      "the end of all ranks",
      () => this.rankPids().length === 0,
      seconds,
      () => `ranks ${this.rankPids().join(", ")} are left`,
    );
  }

  async lossesOf(jobId: string): Promise<number[]> {
    const run = await findRun(this.database.db, jobId);
    return run ? (await allSteps(this.database.db, run.id)).map(({ loss }) => loss) : [];
  }

  async close(): Promise<void> {
    await Promise.all(this.#services.map((service) => service.stop()));
    await Promise.all(
      [...this.#children].map(
        (child) =>
          new Promise<void>((resolve) => (child.once("close", () => resolve()), child.kill("SIGKILL"))),
      ),
    );
    await this.untilNoRanks(10);
    // What killed services left in shared memory.
    const clusters = join(this.dataDirectory, "clusters");
    for (const name of existsSync(clusters) ? readdirSync(clusters) : [])
      await killLeftovers(join(clusters, name, "run"));
    await this.#test.drop();
    rmSync(this.dataDirectory, { recursive: true, force: true });
  }
}

export async function createWorld(): Promise<World> {
  const test = await createTestDatabase();
  const profile: Profile = {
    ...shippedProfile("a800-128"),
    executor: { forwardOverlap: "none", backwardOverlap: "none" },
  };
  return new TestWorld(test, profile, await storeGivenProfile(test.database.db, profile));
}
