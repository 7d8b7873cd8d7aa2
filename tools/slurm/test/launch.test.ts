import { eventually } from "@internevo/test-kit";
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SlurmSettings } from "@internevo/launcher";
import {
  knownClusters,
  launchRanks,
  readSlurmRecord,
  type LaunchOptions,
  type NativeProgram,
  type SlurmRecord,
} from "@internevo/launcher";
import { Type, type TSchema } from "typebox";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { slurmTools } from "@internevo/launcher";
import { whyImpossible } from "../src/stand.ts";
import { createSite, linesOf, runsOn, type Site } from "./slurm-world.ts";

const impossible = whyImpossible();
if (impossible !== undefined) console.warn(`The tests of launches on Slurm are skipped: ${impossible}`);

type Program = NativeProgram<TSchema, TSchema>;
/** `slurm`: over the settings of the test's cluster. */
type Options = Partial<LaunchOptions<Program>> & { readonly slurm?: Partial<SlurmSettings> };
const RANK = "${PMIX_RANK:-${OMPI_COMM_WORLD_RANK:?}}";
/** One line that no other rank's word cuts in two. */
const HELLO = `printf '{"event":"hello","rank":%s,"host":"%s","text":"%s"}\\n' ${RANK} "$(hostname)" "\${WORD:-}"`;
const DONE = `printf '{"event":"done"}\\n'`;
/** Until the test says {@link go}. */
const WAIT = "until [ -e $(dirname $0)/go ]; do sleep 0.05; done";

/** Does something when so many events have come. */
const atEvent =
  (count: number, then: () => void): (() => void) =>
  () =>
    void (--count === 0 && then());

