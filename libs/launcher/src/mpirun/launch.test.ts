import { eventually } from "@internevo/test-kit";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { Type } from "typebox";
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { NativeErrorEventSchema } from "@internevo/contracts";
import { ownHost } from "../hosts.ts";
import type { LaunchOptions } from "../launch-options.ts";
import { launchRanks } from "../launchers.ts";
import { bootId, processesOfRun, readProcess, RUN_MARKER } from "../process/processes.ts";
import { killLeftovers, readRunRecord, removeRunRecord, writeRunRecord } from "../process/run-record.ts";
import type { NativeProgram } from "../programs.ts";

// Small shell programs stand for ranks here: what is tested is how processes are started, watched and ended.
const ConfigSchema = Type.Object({ text: Type.String() }, { additionalProperties: false });
const EventSchema = Type.Union([
  Type.Object({
    event: Type.Literal("hello"),
    rank: Type.Integer(),
    pid: Type.Integer(),
    threads: Type.String(),
    secret: Type.String(),
  }),
  Type.Object({ event: Type.Literal("done") }),
  NativeErrorEventSchema,
]);
type Program = NativeProgram<typeof ConfigSchema, typeof EventSchema>;

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-launch-"));
});
afterEach(async () => {
  await killLeftovers(join(directory, "run"));
  await rm(directory, { recursive: true, force: true });
});

const HELLO =
  `printf '{"event":"hello","rank":%s,"pid":%s,"threads":"%s","secret":"%s"}\\n' ` +
  `$OMPI_COMM_WORLD_RANK $$ "$OMP_NUM_THREADS" "$DATABASE_URL$OPENBLAS_CORETYPE"`;

async function program(body: string): Promise<Program> {
  const path = join(directory, "program");
  await writeFile(path, `#!/bin/bash\n${body}\n`);
  await chmod(path, 0o755);
  return { name: "program", path, configSchema: ConfigSchema, eventSchema: EventSchema };
}

async function launch(body: string, over: Partial<LaunchOptions<Program>> = {}) {
  const events: { event: string }[] = [];
  const logs: string[] = [];
  const scratch = new Set<string>();
  const look = setInterval(
    () => readRunRecord(join(directory, "run"))?.scratch.forEach((each) => scratch.add(each)),
    5,
  );
  const outcome = await launchRanks<Program>({
    program: await program(body),
    config: { text: "x" },
    ranks: 2,
    threadsPerRank: 1,
    launcher: "local",
    runDirectory: join(directory, "run"),
    onEvent: (event) => events.push(event),
    onLog: (line) => logs.push(line),
    ...over,
  }).finally(() => clearInterval(look));
  // Whatever happened, nothing is left: no process, no record, no scratch.
  expect(readRunRecord(join(directory, "run"))).toBeUndefined();
  for (const event of events as { pid?: number }[])
    if (event.pid !== undefined) expect(readProcess(event.pid)).toBeUndefined();
  const folders = over.launcher === "ssh" ? 1 : 2;
  expect(scratch.size).toBe(outcome.seconds === 0 ? 0 : folders); // 0 s: nothing was started
  expect([...scratch].filter((each) => existsSync(each))).toEqual([]);
  return { outcome, events, logs };
}

const DONE = `[ $OMPI_COMM_WORLD_RANK = 0 ] && echo '{"event":"done"}'`;

