import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
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
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { CoreV1Api, KubeConfig, type V1Node } from "@kubernetes/client-node";
import { IS_APPLIED, KubernetesApi, type KubernetesSettings } from "@internevo/launcher/kubernetes";
import { freePort } from "@internevo/local-stack";
import {
  addressOf,
  ALL_TESTBEDS,
  down,
  networkOf,
  sentBytes,
  up,
  type State as Testbed,
} from "@internevo/testbed/testbed";
import { buildPrograms, type Programs } from "./build.ts";
import { KUEUE_NAMESPACE, KUEUE_SERVICE, makeCertificates, type Certificates } from "./certificates.ts";
import { buildKwok, KWOK_GRACE_SECONDS } from "./kwok.ts";
import { definitions, pathOf, queue, sharedFolder, webhooks, type Manifest } from "./manifests.ts";

/** The image that nodes of the stand have: this machine. */
export const IMAGE = "internevo.local/this-machine:1";
/** The claim of the folder that nodes share. */
export const CLAIM = "shared";
/** Kueue's queue of the stand. */
export const QUEUE = "ranks";

export interface StandOptions {
  /** Nodes n1, n2, …. Default 2. */
  readonly nodes?: number;
  /** CPUs that each node claims to have, whatever the machine has. Default 4. */
  readonly cpusPerNode?: number;
  /** CPUs of the stand's queue of Kueue. Default: those of all nodes. */
  readonly queueCpus?: number;
  /**
   * Whether kwok plays the nodes that fleet.ts makes: pods on them are running when they are bound, and no process
   * runs for them. Default: no.
   */
  readonly kwok?: boolean;
  /** A folder that pods see at its own path. Default: that of temporary files. */
  readonly shared?: string;
  /** Of each node's link. Default 10 Gbit/s. */
  readonly bandwidthBitsPerSecond?: number;
}

/** How long something is waited for, and the time between two looks. */
export interface Patience {
  readonly seconds?: number;
  readonly pauseMilliseconds?: number;
}

interface Ports {
  readonly etcd: number;
  readonly peers: number;
  readonly api: number;
  readonly manager: number;
  readonly scheduler: number;
  readonly jobSet: number;
  readonly jobSetHealth: number;
  readonly kueue: number;
  readonly kueueHealth: number;
}

async function freePorts(): Promise<Ports> {
  const ports = new Set<number>();
  while (ports.size < 9) ports.add(await freePort());
  const [etcd, peers, api, manager, scheduler, jobSet, jobSetHealth, kueue, kueueHealth] = [...ports];
  return { etcd, peers, api, manager, scheduler, jobSet, jobSetHealth, kueue, kueueHealth } as Ports;
}

/** Networks outlive a process that is killed; the next takes them away. */
async function takeLeftNetworksDown(): Promise<void> {
  for (const name of existsSync(ALL_TESTBEDS) ? readdirSync(ALL_TESTBEDS) : []) {
    const owner = /^kubernetes-(\d+)-/.exec(name)?.[1];
    if (owner !== undefined && !existsSync(`/proc/${owner}`)) await down(name);
  }
}

/** A Kubernetes of real parts whose nodes are processes of this machine: for tests, and for nothing else. */
export class KubernetesStand {
  readonly directory: string;
  readonly nodes: readonly string[];
  readonly kubeconfig: string;
  readonly #options: StandOptions;
  readonly #programs: Programs;
  readonly #certificates: Certificates;
  readonly #ports: Ports;
  readonly #token = randomBytes(16).toString("hex");
  /** The networks of the nodes. */
  #testbed: Testbed | undefined;
  readonly #running = new Map<string, { readonly child: ChildProcess; readonly gone: Promise<void> }>();

  private constructor(options: StandOptions, programs: Programs, ports: Ports) {
    this.#options = options;
    this.#programs = programs;
    this.#ports = ports;
    this.directory = mkdtempSync(join(tmpdir(), "internevo-kubernetes-"));
    this.nodes = Array.from({ length: options.nodes ?? 2 }, (_, index) => `n${index + 1}`);
    this.kubeconfig = join(this.directory, "kubeconfig");
    this.#certificates = makeCertificates(join(this.directory, "certificates"));
    mkdirSync(join(this.directory, "log"));
    this.#write("tokens.csv", `${this.#token},admin,1,"system:masters"`);
    this.#write("kubeconfig", JSON.stringify(this.#kubeconfigOf()));
  }

