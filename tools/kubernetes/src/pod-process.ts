import { spawn, type ChildProcess } from "node:child_process";
import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  setHeaderOptions,
  PatchStrategy,
  type CoreV1Api,
  type V1ContainerState,
  type V1Pod,
} from "@kubernetes/client-node";
import { MTU_BYTES } from "@internevo/testbed/testbed";

/** By this number an agent, and what it starts, holds the network namespace of its node. */
export const NETWORK_FILE = 3;

const IMAGES = /^internevo\.local\/this-machine:/;

export interface Place {
  readonly node: string;
  readonly hostIP: string;
  readonly podIP: string;
  /** Of the test cluster. */
  readonly directory: string;
}

/** Why a container cannot be started now. */
class WaitingError extends Error {
  readonly reason: string;
  constructor(reason: string, message: string) {
    super(message);
    this.reason = reason;
  }
}

const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** One pod of a node: its only container, from its start to its end. */
export class PodProcess {
  readonly #core: CoreV1Api;
  readonly #place: Place;
  readonly #name: string;
  readonly #namespace: string;
  readonly #uid: string;
  /** It ran here before this agent did: its processes are gone. */
  readonly #isLost: boolean;
  #child: ChildProcess | undefined;
  #startedAt = new Date();
  #ended: { readonly exitCode: number; readonly finishedAt: Date } | undefined;
  #told = "";
  #killBy: number | undefined;

  constructor(core: CoreV1Api, pod: V1Pod, place: Place) {
    this.#core = core;
    this.#place = place;
    this.#name = pod.metadata?.name ?? "";
    this.#namespace = pod.metadata?.namespace ?? "";
    this.#uid = pod.metadata?.uid ?? "";
    this.#isLost = pod.status?.phase === "Running";
  }

  async tend(pod: V1Pod, everyPod: readonly V1Pod[]): Promise<void> {
    const isOver = pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed";
    if (pod.metadata?.deletionTimestamp) return this.#end(pod);
    if (isOver) return;
    if (this.#isLost) return this.#tell("Failed", undefined, "NodeShutdown");
    if (this.#ended) return this.#tellEnd(pod);
    if (this.#child) return this.#tell("Running", { running: { startedAt: this.#startedAt } });
    try {
      await this.#start(pod, everyPod);
      await this.#tell("Running", { running: { startedAt: this.#startedAt } });
    } catch (error) {
      if (!(error instanceof WaitingError)) throw error;
      await this.#tell("Pending", { waiting: { reason: error.reason, message: error.message } });
    }
  }

  kill(): void {
    this.#child?.kill("SIGKILL");
  }

  /** SIGTERM to the first process of the container, SIGKILL when its grace is over, then the pod goes. */
  async #end(pod: V1Pod): Promise<void> {
    const seconds = pod.metadata?.deletionGracePeriodSeconds ?? 30;
    if (this.#child && !this.#ended) {
      const by = Date.now() + seconds * 1000;
      if (this.#killBy === undefined) this.#signalInside("SIGTERM");
      this.#killBy = Math.min(this.#killBy ?? by, by);
      if (Date.now() >= this.#killBy) this.kill();
      return;
    }
    if (this.#ended) await this.#tellEnd(pod);
    await this.#core.deleteNamespacedPod({
      name: this.#name,
      namespace: this.#namespace,
      body: { gracePeriodSeconds: 0, preconditions: { uid: this.#uid } },
    });
  }

  /** To the container's first process: the only child of the namespace's keeper. */
  #signalInside(signal: NodeJS.Signals): void {
    const keeper = this.#child?.pid;
    if (keeper === undefined) return;
    const children = readFileSync(`/proc/${keeper}/task/${keeper}/children`, "utf8").trim().split(" ");
    for (const child of children) if (child !== "") process.kill(Number(child), signal);
  }

  #tellEnd(pod: V1Pod): Promise<void> {
    if (pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed") return Promise.resolve();
    const { exitCode, finishedAt } = this.#ended ?? { exitCode: 1, finishedAt: new Date() };
    return this.#tell(exitCode === 0 ? "Succeeded" : "Failed", {
      terminated: {
        exitCode,
        reason: exitCode === 0 ? "Completed" : "Error",
        startedAt: this.#startedAt,
        finishedAt,
      },
    });
  }

  async #tell(phase: string, state?: V1ContainerState, reason?: string): Promise<void> {
    const isReady = phase === "Running";
    const told = JSON.stringify([phase, state, reason]);
    if (told === this.#told) return;
    const condition = (type: string, is: boolean) => ({ type, status: is ? "True" : "False" });
    await this.#core.patchNamespacedPodStatus(
      {
        name: this.#name,
        namespace: this.#namespace,
        body: {
          metadata: { uid: this.#uid },
          status: {
            phase,
            ...(reason === undefined ? {} : { reason }),
            hostIP: this.#place.hostIP,
            podIP: this.#place.podIP,
            podIPs: [{ ip: this.#place.podIP }],
            startTime: this.#startedAt,
            conditions: [
              condition("Initialized", true),
              condition("Ready", isReady),
              condition("ContainersReady", isReady),
            ],
            ...(state === undefined
              ? {}
              : {
                  containerStatuses: [
                    {
                      name: "ranks",
                      ready: isReady,
                      started: isReady,
                      restartCount: 0,
                      image: "",
                      imageID: "",
                      state,
                    },
                  ],
                }),
          },
        },
      },
      setHeaderOptions("Content-Type", PatchStrategy.StrategicMergePatch),
    );
    this.#told = told;
  }

  async #environmentOf(pod: V1Pod): Promise<Record<string, string>> {
    const [container] = pod.spec?.containers ?? [];
    const environment: Record<string, string> = { PATH: process.env["PATH"] ?? "", HOME: "/root" };
    for (const { secretRef } of container?.envFrom ?? []) {
      const name = secretRef?.name ?? "";
      const secret = await this.#core.readNamespacedSecret({ name, namespace: this.#namespace }).catch(() => {
        throw new WaitingError("CreateContainerConfigError", `secret "${name}" not found`);
      });
      for (const [key, value] of Object.entries(secret.data ?? {}))
        environment[key] = Buffer.from(value, "base64").toString();
    }
    for (const { name, value, valueFrom } of container?.env ?? [])
      environment[name] = value ?? this.#fieldOf(pod, valueFrom?.fieldRef?.fieldPath ?? "");
    return environment;
  }

  #fieldOf({ metadata, status }: V1Pod, path: string): string {
    const [, kind, key] = /^metadata\.(labels|annotations)\['(.+)'\]$/.exec(path) ?? [];
    if (key !== undefined) return metadata?.[kind as "labels" | "annotations"]?.[key] ?? "";
    if (path === "metadata.uid") return this.#uid;
    if (path === "metadata.name") return this.#name;
    return path === "status.podIP" ? (status?.podIP ?? this.#place.podIP) : "";
  }

  /** The names of a headless service's pods, which a cluster's name server would know. */
  #hostsOf(pod: V1Pod, everyPod: readonly V1Pod[]): string {
    const subdomain = pod.spec?.subdomain;
    const named = everyPod.filter(({ spec, status }) => spec?.subdomain === subdomain && status?.podIP);
    const lines = named.map(
      ({ spec, status }) => `${status?.podIP} ${spec?.hostname}.${subdomain} ${spec?.hostname}`,
    );
    return [
      "127.0.0.1 localhost",
      `${this.#place.podIP} ${pod.spec?.hostname ?? this.#name}`,
      ...lines,
      "",
    ].join("\n");
  }