describe("launchRanks", () => {
  it("does not take an error that the run survived for the cause of its end", async () => {
    const survived = `printf '{"event":"error","code":"checkpoint_error","message":"disk full","continues":true}\\n'`;
    expect((await launch(`${survived}; printf '{"event":"done"}\\n'`)).outcome).toMatchObject({
      status: "completed",
    });
    expect(
      (
        await launch(
          `${survived}; printf '{"event":"error","code":"data_error","message":"bad token"}\\n'; exit 4`,
        )
      ).outcome,
    ).toMatchObject({ status: "failed", failure: { code: "data-invalid" } });
  });

  it("gives every rank the configuration, and neither foreign tuning nor the service's secrets", async () => {
    process.env["DATABASE_URL"] = "secret";
    process.env["OPENBLAS_CORETYPE"] = "Haswell";
    try {
      const { outcome, events, logs } = await launch(
        `${HELLO}; [ $OMPI_COMM_WORLD_RANK = 0 ] && cat "$2" >&2; ${DONE}; exit 0`,
        { ranks: 3, threadsPerRank: 2 },
      );
      expect(outcome).toMatchObject({ status: "completed", exitCode: 0 });
      const hellos = events.filter((event) => event.event === "hello") as unknown as {
        rank: number;
        threads: string;
        secret: string;
      }[];
      expect(hellos.map((event) => event.rank).sort()).toEqual([0, 1, 2]);
      for (const hello of hellos) expect(hello).toMatchObject({ threads: "2", secret: "" });
      expect(JSON.parse(logs.join("\n"))).toEqual({ text: "x" });
    } finally {
      delete process.env["DATABASE_URL"];
      delete process.env["OPENBLAS_CORETYPE"];
    }
  });

  it("refuses a configuration that its schema does not know", async () => {
    await expect(launch("exit 0", { config: { text: "x", more: 1 } as never })).rejects.toThrow(
      /more: unknown field/,
    );
  });

  it("names the program that is missing", async () => {
    const missing = {
      name: "program",
      path: join(directory, "absent"),
      configSchema: ConfigSchema,
      eventSchema: EventSchema,
    };
    await expect(launch("", { program: missing })).rejects.toThrow(/cannot be started/);
  });

  it("says which rank a signal ended", async () => {
    const { outcome } = await launch(`${HELLO}; [ $OMPI_COMM_WORLD_RANK = 1 ] && kill -9 $$; sleep 60`);
    expect(outcome).toMatchObject({ status: "failed", failure: { code: "rank-lost" } });
    // mpirun itself leaves out which rank it was in about one of twenty such ends; it never names another.
    expect(outcome.status === "failed" && "rank" in outcome.failure ? outcome.failure.rank : 1).toBe(1);
  });

  it("takes what mpirun counts on standard output for no event of the ranks, also behind half a line", async () => {
    const summary = "2 total processes killed (some possibly by mpirun during cleanup)";
    for (const written of [`echo '${summary}'`, `printf '{"event":"he'; echo '${summary}'`]) {
      const { outcome, logs } = await launch(
        `${HELLO}; ${written}; sleep 0.5; kill -9 $$`,
        // Another's line may come into the middle of one that is not whole.
        { ranks: 1 },
      );
      expect(outcome).toMatchObject({ status: "failed", failure: { code: "rank-lost" } });
      expect(logs.join("\n")).toContain(summary);
    }
  });

  it.each([
    [3, "out-of-memory"],
    [4, "data-invalid"],
    [5, "checkpoint-invalid"],
    [6, "communication"],
    [70, "internal"],
    [0, "internal"],
  ])("maps exit code %i without an error event", async (code, failure) => {
    const { outcome } = await launch(`${HELLO}; echo "the reason" >&2; exit ${code}`, { ranks: 1 });
    expect(outcome).toMatchObject({ status: "failed", failure: { code: failure } });
  });

  it("takes the failure from the error event", async () => {
    const error = `{"event":"error","code":"out_of_memory","message":"needs 2 GiB","rank":0,"remedy":"recompute"}`;
    const { outcome } = await launch(`[ $OMPI_COMM_WORLD_RANK = 0 ] && echo '${error}'; exit 3`);
    expect(outcome).toMatchObject({
      status: "failed",
      failure: { code: "out-of-memory", message: "needs 2 GiB", rank: 0, remedy: "recompute" },
    });
  });

  it.each([
    ["text that is not JSON", "echo hello"],
    ["an event of an unknown kind", `echo '{"event":"surprise"}'`],
    ["an endless line", "head -c 3000000 /dev/zero | tr '\\0' x; sleep 30"],
  ])("fails on %s, and ends the ranks", async (_what, body) => {
    const { outcome } = await launch(`${body}; sleep 60`, { ranks: 1 });
    expect(outcome).toMatchObject({
      status: "failed",
      failure: {
        code: "internal",
        message: expect.stringMatching(/no event of the protocol|line of more than/),
      },
    });
    expect(outcome.seconds).toBeLessThan(20);
  });

  // Once its event was seen, rank 0 holds mpirun still, so that both ranks end and mpirun stays.
  const seen = (): string => join(directory, "seen");
  const stays = (event: string): string =>
    `[ $OMPI_COMM_WORLD_RANK = 0 ] && echo '${event}'; while [ ! -e ${seen()} ]; ` +
    "do sleep 0.02; done; [ $OMPI_COMM_WORLD_RANK = 0 ] && kill -STOP $PPID; exit 0";
  // A host whose shell leaves the launcher's session, as Open MPI's daemons do on theirs; its ranks outlast
  // all looks at that session.
  it("does not end a launcher whose ranks are on hosts", async () => {
    const shell = join(directory, "shell");
    await writeFile(shell, '#!/bin/bash\nshift\nexec setsid --fork bash -c "$*"\n');
    await chmod(shell, 0o755);
    const { outcome } = await launch(
      `${HELLO}; sleep 8; [ $OMPI_COMM_WORLD_RANK = 0 ] && echo '{"event":"done"}'; exit 0`,
      {
        launcher: "ssh",
        ranksPerNode: 2,
        settings: {
          hosts: [{ name: "elsewhere", slots: 2 }],
          remoteShell: [shell],
          network: ["127.0.0.0/8"],
        },
        timeoutSeconds: 60,
      },
    );
    expect(outcome).toMatchObject({ status: "completed" });
  });

  it.each([
    [
      `{"event":"error","code":"out_of_memory","message":"needs 2 GiB"}`,
      { status: "failed", failure: { code: "out-of-memory", message: "needs 2 GiB" } },
    ],
    [`{"event":"done"}`, { status: "completed" }],
    [
      `{"event":"hello","rank":0,"pid":1000000000,"threads":"","secret":""}`,
      {
        status: "failed",
        failure: { code: "rank-lost", message: expect.stringMatching(/the launcher stayed/) as string },
      },
    ],
  ])("ends a launcher that stays when its ranks are gone: %s", async (event, expected) => {
    const { outcome } = await launch(stays(event), {
      timeoutSeconds: 40,
      onEvent: () => void writeFile(seen(), ""),
    });
    expect(outcome).toMatchObject(expected);
  });

  it("ends ranks that take too long, and ranks that say nothing", async () => {
    expect((await launch("sleep 60", { timeoutSeconds: 0.5 })).outcome).toMatchObject({
      status: "failed",
      failure: { code: "timeout" },
    });
    expect((await launch(`${HELLO}; sleep 60`, { silenceSeconds: 0.5 })).outcome).toMatchObject({
      status: "failed",
      failure: { code: "timeout", message: expect.stringContaining("said nothing") },
    });
  });

  it("asks every rank for an orderly end", async () => {
    const stop = new AbortController();
    const logged: string[] = [];
    const { outcome, events } = await launch(
      `stop() { echo "a rank's word" >&2; ${DONE}; exit 75; }; trap stop USR1; ${HELLO}; while :; do sleep 0.05; done`,
      {
        ranks: 1,
        signal: stop.signal,
        onLog: (line) => logged.push(line),
        onEvent: (event) => {
          if (event.event === "hello") stop.abort();
          if (event.event === "done") ended = true;
        },
      },
    );
    expect(events).toEqual([]);
    expect(ended).toBe(true);
    expect(outcome).toMatchObject({ status: "stopped", graceful: true, exitCode: 75 });
    // mpirun tells the exit code as if it were a fault.
    expect(logged).toContain("a rank's word");
    expect(logged.join("\n")).not.toMatch(/mpirun|Exit code|Process name|aborted|----/);
  });
  let ended = false;

  it("kills ranks that do not end within the grace", async () => {
    const stop = new AbortController();
    const { outcome } = await launch(`trap '' USR1; ${HELLO}; while :; do sleep 0.05; done`, {
      signal: stop.signal,
      graceSeconds: 0.3,
      onEvent: () => stop.abort(),
    });
    expect(outcome).toMatchObject({ status: "stopped", graceful: false });
  });

  it("kills at once when told so, grandchildren in sessions of their own included", async () => {
    const stop = new AbortController();
    let pid = 0;
    const { outcome } = await launch(
      `setsid sleep 61 & printf '{"event":"hello","rank":0,"pid":%s,"threads":"","secret":""}\\n' $!; wait`,
      {
        ranks: 1,
        killSignal: stop.signal,
        onEvent: (event) => {
          pid = (event as { pid: number }).pid;
          stop.abort();
        },
      },
    );
    expect(outcome).toMatchObject({ status: "stopped", graceful: false });
    expect(pid).toBeGreaterThan(0);
    expect(readProcess(pid)).toBeUndefined();
  });

  it("ends the ranks when whoever listens throws", async () => {
    await expect(
      launch(`${HELLO}; sleep 60`, {
        onEvent: () => {
          throw new Error("no room");
        },
      }),
    ).rejects.toThrow("no room");
  });

  it("starts nothing when it is stopped beforehand", async () => {
    expect((await launch("exit 0", { signal: AbortSignal.abort() })).outcome).toMatchObject({
      status: "stopped",
      exitCode: null,
    });
  });

  it("runs two programs side by side without disturbing either", async () => {
    const body = await program(`${HELLO}; sleep 0.5; ${DONE}; exit 0`);
    const runs = ["one", "two"].map((name) =>
      launchRanks({
        program: body,
        config: { text: name },
        ranks: 2,
        threadsPerRank: 1,
        launcher: "local",
        runDirectory: join(directory, name),
        onEvent: () => {},
      }),
    );
    for (const outcome of await Promise.all(runs)) expect(outcome.status).toBe("completed");
  });
});

