import { execFile, spawn, spawnSync, type ChildProcess, type ChildProcessByStdio } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { hostname, tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { freePort } from "@internevo/local-stack";

/** Folders of this tool begin so; the number behind it is the owner's process. */
const PREFIX = "internevo-slurm-";
const PROGRAMS = [
  "slurmctld",
  "slurmd",
  "munged",
  "sbatch",
  "squeue",
  "scontrol",
  "sinfo",
  "scancel",
  "srun",
  "unshare",
  "setpriv",
];
const SEARCH_PATH = [...(process.env["PATH"] ?? "").split(delimiter), "/usr/sbin", "/sbin"];

const run = promisify(execFile);

/** Why no Slurm can be started here, or undefined. */
export function whyImpossible(): string | undefined {
  if (process.getuid?.() !== 0)
    return "Slurm's daemons on this machine need root, to act for each other and to name their nodes";
  const missing = PROGRAMS.filter(
    (program) => !SEARCH_PATH.some((directory) => directory !== "" && existsSync(join(directory, program))),
  );
  if (missing.length > 0)
    return (
      `${missing.join(", ")} cannot be found: install slurmctld, ` +
      "slurmd, slurm-client, slurm-wlm-basic-plugins and munge"
    );
  const tried = spawnSync(
    "unshare",
    [
      "--pid",
      "--fork",
      "--kill-child",
      "--mount",
      "--uts",
      "--mount-proc",
      "--propagation",
      "private",
      "sh",
      "-c",
      "hostname n1 && mount -t tmpfs tmpfs /dev/shm",
    ],
    { encoding: "utf8" },
  );
  if (tried.error) return `unshare cannot be started: ${tried.error.message}`;
  return tried.status === 0
    ? undefined
    : `namespaces cannot be made here: ${tried.stderr.trim().split("\n").at(-1) ?? `exit code ${tried.status}`}`;
}

export interface SlurmOptions {
  /** Nodes n1, n2, …. Default 3. */
  readonly nodes?: number;
  /** CPUs that each node claims to have, whatever the machine has. Default 4. */
  readonly cpusPerNode?: number;
  /**
   * A node that is silent for so long counts as lost. Default 60: short ones take a busy machine for a broken
   * node.
   */
  readonly nodeTimeoutSeconds?: number;
  /** More lines of slurm.conf. */
  readonly configuration?: readonly string[];
}

export interface SlurmStand {
  readonly directory: string;
  readonly nodes: readonly string[];
  /** For every Slurm command. */
  readonly environment: { readonly SLURM_CONF: string };
  /** A Slurm command's standard output. */
  slurm(program: string, ...parameters: string[]): Promise<string>;
  killController(): Promise<void>;
  startController(): Promise<void>;
  /** Ends everything of a node at once; Slurm finds it out by itself. */
  killNode(node: string): Promise<void>;
  /** The node's daemon again; a node that is DOWN comes back by itself. */
  startNode(node: string): Promise<void>;
  /** Starts slurmrestd. @returns its address; undefined where it is not installed. */
  startRest(): Promise<string | undefined>;
  /** Waits until so many nodes can take jobs. */
  untilUp(nodes: number, seconds?: number): Promise<void>;
  logs(this: void): string;
  stop(): Promise<void>;
}

function configurationOf(
  directory: string,
  nodes: readonly string[],
  { cpusPerNode: cpus = 4, nodeTimeoutSeconds = 60 }: SlurmOptions,
  ports: readonly number[],
): string {
  const [controller, ...daemons] = ports;
  return [
    "ClusterName=internevo",
    "SlurmctldHost=front(127.0.0.1)",
    `SlurmctldPort=${controller}`,
    "SlurmUser=root",
    "SlurmdUser=root",
    "AuthType=auth/munge",
    "CredType=cred/munge",
    `AuthInfo=socket=${directory}/munge.socket`,
    `StateSaveLocation=${directory}/state`,
    `SlurmdSpoolDir=${directory}/spool/%n`,
    `TmpFS=${directory}/tmp/%n`,
    `SlurmctldPidFile=${directory}/slurmctld.pid`,
    `SlurmdPidFile=${directory}/slurmd.%n.pid`,
    `SlurmctldLogFile=${directory}/log/slurmctld.log`,
    `SlurmdLogFile=${directory}/log/slurmd.%n.log`,
    "ProctrackType=proctrack/linuxproc",
    "TaskPlugin=task/none",
    "JobAcctGatherType=jobacct_gather/none",
    "AccountingStorageType=accounting_storage/none",
    "SwitchType=switch/none",
    "MpiDefault=pmix",
    "SelectType=select/cons_tres",
    "SelectTypeParameters=CR_Core",
    // Nodes say what is written here, not what the machine has.
    "SlurmdParameters=config_overrides",
    "SchedulerType=sched/backfill",
    "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=200000,bf_resolution=1",
    "ReturnToService=2",
    "SlurmctldTimeout=10",
    `SlurmdTimeout=${nodeTimeoutSeconds}`,
    "InactiveLimit=0",
    "MinJobAge=300",
    "KillWait=5",
    "JobRequeue=1",
    ...nodes.map(
      (node, index) =>
        `NodeName=${node} NodeHostname=${node} NodeAddr=127.0.0.1 Port=${daemons[index]} CPUs=${cpus} ` +
        `Boards=1 SocketsPerBoard=1 CoresPerSocket=${cpus} ThreadsPerCore=1 RealMemory=4000 State=UNKNOWN`,
    ),
    `PartitionName=main Nodes=${nodes.join(",")} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO`,
  ].join("\n");
}

const isAlive = (pid: number): boolean => existsSync(`/proc/${pid}`);

/** Folders whose owner was killed. */
function removeStale(): void {
  for (const name of readdirSync(tmpdir())) {
    const owner = name.startsWith(PREFIX) ? Number(name.slice(PREFIX.length).split("-")[0]) : Number.NaN;
    if (Number.isInteger(owner) && !isAlive(owner))
      rmSync(join(tmpdir(), name), { recursive: true, force: true });
  }
}

/** The folder of a cluster: its configuration, key, logs and spools. */
async function prepareDirectory(nodes: readonly string[], options: SlurmOptions): Promise<string> {
  const directory = mkdtempSync(join(tmpdir(), `${PREFIX}${process.pid}-`));
  // munged wants its socket to be reachable by all.
  chmodSync(directory, 0o711);
  for (const each of ["log", "state", ...nodes.flatMap((node) => [`spool/${node}`, `tmp/${node}`])])
    mkdirSync(join(directory, each), { recursive: true });
  writeFileSync(join(directory, "munge.key"), randomBytes(128), { mode: 0o400 });
  const ports: number[] = [];
  while (ports.length <= nodes.length) {
    const port = await freePort();
    if (!ports.includes(port)) ports.push(port);
  }
  writeFileSync(
    join(directory, "slurm.conf"),
    [configurationOf(directory, nodes, options, ports), ...(options.configuration ?? []), ""].join("\n"),
  );
  return directory;
}

/** See {@link SlurmStand}. */
class NamespacedSlurm implements SlurmStand {
  readonly directory: string;
  readonly nodes: readonly string[];
  readonly environment: { readonly SLURM_CONF: string };
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>;
  readonly #answers: AsyncIterator<string, undefined>;
  readonly #gone: Promise<void>;
  #said = "";
  #rest: ChildProcess | undefined;

  constructor(directory: string, nodes: readonly string[]) {
    this.directory = directory;
    this.nodes = nodes;
    this.environment = { SLURM_CONF: join(directory, "slurm.conf") };
    this.#child = spawn(
      "setpriv",
      [
        "--pdeathsig",
        "KILL",
        "--",
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount",
        "--mount-proc",
        "--propagation",
        "private",
        "bash",
        join(import.meta.dirname, "nodes.sh"),
        directory,
        ...nodes,
      ],
      { stdio: ["pipe", "pipe", "pipe"], env: { PATH: process.env["PATH"], LC_ALL: "C.UTF-8" } },
    );
    this.#child.stderr.on("data", (chunk: Buffer) => (this.#said += chunk.toString()));
    this.#gone = new Promise<void>((resolve) => this.#child.once("close", () => resolve()));
    this.#child.stdin.on("error", () => {});
    this.#answers = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  /** Waits until all nodes can take jobs. */
  async ready(): Promise<void> {
    await this.#answered("ready");
    await this.untilUp(this.nodes.length);
  }

  // Handed on as a value, which needs no `this`.
  readonly logs = (): string => {
    const folder = join(this.directory, "log");
    const tails = readdirSync(folder).map((name) => {
      const lines = readFileSync(join(folder, name), "utf8").split("\n");
      return `== ${name}\n${lines.slice(-25).join("\n")}`;
    });
    return [this.#said, ...tails].join("\n");
  };

  async #answered(word: string): Promise<void> {
    const { value } = await this.#answers.next();
    if (value !== word) throw new Error(`the Slurm cluster of ${hostname()} ended:\n${this.logs()}`);
  }

  async #tell(command: string): Promise<void> {
    this.#child.stdin.write(`${command}\n`);
    await this.#answered("done");
  }

  async slurm(program: string, ...parameters: string[]): Promise<string> {
    const { stdout } = await run(program, parameters, {
      env: { ...process.env, ...this.environment },
      timeout: 60_000,
      maxBuffer: 1 << 26,
    });
    return stdout;
  }

  killController(): Promise<void> {
    return this.#tell("controller-kill");
  }

  startController(): Promise<void> {
    return this.#tell("controller-start");
  }

  killNode(node: string): Promise<void> {
    return this.#tell(`kill ${node}`);
  }

  startNode(node: string): Promise<void> {
    return this.#tell(`start ${node}`);
  }

  async startRest(): Promise<string | undefined> {
    if (!SEARCH_PATH.some((each) => existsSync(join(each, "slurmrestd")))) return undefined;
    const socket = join(this.directory, "slurmrestd.socket");
    const log = openSync(join(this.directory, "log", "slurmrestd.err"), "a");
    // Not in the namespace: it knows its callers by their process numbers, and who calls from outside has
    // none there.
    this.#rest = spawn(
      "setpriv",
      [
        "--pdeathsig",
        "KILL",
        "--",
        "slurmrestd",
        "-s",
        "openapi/v0.0.38",
        "-a",
        "rest_auth/local",
        `unix:${socket}`,
      ],
      {
        stdio: ["ignore", log, log],
        env: {
          ...this.environment,
          PATH: SEARCH_PATH.join(delimiter),
          LC_ALL: "C.UTF-8",
          SLURMRESTD_SECURITY: "disable_user_check",
        },
      },
    );
    closeSync(log);
    for (const end = performance.now() + 20_000; !existsSync(socket); await sleep(50))
      if (performance.now() > end) throw new Error(`slurmrestd does not start:\n${this.logs()}`);
    return `unix:${socket}`;
  }

  async untilUp(wanted: number, seconds = 60): Promise<void> {
    let last = "";
    for (const end = performance.now() + seconds * 1000; performance.now() < end; await sleep(100)) {
      last = await this.slurm(
        "sinfo",
        "--noheader",
        "--Node",
        "--states=idle,alloc,mix",
        "--format=%N",
      ).catch((error: Error) => error.message);
      if (last.split("\n").filter((line) => this.nodes.includes(line.trim())).length >= wanted) return;
    }
    throw new Error(`after ${seconds} s fewer than ${wanted} nodes can take jobs: ${last}\n${this.logs()}`);
  }

  async stop(): Promise<void> {
    this.#rest?.kill("SIGKILL");
    this.#child.kill("SIGKILL");
    await this.#gone;
    // Processes of the namespace end with it, which may take a moment longer than the one that was waited
    // for.
    for (let tries = 0; ; tries += 1) {
      try {
        return rmSync(this.directory, { recursive: true, force: true });
      } catch (error) {
        if (tries === 50) throw error;
        await sleep(100);
      }
    }
  }
}

/**
 * Starts a Slurm cluster on this machine: a controller and nodes, each with a host name and shared memory of
 * its own. It ends with this process, however that ends.
 * @throws Error with the daemons' logs where it does not come up.
 */
export async function startSlurm(options: SlurmOptions = {}): Promise<SlurmStand> {
  removeStale();
  const nodes = Array.from({ length: options.nodes ?? 3 }, (_, index) => `n${index + 1}`);
  const stand = new NamespacedSlurm(await prepareDirectory(nodes, options), nodes);
  try {
    await stand.ready();
    return stand;
  } catch (error) {
    await stand.stop();
    throw error;
  }
}