  async #checkVolumes(pod: V1Pod): Promise<void> {
    for (const { name, persistentVolumeClaim } of pod.spec?.volumes ?? []) {
      if (!persistentVolumeClaim) continue;
      const claim = await this.#core.readNamespacedPersistentVolumeClaim({
        name: persistentVolumeClaim.claimName,
        namespace: this.#namespace,
      });
      const volume = await this.#core.readPersistentVolume({ name: claim.spec?.volumeName ?? "" });
      const mounted = pod.spec?.containers[0]?.volumeMounts?.find((each) => each.name === name)?.mountPath;
      // Files are the machine's: a volume is where it is.
      if (volume.spec?.hostPath?.path !== mounted)
        throw new WaitingError(
          "CreateContainerError",
          `the test agent mounts ${volume.spec?.hostPath?.path} there only`,
        );
    }
  }

  async #start(pod: V1Pod, everyPod: readonly V1Pod[]): Promise<void> {
    const [container] = pod.spec?.containers ?? [];
    if (!IMAGES.test(container?.image ?? ""))
      throw new WaitingError("ErrImagePull", `the test agent has no image ${container?.image}`);
    await this.#checkVolumes(pod);
    const environment = await this.#environmentOf(pod);
    const folder = join(this.#place.directory, "pods", this.#uid);
    mkdirSync(folder, { recursive: true });
    const hosts = join(folder, "hosts");
    writeFileSync(hosts, this.#hostsOf(pod, everyPod));
    const log = openSync(join(folder, "log"), "a");
    const hostname = pod.spec?.hostname ?? this.#name;
    const network = `nsenter --net=/proc/self/fd/${NETWORK_FILE} ip link`;
    const port = `pod${this.#uid.replaceAll("-", "").slice(0, 12)}`;
    const inside =
      `PATH=$PATH:/usr/sbin:/sbin; ${network} add dev ${port} type veth peer name eth0 netns $$; ` +
      `${network} set dev ${port} mtu ${MTU_BYTES} master pods up; exec ${NETWORK_FILE}<&-; ` +
      `ip link set dev lo up; ip link set dev eth0 mtu ${MTU_BYTES} up; ` +
      `ip address add ${this.#place.podIP}/16 dev eth0; ` +
      `hostname ${quote(hostname)}; mount -t tmpfs -o mode=1777 tmpfs /dev/shm; ` +
      `mount --bind ${quote(hosts)} /etc/hosts; exec "$@"`;
    this.#startedAt = new Date();
    this.#child = spawn(
      "unshare",
      [
        ...[
          "--pid",
          "--fork",
          "--kill-child",
          "--mount",
          "--mount-proc",
          "--net",
          "--uts",
          "--propagation",
          "private",
        ],
        ...["sh", "-euc", inside, "sh", ...(container?.command ?? []), ...(container?.args ?? [])],
      ],
      { stdio: ["ignore", log, log, NETWORK_FILE], env: environment, cwd: "/" },
    );
    closeSync(log);
    this.#child.once("close", (code, signal) => {
      this.#ended = { exitCode: code ?? (signal === null ? 1 : 137), finishedAt: new Date() };
    });
    this.#child.once("error", (error) => {
      console.error(`${this.#name}: ${error.message}`);
      this.#ended = { exitCode: 127, finishedAt: new Date() };
    });
  }
}