describe("a killed supervisor", () => {
  /** Until each of the two ranks has said its first event: before that the second may not have been started. */
  async function bothRanksGreeted(stdout: Readable): Promise<void> {
    let events = 0;
    for await (const _line of createInterface({ input: stdout })) {
      events += 1;
      if (events === 2) return;
    }
    throw new Error(`the supervisor ended after ${events} events of 2`);
  }

  async function supervisor(body: string): Promise<{ marker: string; kill: () => Promise<void> }> {
    await program(body);
    const script = join(directory, "supervisor.ts");
    await mkdir(join(directory, "run"), { recursive: true });
    await writeFile(
      script,
      `import { launchRanks } from ${JSON.stringify(new URL("../launchers.ts", import.meta.url).href)};
       import { Type } from ${JSON.stringify(import.meta.resolve("typebox"))};
       await launchRanks({ program: { name: "program", path: ${JSON.stringify(join(directory, "program"))}, configSchema: Type.Any(), eventSchema: Type.Any() }, config: {}, ranks: 2, threadsPerRank: 1,
         launcher: "local", runDirectory: ${JSON.stringify(join(directory, "run"))}, onEvent: () => console.log("event") });`,
    );
    const child = spawn(process.execPath, [script], { stdio: ["ignore", "pipe", "inherit"] });
    const gone = new Promise((resolve) => child.once("close", resolve));
    await bothRanksGreeted(child.stdout);
    const marker = readRunRecord(join(directory, "run"))?.marker as string;
    return {
      marker,
      kill: async () => {
        child.kill("SIGKILL");
        await gone;
      },
    };
  }

  it("takes its ranks with it", async () => {
    const { marker, kill } = await supervisor(`${HELLO}; sleep 60`);
    expect(processesOfRun(marker).length).toBeGreaterThanOrEqual(3);
    await kill();
    await eventually(
      "mpirun's end",
      () => !processesOfRun(marker).some((entry) => entry.command === "mpirun"),
      10,
    );
  });

  it("is not ended by one that it has replaced, which starts nothing", async () => {
    const { marker, kill } = await supervisor(`${HELLO}; sleep 64`);
    const replaced = new Error("the lease is somebody else's");
    const run = launchRanks<Program>({
      program: await program(DONE),
      config: { text: "x" },
      ranks: 1,
      threadsPerRank: 1,
      launcher: "local",
      runDirectory: join(directory, "run"),
      onEvent: () => {},
      confirm: () => Promise.reject(replaced),
    });
    await expect(run).rejects.toBe(replaced);
    expect(processesOfRun(marker).length).toBeGreaterThanOrEqual(3);
    expect(readRunRecord(join(directory, "run"))?.marker).toBe(marker);
    await kill();
  });

  it("keeps its record when one that it has replaced ends", async () => {
    await mkdir(join(directory, "run"), { recursive: true });
    const record = (marker: string) => ({
      marker,
      bootId: "this",
      process: null,
      command: [],
      startedAt: "now",
      scratch: [],
    });
    writeRunRecord(join(directory, "run"), record("successor"));
    removeRunRecord(join(directory, "run"), record("replaced"));
    expect(readRunRecord(join(directory, "run"))?.marker).toBe("successor");
    removeRunRecord(join(directory, "run"), record("successor"));
    expect(readRunRecord(join(directory, "run"))).toBeUndefined();
  });

  it.each([
    ["on these hosts are ended", [ownHost()], 0],
    ["of an older version, which did not say where, are ended", undefined, 0],
    ["on other hosts go on, as they may have a live owner", ["elsewhere"], 1],
  ] as const)("before another launch in its directory, its ranks %s", async (_what, hosts, left) => {
    const marker = `left-${randomUUID()}`;
    const rank = spawn("sleep", ["65"], {
      env: { PATH: process.env["PATH"], [RUN_MARKER]: marker },
      stdio: "ignore",
    });
    onTestFinished(() => void rank.kill("SIGKILL"));
    await mkdir(join(directory, "run"), { recursive: true });
    writeRunRecord(join(directory, "run"), {
      marker,
      bootId: bootId(),
      process: null,
      command: [],
      startedAt: new Date().toISOString(),
      scratch: [],
      ...(hosts ? { hosts: [...hosts] } : {}),
    });
    expect(processesOfRun(marker)).toHaveLength(1);
    expect((await launch(`${DONE}; exit 0`)).outcome).toMatchObject({ status: "completed" });
    expect(processesOfRun(marker)).toHaveLength(left);
  });

  it("leaves a record by which what outlived it is ended", async () => {
    const { marker, kill } = await supervisor(`setsid sleep 62 & ${HELLO}; wait`);
    const scratch = readRunRecord(join(directory, "run"))?.scratch ?? [];
    expect(scratch.map((each) => existsSync(each))).toEqual([true, true]);
    await kill();
    expect(processesOfRun(marker).length).toBeGreaterThan(0);
    expect(await killLeftovers(join(directory, "run"))).toBeGreaterThan(0);
    expect(processesOfRun(marker)).toEqual([]);
    expect(readRunRecord(join(directory, "run"))).toBeUndefined();
    expect(scratch.map((each) => existsSync(each))).toEqual([false, false]);
  });
});