describe.skipIf(impossible !== undefined)("a launch on Slurm", () => {
  let site: Site;
  let directory: string;
  beforeAll(async () => {
    site = await createSite(
      {},
      {
        configuration: [
          "PartitionName=short Nodes=n1 MaxTime=1",
          "PartitionName=closed Nodes=n1 State=DOWN",
          "Licenses=seat:1",
        ],
      },
    );
  });
  afterAll(() => site.close());
  const launches: unknown[] = [];
  beforeEach(({ onTestFailed }) => {
    directory = mkdtempSync(join(tmpdir(), "internevo-slurm-launch-"));
    launches.length = 0;
    onTestFailed(() =>
      console.error(
        "The launches of the test that " +
          `failed:\n${launches.map((each) => JSON.stringify(each)).join("\n")}\n${site.slurm.logs()}`,
      ),
    );
  });
  afterEach(async () => {
    await site.slurm.slurm("scancel", "--user=root");
    await eventually(
      "no job is left",
      async () =>
        (await site.jobs()).every(({ state }) => !["RUNNING", "PENDING", "COMPLETING"].includes(state)),
      30,
      site.slurm.logs,
    );
    rmSync(directory, { recursive: true, force: true });
  });

  const go = (): void => writeFileSync(join(directory, "go"), "");
  /** Written once: a file that is being started cannot be written. */
  const program = (body: string): Program => {
    const path = join(directory, `program-${createHash("sha256").update(body).digest("hex").slice(0, 8)}`);
    if (!existsSync(path)) writeFileSync(path, `#!/bin/bash\n${body}\n`, { mode: 0o755 });
    return { name: "program", path, configSchema: Type.Any(), eventSchema: Type.Any() };
  };
  const runDirectory = (): string => join(directory, "run");
  interface Said {
    readonly event: string;
    readonly rank: number;
    readonly host: string;
    readonly text: string;
  }
  async function launch(body: string, { slurm, ...over }: Options = {}) {
    const events: Said[] = [];
    const queue: string[] = [];
    const logs: string[] = [];
    const outcome = await launchRanks<Program>({
      program: program(body),
      config: { any: 1 },
      ranks: 4,
      ranksPerNode: 2,
      threadsPerRank: 1,
      launcher: "slurm",
      settings: { ...site.settings, ...slurm },
      runDirectory: runDirectory(),
      onLog: (line) => logs.push(line),
      ...over,
      onQueue: (message, waits) => {
        queue.push(message);
        over.onQueue?.(message, waits);
      },
      onEvent: (event, isRepeated) => {
        events.push(event as Said);
        over.onEvent?.(event, isRepeated);
      },
    });
    launches.push({ outcome, queue, logs });
    return { outcome, events, queue, logs };
  }

  it.each(["srun", "mpirun"] as const)(
    "places ranks by the mesh with %s: consecutive ranks fill a node, in the order of the allocation",
    async (start) => {
      const leave = await site.occupy();
      const { outcome, events, queue } = await launch(
        `${HELLO}; ${WAIT}; [ ${RANK} = 0 ] && ${DONE}; exit 0`,
        {
          slurm: { start, ...(start === "mpirun" ? { mpirun: ["mpirun", "--allow-run-as-root"] } : {}) },
          onQueue: (message) =>
            void (message.startsWith("waits") ? leave() : / runs on /.test(message) && go()),
        },
      );
      expect(outcome).toMatchObject({ status: "completed", exitCode: 0 });
      const hosts = events
        .filter(({ event }) => event === "hello")
        .sort((a, b) => a.rank - b.rank)
        .map(({ host }) => host);
      const [first, , second] = hosts;
      expect(hosts).toEqual([first, first, second, second]);
      expect(hosts).toEqual([...hosts].sort());
      expect(queue[0]).toMatch(/^waits in Slurm's queue as job \d+: /);
      expect(queue.at(-1)).toMatch(runsOn(hosts));
      expect(readSlurmRecord(runDirectory())).toBeUndefined();
    },
  );

  it("lets no rank out of MPI_Init before all are ready: a message to one that is not would end it", async () => {
    const source = join(directory, "init.c");
    writeFileSync(
      source,
      `#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  printf("{\\"event\\":\\"left\\"}\\n"), fflush(stdout);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
}
`,
    );
    execFileSync("mpicc", [source, "-o", join(directory, "init")]);
    // Between its last two fences the first rank of Open MPI writes its settings where it is told to: into a
    // pipe that nobody reads for a while.
    const held =
      'export OMPI_MCA_mpi_show_mca_params=all OMPI_MCA_mpi_show_mca_params_file=$here/settings; mkfifo $here/settings; (sleep 2; printf \'{"event":"let go"}\\n\'; exec cat $here/settings > /dev/null) &';
    const { outcome, events } = await launch(
      `here=$(dirname $0); if [ ${RANK} = 0 ]; then ${held} fi; ` +
        `$here/init || exit 1; [ ${RANK} = 0 ] && { wait; ${DONE}; }; exit 0`,
      { ranks: 3, ranksPerNode: 1 },
    );
    expect(outcome).toMatchObject({ status: "completed" });
    expect(events.map(({ event }) => event)).toEqual(["let go", "left", "left", "left", "done"]);
  });

  it("gives ranks variables, a container's command and no secrets", async () => {
    process.env["DATABASE_URL"] = "postgres://secret";
    try {
      const { events, outcome } = await launch(
        `WORD="$WORD-$INSIDE-\${DATABASE_URL:-none}"; ${HELLO}; ${DONE}`,
        {
          ranks: 1,
          ranksPerNode: 1,
          slurm: { environment: { WORD: "it's" }, container: ["env", "INSIDE=a box"] },
        },
      );
      expect(outcome.status).toBe("completed");
      expect(events[0]?.text).toBe("it's-a box-none");
    } finally {
      delete process.env["DATABASE_URL"];
    }
  });

  it("tells every rank of the wish for an orderly end, and ends them when they take too long", async () => {
    // The wish is heard by ranks that have begun.
    const stop = new AbortController();
    const { outcome } = await launch(
      `stop() { ${DONE}; exit 75; }; trap stop USR1; ${HELLO}; while :; do sleep 0.1; done`,
      { signal: stop.signal, onEvent: atEvent(4, () => stop.abort()) },
    );
    expect(outcome).toMatchObject({ status: "stopped", graceful: true, exitCode: 75 });
    const again = new AbortController();
    const deaf = await launch(`trap '' USR1; ${HELLO}; while :; do sleep 0.1; done`, {
      signal: again.signal,
      graceSeconds: 1,
      onEvent: atEvent(4, () => again.abort()),
    });
    expect(deaf.outcome).toMatchObject({ status: "stopped", graceful: false });
    expect((await site.jobs()).every(({ state }) => state !== "RUNNING")).toBe(true);
  });

  it("lets ranks save before the time limit comes, and says so; refuses meanwhile what can never run, with words and a remedy", async () => {
    const refused = async (
      what: string,
      over: Options,
      slurm: Partial<SlurmSettings>,
      words: RegExp,
    ): Promise<void> => {
      const { outcome } = await launch(HELLO, {
        runDirectory: join(directory, what),
        ...over,
        slurm: { nodeLossSeconds: 1, ...slurm },
      });
      expect(outcome, what).toMatchObject({
        status: "failed",
        failure: { code: "not-started", message: expect.stringMatching(words), remedy: expect.any(String) },
      });
    };
    // Slurm looks at time limits every half minute only.
    const limited = launch(
      `stop() { ${DONE}; exit 75; }; trap stop USR1; ${HELLO}; while :; do sleep 0.1; done`,
      { ranks: 2, slurm: { timeLimitSeconds: 60, saveSeconds: 30 } },
    );
    await Promise.all([
      refused(
        "more nodes than there are",
        { ranks: 18, ranksPerNode: 2 },
        {},
        /^Slurm will never start job \d+: it needs 9 nodes, and partition main has 3$/,
      ),
      refused(
        "a partition that is none",
        {},
        { partition: "nowhere" },
        /^Slurm refuses the job: .*partition/,
      ),
      refused(
        "more time than the partition gives",
        { ranks: 2 },
        { partition: "short", timeLimitSeconds: 3600 },
        /^Slurm will never start job \d+: it asks for more time than its partition allows \(PartitionTimeLimit\)$/,
      ),
      refused(
        "more nodes than the partition has",
        {},
        { partition: "short" },
        /^Slurm will never start job \d+: it needs 2 nodes, and partition short has 1$/,
      ),
    ]);
    const { outcome } = await limited;
    expect((await site.jobs()).filter(({ state }) => state === "PENDING")).toEqual([]);
    expect(outcome).toMatchObject({
      status: "failed",
      exitCode: 75,
      failure: {
        code: "rank-lost",
        message: expect.stringMatching(
          /^Slurm job \d+ has ended in order, with a checkpoint: its time limit was near/,
        ),
      },
    });
    const id = Number(/job (\d+)/.exec(outcome.status === "failed" ? outcome.failure.message : "")?.[1]);
    await eventually(
      "Slurm says that it failed",
      async () => (await site.jobs()).find((job) => job.id === id)?.state === "FAILED",
      30,
      site.slurm.logs,
    );
  }, 900_000);

  it("cancels a job that waits, and says meanwhile why it waits and when it is expected to start", async () => {
    await site.occupy();
    const stop = new AbortController();
    const { outcome, queue, events } = await launch(HELLO, {
      killSignal: stop.signal,
      timeoutSeconds: 600,
      onQueue: (message) => {
        if (
          /the nodes that it needs are busy; Slurm expects it to start at \d{4}-\d\d-\d\d \d\d:\d\d UTC/.test(
            message,
          )
        )
          stop.abort();
      },
    });
    expect(outcome).toMatchObject({ status: "stopped", graceful: false });
    expect(events).toEqual([]);
    expect(queue.at(-1)).toMatch(
      /^waits in Slurm's queue as job \d+: the nodes that it needs are busy; Slurm expects/,
    );
    expect(
      (await site.jobs()).find(
        ({ name, state }) => name.startsWith("internevo-") && ["PENDING", "RUNNING"].includes(state),
      ),
    ).toBeUndefined();
    expect((await site.jobs()).at(-1)?.state).toBe("CANCELLED");
  });

  it("takes a job back that does not start in time", async () => {
    await site.occupy();
    const { outcome } = await launch(HELLO, { slurm: { queueLimitSeconds: 3 } });
    expect(outcome).toMatchObject({
      status: "failed",
      failure: {
        code: "not-started",
        message: expect.stringMatching(
          /^Slurm did not start job \d+ within 3(\.00)? s: the nodes that it needs are busy$/,
        ),
        remedy: expect.stringContaining("queueLimitSeconds"),
      },
    });
    expect((await site.jobs()).at(-1)?.state).toBe("CANCELLED");
  });

  it("fails in words when a rank is killed, when the job is cancelled by others, and when a module is missing", async () => {
    const killed = await launch(`${HELLO}; [ ${RANK} = 3 ] && kill -KILL $$; sleep 600`, {
      slurm: { launchOptions: ["--wait=2"] },
    });
    expect(killed.outcome).toMatchObject({
      status: "failed",
      failure: { code: "rank-lost", rank: 3, message: expect.stringMatching(/Slurm job \d+ on n\[1-2\]/) },
    });
    let id = "";
    let hasBegun = false;
    const cancelOnce = atEvent(1, () => void site.slurm.slurm("scancel", "--full", id));
    const cancelled = await launch(`${HELLO}; sleep 600`, {
      onEvent: () => {
        hasBegun = true;
        if (id !== "") cancelOnce();
      },
      onQueue: (message) => {
        id = /job (\d+) runs/.exec(message)?.[1] ?? "";
        if (hasBegun && id !== "") cancelOnce();
      },
    });
    expect(id).not.toBe("");
    expect(cancelled.outcome).toMatchObject({
      status: "failed",
      failure: {
        code: "cancelled",
        message: expect.stringMatching(/it was cancelled in Slurm, and not by InternEvo/),
      },
    });
    const missing = await launch(HELLO, { slurm: { modules: ["no-such/1.0"] } });
    expect(missing.outcome).toMatchObject({
      status: "failed",
      failure: {
        code: "not-started",
        message: expect.stringMatching(/environment module no-such\/1.0 cannot be loaded/),
        remedy: expect.stringContaining("modules"),
      },
    });
  });

  describe("left by a supervisor", () => {
    /** Runs the launch in a process of its own it says a word. */
    async function supervisor(path: string, word: string): Promise<{ kill: () => Promise<void> }> {
      const script = join(directory, "supervisor.ts");
      writeFileSync(
        script,
        `import { launchRanks } from ${JSON.stringify(import.meta.resolve("@internevo/launcher"))};
        import { Type } from ${JSON.stringify(import.meta.resolve("typebox"))};
        await launchRanks({ program: { name: "program", path: ${JSON.stringify(path)}, configSchema: Type.Any(), eventSchema: Type.Any() }, config: { any: 1 }, ranks: 4, ranksPerNode: 2, threadsPerRank: 1, launcher: "slurm",
          settings: ${JSON.stringify(site.settings)}, runDirectory: ${JSON.stringify(runDirectory())}, onEvent: () => console.log("event"), onQueue: (message) => console.log("queue", message) });`,
      );
      const child = spawn(process.execPath, [script], { stdio: ["ignore", "pipe", "inherit"] });
      const gone = new Promise((resolve) => child.once("close", resolve));
      await new Promise<void>((resolve) => {
        let said = "";
        child.stdout.on("data", (chunk: Buffer) => {
          said += chunk.toString();
          if (said.includes(word)) resolve();
        });
      });
      return { kill: async () => void (child.kill("SIGKILL"), await gone) };
    }
    const internevoJobs = async () =>
      (await site.jobs()).filter(
        ({ name }) =>
          name === `internevo-${readdirSync(runDirectory()).find((each) => /^[0-9a-f-]{36}$/.test(each))}`,
      );

    it("is found again with everything that it said, and is submitted once", async () => {
      const body = `${HELLO}; ${WAIT}; [ ${RANK} = 0 ] && ${DONE}; exit 0`;
      const first = await supervisor(program(body).path, "event");
      await eventually(
        "it is noted what was told",
        () => (readSlurmRecord(runDirectory())?.seenBytes ?? 0) > 0,
        20,
      );
      await first.kill();
      go();
      const repeated: boolean[] = [];
      const { outcome, events } = await launch(body, {
        onEvent: (_event, isRepeated) => repeated.push(isRepeated),
      });
      expect(outcome).toMatchObject({ status: "completed" });
      expect(events.filter(({ event }) => event === "hello")).toHaveLength(4);
      expect(repeated[0]).toBe(true);
      expect(repeated.at(-1)).toBe(false);
      expect(await internevoJobs()).toHaveLength(1);
    });

    it("is submitted once, whenever its supervisor is killed during the submission", async () => {
      // The answer of sbatch is lost: the job is there, and nobody knows its number.
      const leave = await site.occupy();
      const body = `[ ${RANK} = 0 ] && ${DONE}; exit 0`;
      const first = await supervisor(program(body).path, "queue waits");
      await first.kill();
      const file = join(runDirectory(), "slurm.json");
      const record = JSON.parse(readFileSync(file, "utf8")) as { jobId: number | null };
      const submitted = record.jobId;
      writeFileSync(file, JSON.stringify({ ...record, jobId: null }));
      const { outcome } = await launch(body, { onQueue: () => void leave() });
      expect(outcome).toMatchObject({ status: "completed" });
      expect((await internevoJobs()).map(({ id }) => id)).toEqual([submitted]);
    });

    describe("twice", () => {
      const body = `${HELLO}; ${WAIT}; [ ${RANK} = 0 ] && ${DONE}; exit 0`;
      /**
       * A launch with a second job of the same work, that came late, as if the network had kept it; none of
       * the two can start.
       */
      async function twice() {
        const leave = await site.occupy();
        const ending = new AbortController();
        const launched = launch(body, { ranks: 2, killSignal: ending.signal });
        await eventually(
          "it is submitted",
          () => typeof readSlurmRecord(runDirectory())?.jobId === "number",
          20,
        );
        const { marker, directory: submission, jobId } = readSlurmRecord(runDirectory()) as SlurmRecord;
        const late = await site.slurm.slurm(
          "sbatch",
          "--parsable",
          "--exclusive",
          "--nodes=1",
          "--ntasks=2",
          `--job-name=internevo-${marker}`,
          "--output=/dev/null",
          join(submission, "job.sh"),
        );
        const states = async () =>
          Object.fromEntries(
            (await site.jobs())
              .filter(({ name }) => name === `internevo-${marker}`)
              .map(({ id, state }) => [id, state]),
          );
        return {
          launched,
          leave,
          ending,
          first: Number(jobId),
          late: Number(late),
          claim: join(submission, "claim"),
          states,
        };
      }

      it("runs once", async () => {
        const { launched, leave, states } = await twice();
        await leave();
        let last = "";
        await eventually(
          "one of the two has ended, and the other runs",
          async () =>
            /^RUNNING,(CANCELLED|COMPLETED)$|^(CANCELLED|COMPLETED),RUNNING$/.test(
              (last = Object.values(await states()).join()),
            ),
          60,
          () => last,
        );
        go();
        const { outcome, events } = await launched;
        expect(outcome).toMatchObject({ status: "completed" });
        expect(events.filter(({ event }) => event === "hello")).toHaveLength(2);
      });

      it("runs as the one that starts first, whichever that is", async () => {
        const { launched, leave, first, late, claim, states } = await twice();
        await site.slurm.slurm("scontrol", "hold", String(first));
        await leave();
        await eventually("the late one has claimed the work", () => linesOf(claim)[0] === String(late), 60);
        await eventually(
          "the one that waits is cancelled",
          async () => (await states())[first] === "CANCELLED",
          30,
        );
        go();
        const { outcome, events } = await launched;
        expect(outcome).toMatchObject({ status: "completed" });
        expect(events.filter(({ event }) => event === "hello")).toHaveLength(2);
        // Slurm says COMPLETING for a moment, until its nodes have said that nothing runs any more.
        await eventually("the late one is over", async () => (await states())[late] !== "COMPLETING", 30);
        expect(await states()).toEqual({ [first]: "CANCELLED", [late]: "COMPLETED" });
      });

      it("is cancelled in both", async () => {
        const { launched, leave, ending, first, late, states } = await twice();
        ending.abort();
        expect((await launched).outcome).toMatchObject({ status: "stopped" });
        expect(await states()).toEqual({ [first]: "CANCELLED", [late]: "CANCELLED" });
        await leave();
      });
    });

    it("is cancelled first when something else is launched", async () => {
      const first = await supervisor(program(`${HELLO}; sleep 600`).path, "event");
      await first.kill();
      const { outcome } = await launch(`${DONE}`, { ranks: 1, label: "another" });
      expect(outcome).toMatchObject({ status: "completed" });
      expect((await site.jobs()).map(({ state }) => state)).not.toContain("RUNNING");
    });
  });

  it("is looked at with the nodes that can take jobs", async () => {
    const here = {
      hasProgram: () => true,
      clustersFile: site.clustersFile,
      maximumLocalRanks: 1,
      localMemoryBytes: 1,
    };
    const look = async () => {
      const known = (await knownClusters(here)).find(({ name }) => name === "site");
      return known?.look(AbortSignal.timeout(60_000));
    };
    expect(await look()).toMatchObject({ capacity: { nodes: 3 }, health: { state: "ready" } });
    await site.slurm.slurm("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=fan");
    expect((await look())?.health).toEqual({
      state: "partly",
      message: expect.stringMatching(/^1 of 3 nodes cannot be used: n2 is .*drain.* \(fan\)$/),
    });
    await site.slurm.slurm("scontrol", "update", "NodeName=n2", "State=RESUME");
  });

  it("says in words that a site has no accounting, where that is asked", async () => {
    expect(await slurmTools().accounted(1, "internevo-none")).toMatch(/accounting storage is disabled/i);
  });

  it("asks again where Slurm refuses a job that it takes a little later", async () => {
    const partition = (state: string) =>
      site.slurm.slurm("scontrol", "update", "PartitionName=short", `State=${state}`);
    await partition("INACTIVE");
    let taken: Promise<unknown> | undefined;
    const { outcome, queue } = await launch(DONE, {
      ranks: 1,
      slurm: { partition: "short", timeLimitSeconds: 60 },
      onQueue: () => void (taken ??= partition("UP")),
    });
    await taken;
    expect(queue[0]).toMatch(/^Slurm refuses the job: .*; it is asked again$/);
    expect(outcome).toMatchObject({ status: "completed" });
  });

  // The last: nodes come back to a new controller one after the other.
  it("survives a controller that is gone, and one that comes back", async () => {
    /** A question of this process waits for its answer. */
    const isAsking = (): boolean =>
      readdirSync("/proc").some(
        (pid) =>
          /^\d+$/.test(pid) &&
          (linesOf(join("/proc", pid, "stat"))[0] ?? "").includes(`(squeue) S ${process.pid} `),
      );
    let killed: Promise<void> | undefined;
    let told = 0;
    // Nodes may take a while until they have found the new one.
    const slurm = { nodeLossSeconds: 60 };
    // It stores a job up to five seconds later: one that it forgets would leave its number to the next, which
    // the nodes then refuse.
    const kill = async (): Promise<void> => {
      const { marker } = readSlurmRecord(runDirectory()) as SlurmRecord;
      await eventually(
        "the controller has stored the job",
        () => readFileSync(join(site.slurm.directory, "state", "job_state"), "latin1").includes(marker),
        30,
        site.slurm.logs,
      );
      await site.slurm.killController();
    };
    const launched = launch(`${HELLO}; ${WAIT}; [ ${RANK} = 0 ] && ${DONE}; exit 0`, {
      slurm,
      onEvent: () => void (killed ??= kill()),
      onQueue: () => void (told += 1),
    });
    await eventually("the ranks have begun", () => killed !== undefined, 60);
    await killed;
    await eventually("Slurm is asked in vain", isAsking, 30);
    await site.slurm.startController();
    await eventually("the launch tells of its job", () => told > 0, 60, site.slurm.logs);
    go();
    const { outcome, queue } = await launched;
    expect(outcome).toMatchObject({ status: "completed" });
    expect(queue.length).toBeGreaterThan(0);
    await eventually(
      "the controller answers",
      () =>
        site.jobs().then(
          () => true,
          () => false,
        ),
      60,
      site.slurm.logs,
    );
    const earlier = new Set((await site.jobs()).map(({ id }) => id));
    await site.slurm.killController();
    const submitted = launch(DONE, { ranks: 1, slurm });
    await eventually("Slurm is asked in vain", isAsking, 30);
    await site.slurm.startController();
    const second = (await submitted).outcome;
    expect(second.status, JSON.stringify(second)).toBe("completed");
    expect((await site.jobs()).filter(({ id }) => !earlier.has(id))).toHaveLength(1);
  }, 900_000);
});
