import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { processStart } from "@internevo/local-stack";
import { DEFAULT_LOG_ROTATION, SERVICE_NAMES } from "@internevo/local-stack";
import { BIN, run, start } from "./processes.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-up-"));
});
afterEach(() => rm(directory, { recursive: true }));

/** Processes that have the directory in their command line or environment. */
function processesOf(text: string): string[] {
  const found: string[] = [];
  for (const pid of readdirSync("/proc").filter(
    (name) => /^\d+$/.test(name) && Number(name) !== process.pid,
  )) {
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
      if (command.includes(text) || readFileSync(`/proc/${pid}/environ`, "utf8").includes(text))
        found.push(command);
    } catch {
      // It ended while it was looked at.
    }
  }
  return found;
}

describe("up and down", { timeout: 180_000 }, () => {
  it("start everything in one directory, tell others where it is, refuse a second, and leave no process", async () => {
    const place = ["--data-directory", directory];
    const up = start(["up", "--json", ...place]);
    await up.says("stdout", "\n}\n");
    const said = JSON.parse(up.stdout()) as {
      consoleUrl: string;
      apiUrl: string;
      token: string;
      pid: number;
    };
    expect(said).toMatchObject({
      apiUrl: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+\/api\/v1$/) as string,
      token: expect.any(String) as string,
    });
    expect(
      (await fetch(`${said.apiUrl}/whoami`, { headers: { authorization: `Bearer ${said.token}` } })).status,
    ).toBe(200);
    expect((await run(["whoami", "--json", ...place])).stdout).toContain('"admin"');
    const second = await run(["up", ...place]);
    expect([second.status, second.stdout]).toEqual([7, ""]);
    expect(second.stderr).toContain(`process ${said.pid} uses ${directory} already`);
    expect(second.stderr).toContain("`internevo status` prints its link");
    expect(processesOf(directory).length).toBeGreaterThan(6);

    const status = await run(["status", ...place]);
    expect([status.status, status.stderr]).toEqual([0, ""]);
    expect(status.stdout).toContain(`console  ${said.consoleUrl}#token=${said.token}\n`);
    expect(status.stdout).toMatch(
      new RegExp(
        `^data     ${directory}\nstarted  .*, process ${said.pid}\n\nSERVICE +STATE +PROCESS +LOG$`,
        "m",
      ),
    );
    for (const service of SERVICE_NAMES)
      expect(status.stdout).toMatch(new RegExp(`^${service} +ready +\\d+ +logs/${service}\\.log$`, "m"));
    for (const server of ["postgres", "nats"])
      expect(status.stdout).toMatch(new RegExp(`^${server} +running +\\d+ `, "m"));
    const document = JSON.parse((await run(["status", "--json", ...place])).stdout) as {
      ready: boolean;
      consoleUrl: string;
      services: { name: string; pid: number }[];
    };
    expect(document).toMatchObject({
      running: true,
      ready: true,
      consoleUrl: said.consoleUrl,
      token: said.token,
      pid: said.pid,
    });
    // One that hangs is told of, and by its name.
    const planner = document.services.find(({ name }) => name === "planner");
    process.kill(planner!.pid, "SIGSTOP");
    try {
      const stuck = await run(["status", ...place]);
      expect(stuck.status).toBe(5);
      expect(stuck.stdout).toMatch(/^planner +does not answer /m);
    } finally {
      process.kill(planner!.pid, "SIGCONT");
    }

    const down = await run(["down", "--json", ...place]);
    expect([down.status, JSON.parse(down.stdout)]).toEqual([
      0,
      { stopped: true, dataDirectory: directory, pid: said.pid },
    ]);
    expect((await up.ended).status).toBe(0);
    expect(processesOf(directory)).toEqual([]);
    const nothing = await run(["down", ...place]);
    expect([nothing.status, nothing.stdout]).toEqual([0, ""]);
    const nobody = await run(["status", ...place]);
    expect([nobody.status, nobody.stdout]).toEqual([5, ""]);
    expect(nobody.stderr).toContain("start one with `internevo up`");
  });

  it("say in their help where the data is, and how to have it elsewhere", async () => {
    const help = async (args: string[], env: NodeJS.ProcessEnv = {}) =>
      (await run(["up", "--help", ...args], env, { cwd: directory })).stdout;
    const said = await help([]);
    expect(said).toMatch(/--data-directory DIR or INTERNEVO_DATA_DIRECTORY/);
    expect(said).toContain(`At present: ${join(directory, ".internevo")}\n`);
    expect(await help([], { INTERNEVO_DATA_DIRECTORY: "elsewhere" })).toContain(
      `At present: ${join(directory, "elsewhere")}\n`,
    );
    expect(await help(["--data-directory", "/there"])).toContain("At present: /there\n");
  });

  it("stop at Ctrl-C, with everything that was started", async () => {
    const up = start(["up", "--data-directory", directory]);
    await up.says("stdout", "token");
    up.child.kill("SIGINT");
    expect((await up.ended).status).toBe(0);
    expect(processesOf(directory)).toEqual([]);
  });

  it("stop at Ctrl-C while they start", async () => {
    const up = start(["up", "--data-directory", directory]);
    await up.says("stderr", "starting");
    up.child.kill("SIGINT");
    expect(await up.ended).toMatchObject({
      status: 130,
      stdout: "",
      stderr: expect.stringContaining("interrupted") as string,
    });
    expect(processesOf(directory)).toEqual([]);
  });

  it("run on behind a command that has ended, until they are told to stop", async () => {
    const place = ["--data-directory", directory];
    const up = await run(["up", "--detach", "--json", ...place]);
    expect([up.status, up.stderr]).toEqual([0, expect.stringContaining("runs on as process")]);
    const { pid, token } = JSON.parse(up.stdout) as { pid: number; token: string };
    expect((await run(["whoami", "--json", ...place])).stdout).toContain('"admin"');
    const second = await run(["up", "--detach", ...place]);
    expect(second.status).toBe(0);
    expect(second.stdout).toMatch(new RegExp(`^console +http://.*#token=${token}$`, "m"));
    expect(second.stderr).toContain(`it runs already, as process ${pid}`);
    expect(readFileSync(join(directory, "logs", "up.log"), "utf8")).not.toContain(token);

    expect((await run(["down", ...place])).status).toBe(0);
    expect(processesOf(directory)).toEqual([]);
    const nowhere = await run(["up", "--detach", "--data-directory", "/etc/passwd"]);
    expect([nowhere.status, nowhere.stderr]).toEqual([
      2,
      expect.stringContaining("leads through something that is no directory"),
    ]);
  });

  it("keep the log of a stack behind the terminal small, before it starts and while it runs", async () => {
    const place = ["--data-directory", directory];
    const log = (age = ""): string => join(directory, "logs", `up.log${age}`);
    const large = DEFAULT_LOG_ROTATION.mostBytes;
    mkdirSync(join(directory, "logs"));
    writeFileSync(log(), "of before\n");
    truncateSync(log(), large);
    expect((await run(["up", "--detach", ...place])).status).toBe(0);
    expect(readFileSync(log(), "utf8")).toMatch(/^starting Postgres/);
    expect(statSync(log(".1")).size).toBe(large);

    truncateSync(log(), large + 1);
    const { services } = JSON.parse((await run(["status", "--json", ...place])).stdout) as {
      services: { name: string; pid: number }[];
    };
    process.kill(services.find(({ name }) => name === "planner")!.pid, "SIGKILL");
    await expect
      .poll(() => readFileSync(log(), "utf8"), { timeout: 30_000 })
      .toMatch(/^planner ended \(SIGKILL\); it is started again/);
    expect([log(".1"), log(".2")].map((path) => statSync(path).size)).toEqual([large + 1, large]);
    expect(readFileSync(log(".1"), "utf8")).toMatch(/^starting Postgres/);
    expect((await run(["down", ...place])).status).toBe(0);
    expect(processesOf(directory)).toEqual([]);
  });

  it("fail with what a detached start fails of, also where that is no problem of ours", async () => {
    mkdirSync(join(directory, "secrets.json"));
    // Its last words are one too many for the log.
    const log = join(directory, "logs", "up.log");
    mkdirSync(join(directory, "logs"));
    writeFileSync(log, "");
    truncateSync(log, DEFAULT_LOG_ROTATION.mostBytes - 200);
    const broken = await run(["up", "--detach", "--data-directory", directory]);
    expect([broken.status, broken.stdout]).toEqual([1, ""]);
    expect(broken.stderr).toMatch(/^internevo: EISDIR: illegal operation on a directory, read$/m);
  });

  it("are over only when the process has ended, which takes its record away before", async () => {
    const record = join(directory, "stack.json");
    // In the way of a stack, but slow to go: its record is gone a second before it is.
    const slow = `process.once("SIGTERM", () => { require("fs").rmSync(${JSON.stringify(record)}); setTimeout(() => process.exit(), 1000); }); setInterval(() => {}, 1000); process.stdout.write("ready")`;
    const supervisor = spawn(process.execPath, ["--eval", slow], { stdio: ["ignore", "pipe", "ignore"] });
    await once(supervisor.stdout, "data");
    const ended = once(supervisor, "exit");
    writeFileSync(
      record,
      JSON.stringify({
        schemaVersion: 1,
        apiToken: "none",
        pid: supervisor.pid,
        pidStart: processStart(supervisor.pid as number),
      }),
    );

    // Nor does it hear anything before it is woken up.
    supervisor.kill("SIGSTOP");
    expect((await run(["down", "--data-directory", directory])).status).toBe(0);
    expect(processesOf(record)).toEqual([]);
    expect(await ended).toEqual([0, null]);
  });

  it("leave nothing behind when a detached start is interrupted", async () => {
    const up = start(["up", "--detach", "--data-directory", directory]);
    await expect
      .poll(() => readdirSync(join(directory, "logs"), { withFileTypes: true }).length, { timeout: 30_000 })
      .toBeGreaterThan(1);
    up.child.kill("SIGINT");
    expect((await up.ended).status).toBe(130);
    expect(processesOf(directory)).toEqual([]);
  });

  it("stop in order when their terminal is closed", async () => {
    // `script` holds the terminal: when it is killed, nobody reads what is written there, and SIGHUP comes.
    const terminal = spawn(
      "script",
      [
        "--quiet",
        "--flush",
        "--command",
        `${process.execPath} ${BIN} up --data-directory ${directory}`,
        "/dev/null",
      ],
      { stdio: ["pipe", "pipe", "ignore"] },
    );
    let said = "";
    terminal.stdout.on("data", (text: Buffer) => (said += text.toString()));
    await expect.poll(() => said, { timeout: 90_000 }).toContain("token");
    terminal.kill("SIGKILL");
    await expect.poll(() => processesOf(directory), { timeout: 60_000 }).toEqual([]);
    expect(readdirSync(directory).filter((name) => name.startsWith("stack"))).toEqual([]);
    expect(readFileSync(join(directory, "logs", "postgres.log"), "utf8")).toContain(
      "database system is shut down",
    );
  });
});