  /** @throws Error with the programs' last words where it does not come up. */
  static async start(options: StandOptions = {}): Promise<KubernetesStand> {
    const stand = new KubernetesStand(options, buildPrograms(), await freePorts());
    try {
      await stand.#comeUp();
      return stand;
    } catch (error) {
      const logs = stand.logs();
      await stand.stop();
      throw new Error(`the test cluster does not come up: ${(error as Error).message}\n${logs}`, {
        cause: error,
      });
    }
  }

  #write(name: string, text: string): string {
    const path = join(this.directory, name);
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  }

  #kubeconfigOf(): object {
    return {
      apiVersion: "v1",
      kind: "Config",
      clusters: [
        {
          name: "test",
          cluster: {
            server: `https://127.0.0.1:${this.#ports.api}`,
            "certificate-authority-data": this.#certificates.ca.toString("base64"),
          },
        },
      ],
      users: [{ name: "admin", user: { token: this.#token } }],
      contexts: [{ name: "test", context: { cluster: "test", user: "admin" } }],
      "current-context": "test",
    };
  }

  /** How an installation describes it. */
  get settings(): KubernetesSettings {
    return {
      image: IMAGE,
      kubeconfig: this.kubeconfig,
      queue: QUEUE,
      volumes: [{ claim: CLAIM, mountPath: this.#options.shared ?? tmpdir() }],
      saveSeconds: 20,
      nodeLossSeconds: 10,
    };
  }

  get config(): KubeConfig {
    const config = new KubeConfig();
    config.loadFromFile(this.kubeconfig);
    return config;
  }

  get core(): CoreV1Api {
    return this.config.makeApiClient(CoreV1Api);
  }

  get api(): KubernetesApi {
    return new KubernetesApi({ kubeconfig: this.kubeconfig });
  }

  async apply(manifests: readonly Manifest[]): Promise<void> {
    for (const each of manifests) await this.api.ask({ ...IS_APPLIED, path: pathOf(each), body: each });
  }

  async delete(manifests: readonly Manifest[]): Promise<void> {
    for (const each of [...manifests].reverse())
      await this.api.find({ method: "DELETE", path: pathOf(each) });
  }

  /** The objects of a kind in the namespace of the tests, `/apis/GROUP/VERSION` and what paths call the kind. */
  async list<T>(group: string, plural: string): Promise<readonly T[]> {
    const path = `${group}/namespaces/default/${plural}`;
    return (await this.api.ask<{ readonly items: readonly T[] }>({ path })).items;
  }

  #start(name: string, command: readonly string[], network?: number): void {
    const log = openSync(join(this.directory, "log", name), "a");
    // It ends with this process, however that ends.
    const child = spawn("setpriv", ["--pdeathsig", "KILL", "--", ...command], {
      stdio: ["ignore", log, log, ...(network === undefined ? [] : [network])],
      cwd: this.directory,
      env: { PATH: process.env["PATH"], HOME: this.directory, KUBECONFIG: this.kubeconfig },
    });
    closeSync(log);
    this.#running.set(name, { child, gone: new Promise((resolve) => child.once("close", () => resolve())) });
  }

  #part(name: string, ...args: readonly string[]): void {
    this.#start(name, [join(this.#programs.directory, name), ...args]);
  }

  async #kill(name: string): Promise<void> {
    const running = this.#running.get(name);
    this.#running.delete(name);
    running?.child.kill("SIGKILL");
    await running?.gone;
  }

  #startApi(): void {
    const { certificatePath, keyPath, accountsKeyPath } = this.#certificates;
    this.#part(
      "kube-apiserver",
      `--etcd-servers=http://127.0.0.1:${this.#ports.etcd}`,
      `--secure-port=${this.#ports.api}`,
      "--bind-address=127.0.0.1",
      "--advertise-address=127.0.0.1",
      `--tls-cert-file=${certificatePath}`,
      `--tls-private-key-file=${keyPath}`,
      `--cert-dir=${this.directory}/api`,
      "--service-account-issuer=https://internevo.local",
      `--service-account-key-file=${accountsKeyPath}`,
      `--service-account-signing-key-file=${accountsKeyPath}`,
      `--token-auth-file=${this.directory}/tokens.csv`,
      "--authorization-mode=RBAC",
      "--service-cluster-ip-range=10.0.0.0/24",
      "--allow-privileged",
      "--endpoint-reconciler-type=none",
    );
  }

  async killApi(): Promise<void> {
    await this.#kill("kube-apiserver");
  }

  async startApi(): Promise<void> {
    this.#startApi();
    await this.until(
      "the API server answers",
      async () => (await this.core.listNamespace()).items.length > 0,
    );
  }

  async #comeUp(): Promise<void> {
    const { etcd, peers } = this.#ports;
    this.#part(
      "etcd",
      `--data-dir=${this.directory}/etcd`,
      "--unsafe-no-fsync",
      `--listen-client-urls=http://127.0.0.1:${etcd}`,
      `--advertise-client-urls=http://127.0.0.1:${etcd}`,
      `--listen-peer-urls=http://127.0.0.1:${peers}`,
    );
    await this.startApi();
    await this.until("the API server is ready", async () => {
      await this.core.readNamespace({ name: "default" });
      return true;
    });
    await this.apply(definitions(this.#programs, this.#certificates, this.#ports));
    this.#startControllers();
    await this.until(
      "JobSet and Kueue listen",
      async () => (await this.#isReady("jobSetHealth")) && this.#isReady("kueueHealth"),
      { seconds: 120 },
    );
    await this.apply(webhooks(this.#programs, this.#certificates, this.#ports));
    await this.#makeNetworks();
    for (const node of this.nodes) this.startNode(node);
    if (this.#options.kwok === true) this.#startKwok();
    const { shared = tmpdir(), cpusPerNode = 4, queueCpus = cpusPerNode * this.nodes.length } = this.#options;
    await this.apply(sharedFolder(CLAIM, shared));
    await this.until("Kueue takes a queue", async () => {
      await this.apply(queue(QUEUE, queueCpus));
      return true;
    });
    await this.untilReady(this.nodes.length);
  }

  async #isReady(port: "jobSetHealth" | "kueueHealth"): Promise<boolean> {
    return (await fetch(`http://127.0.0.1:${this.#ports[port]}/readyz`)).ok;
  }

  #startControllers(): void {
    const { accountsKeyPath, caPath, directory: certDir } = this.#certificates;
    const { manager, scheduler, jobSet, jobSetHealth, kueue, kueueHealth } = this.#ports;
    // Their own bounds on requests are for small clusters.
    const pace = this.#options.kwok === true ? ["--kube-api-qps=1000", "--kube-api-burst=2000"] : [];
    // A lost node is found soon.
    const grace = this.#options.kwok === true ? KWOK_GRACE_SECONDS : 12;
    this.#part(
      "kube-controller-manager",
      `--kubeconfig=${this.kubeconfig}`,
      `--service-account-private-key-file=${accountsKeyPath}`,
      `--root-ca-file=${caPath}`,
      `--cert-dir=${this.directory}/manager`,
      `--secure-port=${manager}`,
      "--bind-address=127.0.0.1",
      "--leader-elect=false",
      "--node-monitor-period=1s",
      `--node-monitor-grace-period=${grace}s`,
      ...pace,
    );
    this.#part(
      "kube-scheduler",
      `--kubeconfig=${this.kubeconfig}`,
      `--cert-dir=${this.directory}/scheduler`,
      `--secure-port=${scheduler}`,
      "--bind-address=127.0.0.1",
      "--leader-elect=false",
      ...pace,
    );
    const common = (port: number, health: number) => ({
      webhook: { port, host: "127.0.0.1", certDir },
      leaderElection: { leaderElect: false },
      metrics: { bindAddress: "0" },
      health: { healthProbeBindAddress: `127.0.0.1:${health}` },
    });
    this.#controller("jobset", {
      apiVersion: "config.jobset.x-k8s.io/v1alpha1",
      ...common(jobSet, jobSetHealth),
      internalCertManagement: { enable: false },
    });
    this.#controller("kueue", {
      apiVersion: "config.kueue.x-k8s.io/v1beta2",
      ...common(kueue, kueueHealth),
      namespace: KUEUE_NAMESPACE,
      internalCertManagement: {
        enable: true,
        webhookServiceName: KUEUE_SERVICE,
        webhookSecretName: "kueue-webhook-server-cert",
      },
      integrations: { frameworks: ["jobset.x-k8s.io/jobset"] },
      featureGates: { VisibilityOnDemand: false },
    });
  }

  #startKwok(): void {
    const { path, configuration } = buildKwok();
    const config = this.#write("kwok.yaml", configuration);
    this.#start("kwok", [path, `--kubeconfig=${this.kubeconfig}`, `--config=${config}`]);
  }

  #controller(name: string, configuration: object): void {
    const config = this.#write(`${name}.json`, JSON.stringify({ kind: "Configuration", ...configuration }));
    this.#start(name, [join(this.#programs.directory, name), `--config=${config}`]);
  }

  async #makeNetworks(): Promise<void> {
    if (this.nodes.length === 0) return;
    const { bandwidthBitsPerSecond = 10e9 } = this.#options;
    const settings = { nodes: this.nodes.length, ranksPerNode: 1, bandwidthBitsPerSecond, latencySeconds: 0 };
    await takeLeftNetworksDown();
    this.#testbed = (await up(`kubernetes-${process.pid}-${randomBytes(3).toString("hex")}`, settings)).state;
  }

  /** How many bytes have left a node over its link to the others. */
  sentBytes(node: string): number {
    if (!this.#testbed) throw new Error("the test cluster has no nodes");
    return sentBytes(this.#testbed, this.nodes.indexOf(node));
  }

  /** A node of the test tool, in a process namespace of its own: what ends it ends its pods. */
  startNode(node: string): void {
    if (!this.#testbed) throw new Error("the test cluster has no nodes");
    const { cpusPerNode = 4 } = this.#options;
    const index = this.nodes.indexOf(node);
    const network = openSync(networkOf(this.#testbed, index), "r");
    const agent = join(import.meta.dirname, "node-agent.ts");
    this.#start(
      node,
      [
        ...[
          "unshare",
          "--pid",
          "--fork",
          "--kill-child",
          "--mount",
          "--mount-proc",
          "--propagation",
          "private",
        ],
        ...[
          process.execPath,
          agent,
          node,
          String(index + 1),
          addressOf(index),
          String(cpusPerNode),
          this.directory,
        ],
      ],
      network,
    );
    closeSync(network);
  }

  /** Ends everything of a node at once; Kubernetes finds it out by itself. */
  killNode(node: string): Promise<void> {
    return this.#kill(node);
  }

  async until(
    what: string,
    met: () => Promise<boolean>,
    { seconds = 60, pauseMilliseconds = 200 }: Patience = {},
  ): Promise<void> {
    let last = "";
    const end = performance.now() + seconds * 1000;
    for (; performance.now() < end; await sleep(pauseMilliseconds)) {
      const ended = [...this.#running].find(([, { child }]) => child.exitCode !== null);
      if (ended) throw new Error(`${ended[0]} has ended with ${ended[1].child.exitCode}`);
      try {
        if (await met()) return;
        last = "not yet";
      } catch (error) {
        last = (error as Error).message;
      }
    }
    throw new Error(`after ${seconds} s it is not so that ${what}: ${last.slice(0, 1000)}`);
  }

  /** Waits until so many nodes take pods. */
  untilReady(nodes: number, patience?: Patience): Promise<void> {
    const isReady = ({ spec, status }: V1Node): boolean =>
      status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True") === true &&
      (spec?.taints ?? []).length === 0;
    return this.until(
      `${nodes} nodes take pods`,
      async () => (await this.core.listNode()).items.filter(isReady).length >= nodes,
      patience,
    );
  }

  logs(): string {
    const folder = join(this.directory, "log");
    return readdirSync(folder)
      .map(
        (name) => `== ${name}\n${readFileSync(join(folder, name), "utf8").split("\n").slice(-15).join("\n")}`,
      )
      .join("\n");
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#running.keys()].map((name) => this.#kill(name)));
    if (this.#testbed) await down(this.#testbed.name);
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
