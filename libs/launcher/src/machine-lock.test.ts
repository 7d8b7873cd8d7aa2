import { execFileSync, spawn, spawnSync, type ChildProcess } from "node:child_process";
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { lockMachine, type MachineUse } from "./machine-lock.ts";
import { bootId } from "./process/processes.ts";

const LOCK = new URL("./machine-lock.ts", import.meta.url).href;
const NOBODY = 65_534;
const isRoot = process.getuid?.() === 0;
const uid = process.getuid?.() ?? 0;
/** A checkout below /root is nothing that another user can run. */
const othersCanRun =
  isRoot &&
  spawnSync(process.execPath, ["--eval", `import(${JSON.stringify(LOCK)})`], { uid: NOBODY, gid: NOBODY })
    .status === 0;

let directory: string;
const children: ChildProcess[] = [];
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "internevo-machine-"));
  chmodSync(directory, 0o1777);
});
afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  rmSync(directory, { recursive: true, force: true });
});

/** An installation as a process of its own, which locks the machine and says what it is told. */
function installation(name: string, use: MachineUse, user?: number) {
  const child = spawn(
    process.execPath,
    [
      "--input-type=module",
      "--eval",
      `import { lockMachine } from ${JSON.stringify(LOCK)};
       const say = (what) => (text) => console.log(what + " " + text);
       const lock = await lockMachine({ directory: ${JSON.stringify(directory)}, dataDirectory: ${JSON.stringify(name)}, use: ${JSON.stringify(use)},
         signal: new AbortController().signal, onWait: say("waits"), onNotice: say("notice"), onDetails: say("details") });
       process.on("SIGTERM", () => { lock.release(); process.exit(); });
       console.log("has it");
       setInterval(() => {}, 1000);`,
    ],
    { stdio: ["ignore", "pipe", "inherit"], ...(user === undefined ? {} : { uid: user, gid: user }) },
  );
  children.push(child);
  const lines: string[] = [];
  const watchers = new Set<() => void>();
  createInterface({ input: child.stdout }).on("line", (line) => {
    lines.push(line);
    for (const watch of watchers) watch();
  });
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  return {
    pid: child.pid as number,
    lines,
    says: (pattern: RegExp): Promise<string> =>
      new Promise((resolve) => {
        const watch = (): void => {
          const line = lines.find((one) => pattern.test(one));
          if (line !== undefined) resolve(line);
        };
        watchers.add(watch);
        watch();
      }),
    end: (signal: NodeJS.Signals) => (child.kill(signal), gone),
    pause: () => child.kill("SIGSTOP"),
  };
}

const files = (): string[] => readdirSync(directory).flatMap((name) => readdirSync(join(directory, name)));

describe("two installations on one machine", () => {
  it.each([
    ["measure", "measure"],
    ["measure", "train"],
    ["train", "measure"],
  ] as const)("one waits while the other is there: %s, then %s", async (first, second) => {
    const one = installation("/one", first);
    await one.says(/^has it/);
    const other = installation("/other", second);
    const waits = await other.says(/^waits/);
    expect(waits).toMatch(
      new RegExp(
        String.raw`^waits another installation ${first}s on this machine, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d`,
      ),
    );
    // Whoever sees a job reads that; the rest is for the log.
    expect(waits).not.toMatch(/\/one|process|user/);
    const details = await other.says(/^details/);
    expect(details).toMatch(new RegExp(`^details waited for: .*: user ${uid}, process ${one.pid}, /one$`));
    expect(other.lines).toEqual([waits, details]);
    await one.end("SIGTERM");
    await other.says(/^has it/);
  });

  it("train side by side", async () => {
    await installation("/one", "train").says(/^has it/);
    const other = installation("/other", "train");
    await other.says(/^has it/);
    expect(other.lines).toEqual(["has it"]);
  });

  it("one that was killed leaves no lock behind", async () => {
    const one = installation("/one", "measure");
    await one.says(/^has it/);
    const other = installation("/other", "measure");
    await other.says(/^waits/);
    await one.end("SIGKILL");
    await other.says(/^has it/);
    await other.end("SIGTERM");
    expect(files()).toEqual([]);
  });

  it("of many that begin at once one has it at a time", async () => {
    const all = Array.from({ length: 4 }, (_, index) => installation(`/${index}`, "measure"));
    const waiting = new Set(all);
    while (waiting.size > 0) {
      const has = await Promise.race([...waiting].map((one) => one.says(/^has it/).then(() => one)));
      const having = all.filter((one) => one.lines.includes("has it") && waiting.has(one));
      expect(having).toEqual([has]);
      waiting.delete(has);
      await has.end("SIGTERM");
    }
  }, 60_000);

  it("are told apart by their data directory: leases decide among a stack's own services", async () => {
    const one = installation("/one", "measure");
    await one.says(/^has it/);
    // As one that was replaced: it does not answer, and keeps what it has.
    one.pause();
    const other = installation("/one", "measure");
    await other.says(/^has it/);
    expect(other.lines).toEqual(["has it"]);
  });
});

