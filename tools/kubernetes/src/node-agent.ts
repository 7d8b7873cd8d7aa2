// A node of the test cluster, and no kubelet: it runs the pods that are bound to it as processes of this machine, and
// tells the API server what becomes of them. Each pod has a process namespace, a network of its own at the bridge of its
// node, a host name, shared memory and a list of hosts. Files are the machine's.
// usage: node-agent.ts NAME NUMBER ADDRESS CPUS DIRECTORY 3< NETWORK-NAMESPACE-OF-THE-NODE
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { CoordinationV1Api, CoreV1Api, KubeConfig, V1MicroTime, type V1Pod } from "@kubernetes/client-node";
import { MTU_BYTES, SUBNET_PREFIX } from "@internevo/testbed/testbed";
import { NETWORK_FILE, PodProcess } from "./pod-process.ts";

const [name = "", number = "1", address = "", cpus = "1", directory = ""] = process.argv.slice(2);
const config = new KubeConfig();
config.loadFromFile(join(directory, "kubeconfig"));
const core = config.makeApiClient(CoreV1Api);
const leases = config.makeApiClient(CoordinationV1Api);

/** Between two looks at the pods of the node. */
const LOOK_MILLISECONDS = 300;
const HEARTBEAT_MILLISECONDS = 3000;

const isStatus = (error: unknown, ...codes: readonly number[]): boolean =>
  codes.includes((error as { code?: number }).code ?? 0);

const status = () => ({
  capacity: { cpu: cpus, memory: "64Gi", pods: "110", "ephemeral-storage": "64Gi" },
  allocatable: { cpu: cpus, memory: "64Gi", pods: "110", "ephemeral-storage": "64Gi" },
  addresses: [
    { type: "InternalIP", address },
    { type: "Hostname", address: name },
  ],
  nodeInfo: {
    kubeletVersion: "internevo-test-agent",
    operatingSystem: "linux",
    architecture: "amd64",
  } as never,
  conditions: ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"].map((type) => ({
    type,
    status: type === "Ready" ? "True" : "False",
    reason: "TestAgent",
    message: "a node of the test tool",
    lastHeartbeatTime: new Date(),
    lastTransitionTime: new Date(),
  })),
});

async function register(): Promise<void> {
  const labels = {
    "kubernetes.io/hostname": name,
    "kubernetes.io/os": "linux",
    "internevo.dev/test": "agent",
  };
  await core.createNode({ body: { metadata: { name, labels } } }).catch((error: unknown) => {
    if (!isStatus(error, 409)) throw error;
  });
}

async function heartbeat(): Promise<void> {
  const node = await core.readNode({ name });
  await core.replaceNodeStatus({ name, body: { ...node, status: { ...node.status, ...status() } } });
  const namespace = "kube-node-lease";
  const spec = { holderIdentity: name, leaseDurationSeconds: 15, renewTime: new V1MicroTime() };
  try {
    const lease = await leases.readNamespacedLease({ name, namespace });
    await leases.replaceNamespacedLease({ name, namespace, body: { ...lease, spec } });
  } catch (error) {
    if (!isStatus(error, 404)) throw error;
    await leases.createNamespacedLease({ namespace, body: { metadata: { name }, spec } });
  }
}

/** The node's link becomes a port of a bridge, at which its pods get ports too. */
function makeBridge(): void {
  const script = `ip link show dev pods > /dev/null 2>&1 && exit
    ip link add dev pods type bridge
    ip link set dev pods mtu ${MTU_BYTES} up
    ip address del ${address}/16 dev node0
    ip address add ${address}/16 dev pods
    ip link set dev node0 master pods`;
  execFileSync("nsenter", ["--net=/proc/self/fd/3", "sh", "-euc", script], {
    stdio: ["ignore", "inherit", "inherit", NETWORK_FILE],
    env: { PATH: `${process.env["PATH"] ?? ""}:/usr/sbin:/sbin` },
  });
}

const pods = new Map<string, PodProcess>();
let made = 0;
/** A node has at most so many pods at once. */
const ADDRESSES = 250;

/** Of the pod that is made next. */
function nextAddress(): string {
  made += 1;
  return `${SUBNET_PREFIX}.${100 + Number(number)}.${1 + (made % ADDRESSES)}`;
}

/** What there is to do for a pod that the API server tells of. */
async function tend(pod: V1Pod, everyPod: readonly V1Pod[]): Promise<void> {
  const uid = pod.metadata?.uid ?? "";
  let process = pods.get(uid);
  if (!process) {
    process = new PodProcess(core, pod, {
      node: name,
      hostIP: address,
      // One that an agent before this one gave stays.
      podIP: pod.status?.podIP ?? nextAddress(),
      directory,
    });
    pods.set(uid, process);
  }
  await process.tend(pod, everyPod);
}

async function look(): Promise<void> {
  const everyPod = (await core.listPodForAllNamespaces()).items;
  const ours = everyPod.filter(({ spec }) => spec?.nodeName === name);
  for (const pod of ours)
    await tend(pod, everyPod).catch((error: Error) =>
      console.error(`${pod.metadata?.name}: ${error.message}`),
    );
  const known = new Set(ours.map(({ metadata }) => metadata?.uid));
  // Deleted without grace: nothing of it may go on.
  for (const [uid, process] of pods) {
    if (known.has(uid)) continue;
    process.kill();
    pods.delete(uid);
  }
}

/** Goes on whatever the API server answers. */
async function forEver(what: string, milliseconds: number, work: () => Promise<void>): Promise<void> {
  for (;;) {
    await work().catch((error: Error) => console.error(`${what}: ${error.message.slice(0, 300)}`));
    await sleep(milliseconds);
  }
}

makeBridge();
console.error(`node ${name} of the test cluster: its pods are processes of this machine`);
for (let isThere = false; !isThere; await sleep(500))
  isThere = await register().then(
    () => true,
    (error: Error) => (console.error(error.message), false),
  );
void forEver("heartbeat", HEARTBEAT_MILLISECONDS, heartbeat);
await forEver("pods", LOOK_MILLISECONDS, look);
