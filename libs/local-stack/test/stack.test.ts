import { eventually } from "@internevo/test-kit";
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import pg from "pg";
import { assertServerVersion, connectBus } from "@internevo/bus";
import { readStackInfo, startLocalStack, type LocalStack, type LocalStackOptions } from "../src/index.ts";
import { commandContains, isAlive, processesOfStack } from "../src/proc.ts";

const directories: string[] = [];
const stacks: LocalStack[] = [];
const children: ChildProcess[] = [];
afterEach(async () => {
  for (const stack of stacks.splice(0)) await stack.stop();
  for (const child of children.splice(0)) child.kill("SIGKILL");
  for (const directory of directories.splice(0)) rmSync(directory, { recursive: true, force: true });
});

const newDirectory = (): string => {
  const directory = mkdtempSync(join(tmpdir(), "internevo-stack-"));
  directories.push(directory);
  return directory;
};
const start = async (dataDirectory: string, over: Partial<LocalStackOptions> = {}): Promise<LocalStack> => {
  const stack = await startLocalStack({
    dataDirectory,
    services: [],
    databaseUrl: "",
    natsUrl: "",
    durable: false,
    ...over,
  });
  stacks.push(stack);
  return stack;
};
async function query(stack: LocalStack, text: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: stack.info().databaseUrl, connectionTimeoutMillis: 2000 });
  client.on("error", () => {});
  try {
    await client.connect();
    return (await client.query(text)).rows;
  } finally {
    await client.end().catch(() => {});
  }
}
/** Every process that has to do with a directory: by its arguments, or by its environment. */
const processesIn = (directory: string): number[] => [
  ...processesOfStack(directory),
  ...readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => pid !== process.pid && isAlive(pid) && commandContains(pid, directory)),
];
const supervisor = (dataDirectory: string, ...more: string[]): Promise<ChildProcess> =>
  new Promise((resolve, reject) => {
    const child = spawn(
      process.execPath,
      [join(import.meta.dirname, "supervisor-process.ts"), dataDirectory, ...more],
      { stdio: ["ignore", "pipe", "inherit"] },
    );
    children.push(child);
    child.once("exit", (code, signal) => reject(new Error(`the supervisor ended: ${code ?? signal}`)));
    child.stdout.once("data", () => resolve(child));
  });

const asRoot = process.getuid?.() === 0;