/** Takes the lock here. */
async function locked(
  patience = 5000,
): Promise<{ waits: string[]; notices: string[]; details: string[]; has: boolean }> {
  const waits: string[] = [];
  const notices: string[] = [];
  const details: string[] = [];
  try {
    const lock = await lockMachine({
      directory,
      dataDirectory: "/here",
      use: "measure",
      signal: AbortSignal.timeout(patience),
      onWait: (text) => waits.push(text),
      onNotice: (text) => notices.push(text),
      onDetails: (text) => details.push(text),
    });
    lock.release();
    return { waits, notices, details, has: true };
  } catch (error) {
    if ((error as Error).name !== "TimeoutError") throw error;
    return { waits, notices, details, has: false };
  }
}

describe("of other users", () => {
  it.runIf(othersCanRun)("a notice is given, and nobody is waited for but root", async () => {
    const theirs = installation("/theirs", "measure", NOBODY);
    await theirs.says(/^has it/);
    const { waits, notices, details, has } = await locked();
    expect([has, waits]).toEqual([true, []]);
    expect(notices).toEqual([
      expect.stringMatching(/^another installation measures on this machine, since [^/]*may be disturbed$/),
    ]);
    expect(details).toEqual([expect.stringContaining(`user ${NOBODY}, process ${theirs.pid}, /theirs`)]);
    await theirs.end("SIGTERM");
    const root = installation("/root", "measure");
    await root.says(/^has it/);
    const later = installation("/theirs", "measure", NOBODY);
    expect(await later.says(/^waits/)).toContain("another installation measures");
    await root.end("SIGTERM");
    await later.says(/^has it/);
  });

  it.runIf(isRoot)(
    "a directory under our name is not used, nor is one that others may write to",
    async () => {
      const own = join(directory, `internevo-${uid}`);
      mkdirSync(own);
      chownSync(own, NOBODY, NOBODY);
      expect(await locked()).toMatchObject({
        has: true,
        notices: [expect.stringMatching(/^this machine cannot be locked: [^/]*$/) as string],
        details: [expect.stringContaining("is another user's") as string],
      });
      chownSync(own, uid, uid);
      chmodSync(own, 0o777);
      expect((await locked()).details).toEqual([expect.stringContaining("may be changed by others")]);
    },
  );

  it("a link in the place of our directory is not followed", async () => {
    const elsewhere = join(directory, "elsewhere");
    mkdirSync(elsewhere);
    symlinkSync(elsewhere, join(directory, `internevo-${uid}`));
    expect((await locked()).notices).toEqual([expect.stringContaining("cannot be locked")]);
    expect(readdirSync(elsewhere)).toEqual([]);
  });

  it("what is no lock in a directory is passed over", async () => {
    const own = join(directory, `internevo-${uid}`);
    mkdirSync(own);
    writeFileSync(join(own, `x.${bootId()}.lock`), "");
    symlinkSync("/etc/passwd", join(own, `y.${bootId()}.lock`));
    execFileSync("mkfifo", [join(own, `z.${bootId()}.lock`)]);
    expect(await locked()).toEqual({ has: true, waits: [], notices: [], details: [] });
  });
});

it("a wait ends with the work's signal", async () => {
  await installation("/one", "measure").says(/^has it/);
  const { has, waits } = await locked(1500);
  expect([has, waits.length]).toEqual([false, 1]);
});
