import { execFileSync, spawn, spawnSync } from "node:child_process";
import {
  closeSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { ProblemError, validate } from "@internevo/domain";
import type { HostCluster } from "@internevo/launcher";
import { Type, type Static } from "typebox";
import { lockDirectory } from "@internevo/local-stack";
import { SettingsSchema, type Settings } from "./options.ts";
import {
  HOLDER_MARKER,
  holderOf,
  innerPid,
  kill,
  markedProcesses,
  markOf,
  processesInside,
  startTicks,
} from "./processes.ts";

const StateSchema = Type.Object(
  {
    name: Type.String(),
    settings: SettingsSchema,
    burstBytes: Type.Integer(),
    holder: Type.Object({ pid: Type.Integer(), startTicks: Type.Integer() }, { additionalProperties: false }),
    /** Pid of each node's keeper as the testbed itself counts. */
    keepers: Type.Array(Type.Integer()),
  },
  { additionalProperties: false },
);
export type State = Static<typeof StateSchema>;

/**
 * Nodes' addresses begin so. Every testbed has networks of its own, which nothing else reaches, so that all
 * may use the same.
 */
export const SUBNET_PREFIX = "10.77";
export const MTU_BYTES = 9000;
/** What passes at full speed after a pause: half a millisecond's worth, but never less than a frame takes. */
const burstOf = (settings: Settings): number =>
  Math.max(2 * MTU_BYTES, Math.ceil((settings.bandwidthBitsPerSecond / 8) * 0.0005));

/**
 * What a connection may have under way: four times what fills the way there and back, and what a sender that
 * has to wait 4 ms for a core needs; at least 1 MiB.
 */
const windowOf = (settings: Settings): number =>
  Math.max(2 ** 20, Math.ceil((settings.bandwidthBitsPerSecond / 8) * (8 * settings.latencySeconds + 0.004)));

/** Of a link: it holds every window, so that nothing is lost. */
const QUEUE_BYTES = "67108864";

/** Debian keeps `ip` and `tc` where only root looks. */
const ADMIN_ENVIRONMENT = { PATH: `${process.env["PATH"] ?? ""}:/usr/sbin:/sbin` };

export const hostName = (name: string, node: number): string => `${name}-${node}`;
/** As nodes.sh gives it. */
export const addressOf = (node: number): string =>
  `${SUBNET_PREFIX}.${Math.floor(node / 250)}.${(node % 250) + 1}`;
/** The file of a node's network namespace; whoever holds it open can enter it. */
export function networkOf({ name, holder, keepers }: State, node: number): string {
  const keeper = processesInside(holder.pid).find((pid) => innerPid(pid) === keepers[node]);
  if (keeper === undefined) throw unavailable(`node ${node} of testbed ${name} is down`, "Build it again");
  return `/proc/${keeper}/ns/net`;
}
/** How many bytes have left a node over its link. */
export function sentBytes({ holder }: State, node: number): number {
  const text = execFileSync(
    "nsenter",
    [
      ...["--target", String(holder.pid), "--user", "--preserve-credentials", "--net", "--"],
      ...["ip", "-json", "-statistics", "link", "show", "dev", `link${node}`],
    ],
    { encoding: "utf8", env: ADMIN_ENVIRONMENT },
  );
  const [link] = JSON.parse(text) as readonly {
    readonly stats64: { readonly rx: { readonly bytes: number } };
  }[];
  return link?.stats64.rx.bytes ?? 0;
}

/** Has a folder for each testbed of this user. */
export const ALL_TESTBEDS = join(tmpdir(), `internevo-testbed-${process.getuid?.() ?? 0}`);
export const directoryOf = (name: string): string => join(ALL_TESTBEDS, name);
export const clustersFileOf = (name: string): string => join(directoryOf(name), "clusters.json");
const stateFileOf = (name: string): string => join(directoryOf(name), "state.json");
const remoteShellOf = (name: string): string => join(directoryOf(name), "rsh");

const unavailable = (message: string, remedy: string): ProblemError =>
  new ProblemError("unavailable", `${message}. ${remedy}`, [{ field: "testbed", message, remedy }]);

/** Why no testbed can be made here, or undefined. */
export function whyImpossible(): string | undefined {
  const tried = spawnSync(
    "unshare",
    [
      "--user",
      "--map-root-user",
      "--pid",
      "--fork",
      "--net",
      "--mount",
      "--uts",
      "--ipc",
      "--mount-proc",
      "--propagation",
      "private",
      "sh",
      "-c",
      "PATH=$PATH:/usr/sbin:/sbin; ip link add dev t0 type veth peer name " +
        "t1 && tc qdisc add dev t0 root tbf rate 1gbit burst 64k latency 50ms",
    ],
    { encoding: "utf8" },
  );
  if (tried.error) return `unshare cannot be started: ${tried.error.message}`;
  return tried.status === 0
    ? undefined
    : `namespaces cannot be made here: ${tried.stderr.trim().split("\n").at(-1) ?? `exit code ${tried.status}`}`;
}

/** A folder of this user alone, although others may write where it lies. */
function ownDirectory(path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const found = lstatSync(path);
  if (!found.isDirectory() || found.uid !== process.getuid?.())
    throw unavailable(`${path} belongs to somebody else`, "Remove it, or set TMPDIR to another folder");
}

/** Runs `work` while no other command changes the same testbed. */
async function locked<T>(name: string, work: () => Promise<T>): Promise<T> {
  ownDirectory(ALL_TESTBEDS);
  ownDirectory(directoryOf(name));
  const lock = lockDirectory(directoryOf(name));
  try {
    return await work();
  } finally {
    lock.release();
  }
}

/** The testbed of a name, if it lives. */
export function current(name: string): State | undefined {
  let text: string;
  try {
    text = readFileSync(stateFileOf(name), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
  const state = validate(StateSchema, JSON.parse(text), "internal", stateFileOf(name));
  return startTicks(state.holder.pid) === state.holder.startTicks && holderOf(name) === state.holder.pid
    ? state
    : undefined;
}

/** When a process began that had ended before anybody asked: no process begins then. */
const GONE = -1;

/**
 * Ends everything that holds, builds or runs on a testbed, also what a killed command left. @returns how many
 * processes.
 */
async function clear(name: string): Promise<number> {
  /** When each began. */
  const seen = new Map<number, number>();
  const deadline = performance.now() + 10_000;
  for (;;) {
    const holder = holderOf(name);
    // One that is dying shows neither its mark nor its namespace.
    const dying = [...seen].filter(([pid, ticks]) => startTicks(pid) === ticks).map(([pid]) => pid);
    const left = [
      ...new Set([
        ...markedProcesses(name),
        ...(holder === undefined ? [] : processesInside(holder)),
        ...dying,
      ]),
    ];
    if (left.length === 0) break;
    if (performance.now() > deadline)
      throw new Error(`processes ${left.join(", ")} of testbed ${name} do not end after SIGKILL`);
    for (const pid of left) {
      seen.set(pid, startTicks(pid) ?? GONE);
      kill(pid);
    }
    await sleep(20);
  }
  for (const file of [stateFileOf(name), clustersFileOf(name), remoteShellOf(name)])
    rmSync(file, { force: true });
  return seen.size;
}

const writeWhole = (path: string, text: string, mode = 0o600): void => {
  writeFileSync(`${path}.new`, text, { mode });
  renameSync(`${path}.new`, path);
};

/** The relay that delays packets, compiled for this machine. */
function buildRelay(name: string): string {
  const path = join(directoryOf(name), "delay-relay");
  execFileSync(
    "c++",
    ["-std=c++20", "-O2", "-pthread", "-o", path, join(import.meta.dirname, "delay-relay.cpp")],
    { stdio: ["ignore", "inherit", "inherit"] },
  );
  return path;
}

/** Starts the holder and waits until all nodes stand. */
async function hold(name: string, settings: Settings): Promise<State> {
  const logFile = join(directoryOf(name), "log");
  const log = openSync(logFile, "w", 0o600);
  const relay = settings.latencySeconds > 0 ? buildRelay(name) : "";
  const burstBytes = burstOf(settings);
  // A packet crosses two links: half of the latency each.
  const half = Math.round((settings.latencySeconds / 2) * 1e9);
  const child = spawn(
    "unshare",
    [
      "--user",
      "--map-root-user",
      "--pid",
      "--fork",
      "--kill-child",
      "--net",
      "--mount",
      "--uts",
      "--ipc",
      "--mount-proc",
      "--propagation",
      "private",
      "bash",
      join(import.meta.dirname, "nodes.sh"),
      name,
      ...[settings.nodes, settings.bandwidthBitsPerSecond, burstBytes, MTU_BYTES].map(String),
      SUBNET_PREFIX,
      relay,
      String(half),
      String(windowOf(settings)),
      QUEUE_BYTES,
    ],
    {
      detached: true,
      stdio: ["ignore", "pipe", log],
      cwd: "/",
      env: { PATH: process.env["PATH"], LC_ALL: "C.UTF-8", [HOLDER_MARKER]: markOf(name) },
    },
  );
  closeSync(log);
  const stdout = child.stdout as Readable; // a pipe, as asked for
  const failed = new Promise<never>((_, reject) => child.once("error", reject));
  const keepers: number[] = [];
  const stand = (async () => {
    for await (const line of createInterface({ input: stdout })) {
      const node = /^node (\d+) (\d+)$/.exec(line);
      if (node) keepers[Number(node[1])] = Number(node[2]);
      if (line === "ready") return true;
    }
    return false;
  })();
  if (!(await Promise.race([stand, failed])))
    throw unavailable(
      `the testbed cannot be built: ${readFileSync(logFile, "utf8").trim().split("\n").at(-1) ?? ""}`,
      whyImpossible() ?? `See ${logFile}`,
    );
  stdout.destroy();
  child.unref();
  const holder = holderOf(name);
  const ticks = holder === undefined ? undefined : startTicks(holder);
  if (holder === undefined || ticks === undefined)
    throw unavailable("the testbed ended at once", `See ${logFile}`);
  return { name, settings, burstBytes, holder: { pid: holder, startTicks: ticks }, keepers };
}

/**
 * What ssh is for a cluster. Called by mpirun inside the testbed's user namespace, or by hand from outside.
 */
const remoteShell = ({ name, holder, keepers }: State): string => `#!/bin/bash
# Runs a command on a node of testbed ${name}, as ssh would: rsh HOST COMMAND
case "$1" in
${keepers.map((pid, node) => `  ${hostName(name, node)}) node=${pid} ;;`).join("\n")}
  *) echo "testbed ${name} has no node $1" >&2; exit 255 ;;
esac
shift
grep -qzxF '${HOLDER_MARKER}=${markOf(name)}' /proc/${holder.pid}/environ 2>/dev/null || { echo "testbed ${name} is down" >&2; exit 255; }
user=(--user --preserve-credentials)
[ /proc/self/ns/user -ef /proc/${holder.pid}/ns/user ] && user=()
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec nsenter --target ${holder.pid} "\${user[@]}" --mount --pid -- nsenter --target $node --net --uts --ipc --mount -- /bin/sh -c "$*"
`;

function coresOf({ nodes }: Settings): { cores?: number } {
  const cores = Math.floor(availableParallelism() / nodes);
  return cores > 0 ? { cores } : {};
}

/** The testbed as the launcher sees any cluster of hosts: its nodes share the cores of the machine. */
export const clustersOf = ({
  name,
  settings,
  holder,
}: State): { readonly clusters: Record<string, HostCluster> } => ({
  clusters: {
    [name]: {
      hosts: Array.from({ length: settings.nodes }, (_, node) => ({
        name: hostName(name, node),
        slots: settings.ranksPerNode,
        ...coresOf(settings),
      })),
      remoteShell: [remoteShellOf(name)],
      network: [`${SUBNET_PREFIX}.0.0/16`],
      // Inside, whoever owns the testbed counts as root, which Open MPI refuses unless told.
      enter: [
        "nsenter",
        "--target",
        String(holder.pid),
        "--user",
        "--preserve-credentials",
        "--net",
        "--uts",
        "--",
        "env",
        "OMPI_ALLOW_RUN_AS_ROOT=1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
      ],
    },
  },
});

/**
 * Builds a testbed; one that stands already with the same settings stays, one with others is replaced, as is
 * what a killed command left.
 * @throws ProblemError `unavailable` where namespaces cannot be made, `conflict` while another command
 * changes the same testbed.
 */
export const up = (
  name: string,
  settings: Settings,
): Promise<{ readonly state: State; readonly built: boolean }> =>
  locked(name, async () => {
    const standing = current(name);
    if (standing && JSON.stringify(standing.settings) === JSON.stringify(settings))
      return { state: standing, built: false };
    await clear(name);
    try {
      const state = await hold(name, settings);
      writeWhole(remoteShellOf(name), remoteShell(state), 0o700);
      writeWhole(clustersFileOf(name), JSON.stringify(clustersOf(state), null, 2));
      writeWhole(stateFileOf(name), JSON.stringify(state, null, 2));
      return { state, built: true };
    } catch (error) {
      await clear(name);
      throw error;
    }
  });

/**
 * Gives all links of a testbed that stands another bandwidth, while what runs on it goes on.
 * @throws ProblemError `unavailable` where it is down
 */
export const shape = (name: string, bandwidthBitsPerSecond: number): Promise<State> =>
  locked(name, async () => {
    const standing = current(name);
    if (!standing) throw unavailable(`testbed ${name} is down`, "Build it first");
    const settings = { ...standing.settings, bandwidthBitsPerSecond };
    const state = { ...standing, settings, burstBytes: burstOf(settings) };
    const inside = (command: readonly string[], node: readonly string[] = []): void =>
      void execFileSync(
        "nsenter",
        [
          ...["--target", String(state.holder.pid), "--user", "--preserve-credentials"],
          ...["--mount", "--pid", "--net", "--", ...node, ...command],
        ],
        { encoding: "utf8", env: ADMIN_ENVIRONMENT },
      );
    const shaped = (device: string): readonly string[] => [
      ...["tc", "qdisc", "change", "dev", device, "root", "tbf"],
      ...["rate", `${bandwidthBitsPerSecond}bit`, "burst", String(state.burstBytes), "limit", QUEUE_BYTES],
    ];
    for (const [node, keeper] of state.keepers.entries()) {
      const onNode = ["nsenter", "--target", String(keeper), "--net", "--"];
      inside(shaped(`link${node}`));
      inside(shaped("node0"), onNode);
      // Of connections that are made from now on.
      for (const window of ["tcp_rmem", "tcp_wmem"])
        inside(
          ["sh", "-c", `echo "4096 65536 ${windowOf(settings)}" > /proc/sys/net/ipv4/${window}`],
          onNode,
        );
    }
    writeWhole(stateFileOf(name), JSON.stringify(state, null, 2));
    return state;
  });

/** Takes a node off the others' network, or back: what runs on it goes on, and nobody is told. */
export function joinNode({ holder }: State, node: number, isJoined: boolean): void {
  execFileSync(
    "nsenter",
    [
      ...["--target", String(holder.pid), "--user", "--preserve-credentials", "--net", "--"],
      ...["ip", "link", "set", "dev", `link${node}`, isJoined ? "up" : "down"],
    ],
    { encoding: "utf8", env: ADMIN_ENVIRONMENT },
  );
}

/** Takes a testbed down with everything that runs on it. @returns how many processes ended. */
export const down = (name: string): Promise<number> =>
  locked(name, () => clear(name)).finally(() => rmSync(directoryOf(name), { recursive: true, force: true }));