describe("a local stack", () => {
  it("gives a database and a broker on the loopback, private, and leaves no process", async () => {
    const dataDirectory = newDirectory();
    const stack = await start(dataDirectory);
    expect(await query(stack, "select current_user as who, inet_server_addr()::text as address")).toEqual([
      { who: "internevo", address: "127.0.0.1/32" },
    ]);
    const bus = await connectBus({ url: stack.info().natsUrl, name: "test" });
    await bus.close();
    expect(readStackInfo(dataDirectory)).toEqual(stack.info());
    for (const file of ["stack.json", "secrets.json", "nats/nats.conf"])
      expect(statSync(join(dataDirectory, file)).mode & 0o777).toBe(0o600);
    // Elsewhere when the unprivileged user cannot reach the checkout and no namespace may be made.
    const location = join(dataDirectory, "postgres-location");
    expect(
      statSync(join(existsSync(location) ? readFileSync(location, "utf8").trim() : dataDirectory, "postgres"))
        .mode & 0o777,
    ).toBe(0o700);
    const wrong = stack.info().databaseUrl.replace(/:[^:@]+@/, ":wrong@");
    await expect(new pg.Client({ connectionString: wrong }).connect()).rejects.toMatchObject({
      code: "28P01",
    });
    await expect(
      connectBus({ url: stack.info().natsUrl.replace(/\/\/.*@/, "//wrong@"), name: "test" }),
    ).rejects.toMatchObject({ code: "unavailable" });
    await stack.stop();
    expect(processesIn(dataDirectory)).toEqual([]);
    expect(readStackInfo(dataDirectory)).toBeUndefined();
  });

  it("keeps data, addresses and secrets over a restart", async () => {
    const dataDirectory = newDirectory();
    const first = await start(dataDirectory);
    await query(first, "create table kept as select 42 as answer");
    const { databaseUrl, natsUrl, apiToken } = first.info();
    await first.stop();
    const second = await start(dataDirectory);
    expect(second.info()).toMatchObject({ databaseUrl, natsUrl, apiToken });
    expect(await query(second, "select answer from kept")).toEqual([{ answer: 42 }]);
  });

  it("runs twice side by side, and refuses a directory that is in use", async () => {
    const [one, two] = [newDirectory(), newDirectory()];
    const [a, b] = await Promise.all([start(one), start(two)]);
    await query(a, "create table only_here (x int)");
    await expect(query(b, "select * from only_here")).rejects.toMatchObject({ code: "42P01" });
    await expect(
      startLocalStack({ dataDirectory: one, services: [], databaseUrl: "", natsUrl: "" }),
    ).rejects.toMatchObject({ code: "conflict", details: [{ field: "dataDirectory", value: one }] });
    await a.stop();
    expect(await query(b, "select 1 as here")).toEqual([{ here: 1 }]);
  });

  it("starts again what was killed, at the same address", async () => {
    const dataDirectory = newDirectory();
    const stack = await start(dataDirectory);
    await query(stack, "create table kept as select 7 as answer");
    for (const name of ["postgres", "nats"]) {
      const pid = stack.pidOf(name) ?? 0;
      process.kill(pid, "SIGKILL");
      await eventually(`the restart of ${name}`, () => (stack.pidOf(name) ?? pid) !== pid);
      expect(readStackInfo(dataDirectory)?.processes[name]?.pid).toBe(stack.pidOf(name));
    }
    await eventually("Postgres's answer", () =>
      query(stack, "select answer from kept").then(
        (rows) => rows.length === 1,
        () => false,
      ),
    );
    await eventually("NATS's answer", () =>
      connectBus({ url: stack.info().natsUrl, name: "test" }).then(
        (bus) => bus.close().then(() => true),
        () => false,
      ),
    );
  });

  it("dies with its supervisor, and the next one goes on from what is left", async () => {
    const dataDirectory = newDirectory();
    const child = await supervisor(dataDirectory, join(import.meta.dirname, "sleeper.ts"));
    const info = readStackInfo(dataDirectory);
    expect(info?.processes["sleeper"]?.pid).toBeTypeOf("number");
    child.removeAllListeners("exit");
    child.kill("SIGKILL");
    const servers = ["postgres", "nats", "sleeper"].map((name) => info?.processes[name]?.pid ?? 0);
    await eventually("the end of its processes", () => servers.every((pid) => !isAlive(pid)));
    expect(readStackInfo(dataDirectory)).toBeUndefined();
    // The sleeper's own child knows of no supervisor: the next start ends it.
    expect(processesOfStack(dataDirectory).some((pid) => commandContains(pid, "trap"))).toBe(true);
    const next = await start(dataDirectory);
    expect(processesIn(dataDirectory).filter((pid) => commandContains(pid, "trap"))).toEqual([]);
    expect(await query(next, "select 1 as here")).toEqual([{ here: 1 }]);
  });

  it("stops a Postgres and a NATS that outlived their supervisor", async () => {
    const dataDirectory = newDirectory();
    const child = await supervisor(dataDirectory);
    const info = readStackInfo(dataDirectory);
    const pids = ["postgres", "nats"].map((name) => info?.processes[name]?.pid ?? 0);
    // Stopped, they do not hear that their supervisor died.
    for (const pid of pids) process.kill(pid, "SIGSTOP");
    child.removeAllListeners("exit");
    child.kill("SIGKILL");
    await eventually("the supervisor's end", () => !isAlive(child.pid ?? 0));
    expect(pids.every(isAlive)).toBe(true);
    const next = await start(dataDirectory);
    expect(pids.some(isAlive)).toBe(false);
    expect(await query(next, "select 1 as here")).toEqual([{ here: 1 }]);
  });

  it("stops, and says so, when its directory is deleted", async () => {
    const dataDirectory = newDirectory();
    const stack = await start(dataDirectory, {
      services: [{ name: "sleeper", entry: join(import.meta.dirname, "sleeper.ts") }],
    });
    const pids = ["postgres", "nats", "sleeper"].map((name) => stack.pidOf(name) ?? 0);
    expect(stack.lost.aborted).toBe(false);
    rmSync(dataDirectory, { recursive: true });
    await eventually("the loss", () => stack.lost.aborted);
    expect(stack.lost.reason).toMatchObject({
      code: "unavailable",
      details: [{ field: "dataDirectory", value: dataDirectory }],
    });
    await stack.stop();
    expect(pids.filter(isAlive)).toEqual([]);
    expect(processesIn(dataDirectory)).toEqual([]);
    // Whoever has the name now is not this stack's business.
    const next = await start(dataDirectory);
    expect(next.lost.aborted).toBe(false);
  });

  it("says why a service does not start", async () => {
    const dataDirectory = newDirectory();
    const entry = join(dataDirectory, "broken.ts");
    writeFileSync(entry, 'console.error("no such thing");\nprocess.exit(2);\n');
    await expect(start(dataDirectory, { services: [{ name: "broken", entry }] })).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("no such thing"),
    });
    expect(processesIn(dataDirectory)).toEqual([]);
  });

  it.runIf(asRoot)("starts as root below a directory that only root can enter", async () => {
    const closed = newDirectory();
    chmodSync(closed, 0o700);
    const dataDirectory = join(closed, "deeper", "data");
    mkdirSync(dataDirectory, { recursive: true });
    const stack = await start(dataDirectory);
    // Containers and changed roots may refuse user namespaces: Postgres then runs where the unprivileged user
    // can reach it.
    const namespaces = spawnSync("unshare", ["--user", "true"]).status === 0;
    expect(readFileSync(join(dataDirectory, "postgres-identity"), "utf8")).toBe(
      namespaces ? "namespace" : "relocated",
    );
    expect(await query(stack, "select 1 as here")).toEqual([{ here: 1 }]);
    expect(statSync(dataDirectory).mode & 0o077).toBe(0o055);
  });

  it.runIf(asRoot)("starts as root below such a directory where no namespace may be made", async () => {
    const closed = newDirectory();
    chmodSync(closed, 0o700);
    const stack = await start(join(closed, "data"), { postgresIdentity: "relocated" });
    expect(await query(stack, "select 1 as here")).toEqual([{ here: 1 }]);
    const location = readFileSync(join(closed, "data", "postgres-location"), "utf8");
    await stack.stop();
    expect(existsSync(location)).toBe(true);
    directories.push(location);
  });
});

describe("assertServerVersion", () => {
  it.each(["2.9.0", "2.9.10", "2.10.27", "3.0.0-beta.1", "v2.11.4"])("takes %s", (version) =>
    expect(() => assertServerVersion(version)).not.toThrow(),
  );
  it.each(["2.8.4", "1.4.1", "2.1.10", "", "what"])("refuses %j, and names it", (version) =>
    expect(() => assertServerVersion(version)).toThrow(version),
  );
});
