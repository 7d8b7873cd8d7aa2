// A node of the test cluster, and no kubelet: it runs the pods that are bound to it as processes of this machine, and
// tells the API server what becomes of them. Each pod has a process namespace, a host name, shared memory and a list
// of hosts of its own. Network and files are the machine's.
// usage: node-agent.ts NAME NUMBER CPUS DIRECTORY
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { CoordinationV1Api, CoreV1Api, KubeConfig, V1MicroTime, type V1Pod } from "@kubernetes/client-node";
import { PodProcess } from "./pod-process.ts";

const [name = "", number = "1", cpus = "1", directory = ""] = process.argv.slice(2);
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
    { type: "InternalIP", address: `127.0.${number}.1` },
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

const pods = new Map<string, PodProcess>();
let made = 1;

/** What there is to do for a pod that the API server tells of. */
async function tend(pod: V1Pod, everyPod: readonly V1Pod[]): Promise<void> {
  const uid = pod.metadata?.uid ?? "";
  let process = pods.get(uid);
  if (!process) {
    made += 1;
    process = new PodProcess(core, pod, {
      node: name,
      hostIP: `127.0.${number}.1`,
      // One that an agent before this one gave stays.
      podIP: pod.status?.podIP ?? `127.0.${number}.${made}`,
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

console.error(`node ${name} of the test cluster: its pods are processes of this machine`);
for (let isThere = false; !isThere; await sleep(500))
  isThere = await register().then(
    () => true,
    (error: Error) => (console.error(error.message), false),
  );
void forEver("heartbeat", HEARTBEAT_MILLISECONDS, heartbeat);
await forEver("pods", LOOK_MILLISECONDS, look);
