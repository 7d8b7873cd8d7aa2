import { describe, expect, it } from "vitest";
import { allRun, evictionWords, podEnd, waitingReason, type Seen } from "./reasons.ts";
import type { Condition, Pod, Workload } from "./status.ts";

let made = 0;
const pod = (status: Pod["status"] = {}, over: Partial<Pod> = {}): Pod => ({
  metadata: { name: `p-${(made += 1)}`, uid: `${made}` },
  status,
  ...over,
});
const workload = (conditions: readonly Condition[], spec: Workload["spec"] = {}): Workload => ({
  metadata: { name: "w", uid: "w" },
  spec,
  status: { conditions },
});
const reserved = (reason: string, message = ""): Workload =>
  workload([{ type: "QuotaReserved", status: "False", reason, message }]);
const admitted = workload([
  { type: "QuotaReserved", status: "True" },
  { type: "Admitted", status: "True" },
]);
const unschedulable = (message: string): Pod =>
  pod({
    phase: "Pending",
    conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message }],
  });
const waitingFor = (reason: string, message?: string): Pod =>
  pod({
    phase: "Pending",
    conditions: [{ type: "PodScheduled", status: "True" }],
    containerStatuses: [{ state: { waiting: { reason, ...(message === undefined ? {} : { message }) } } }],
  });
const running = (): Pod => pod({ phase: "Running" });
const jobSet = (spec = {}, status = {}): Seen["jobSet"] => ({
  metadata: { name: "j", uid: "j" },
  spec,
  status,
});
const seen = (over: Partial<Seen>): Seen => ({ jobSet: jobSet(), workload: undefined, pods: [], ...over });

describe("why a job waits", () => {
  it.each<
    [what: string, Partial<Seen>, queue: string | undefined, words: string | undefined, hasRemedy?: true]
  >([
    ["nothing has been made", {}, undefined, "its pods have not been made yet"],
    ["Kueue is not there yet", { jobSet: jobSet({ suspend: true }) }, "q", "Kueue has not taken it up yet"],
    [
      "suspended by hand",
      { jobSet: jobSet({ suspend: true }) },
      undefined,
      "somebody has suspended its JobSet",
    ],
    [
      "quota in use",
      {
        workload: reserved("WaitingForQuota", "insufficient unused quota for cpu in flavor a, 2 more needed"),
      },
      "q",
      "in Kueue's queue q: what its queue may use is in use " +
        "(insufficient unused quota for cpu in flavor a, 2 more needed)",
    ],
    [
      "more than the quota",
      { workload: reserved("ExceedsMaxQuota") },
      "q",
      "in Kueue's queue q: it asks for more than its queue may ever use",
      true,
    ],
    [
      "no such queue",
      { workload: reserved("Misconfigured", "LocalQueue q doesn't exist") },
      "q",
      "in Kueue's queue q: its queue is not there, or not set up (LocalQueue q doesn't exist)",
      true,
    ],
    [
      "a general reason, and a message that tells more",
      { workload: reserved("Inadmissible", "LocalQueue q doesn't exist") },
      "q",
      "in Kueue's queue q: its queue is not there, or not set up (LocalQueue q doesn't exist)",
      true,
    ],
    [
      "a general reason of two flavors, one of which may have room later",
      {
        workload: reserved(
          "Pending",
          "insufficient quota for cpu in flavor a, request (9) > maximum capacity (8), " +
            "insufficient unused quota for cpu in flavor b, 1 more needed",
        ),
      },
      "q",
      "in Kueue's queue q: what its queue may use is in use (insufficient quota for cpu in flavor a, " +
        "request (9) > maximum capacity (8), insufficient unused quota for cpu in flavor b, 1 more needed)",
    ],
    [
      "a queue without a topology",
      { workload: reserved("Pending", 'Flavor "nodes" does not support TopologyAwareScheduling') },
      "q",
      "in Kueue's queue q: its queue knows no such part of a topology " +
        '(Flavor "nodes" does not support TopologyAwareScheduling)',
      true,
    ],
    [
      "a part of a topology that its queue has not",
      { workload: reserved("Pending", "no requested topology level: rack") },
      "q",
      "in Kueue's queue q: its queue knows no such part of a topology (no requested topology level: rack)",
      true,
    ],
    [
      "two pods that Kueue has placed on one node",
      {
        pods: [
          {
            ...unschedulable("1 node(s) didn't match pod anti-affinity rules"),
            spec: { nodeSelector: { "kubernetes.io/hostname": "n1" } },
          },
          running(),
        ],
      },
      "q",
      "1 of 2 pods: its topology puts several of its pods on one node (1 node(s) didn't match pod anti-affinity rules)",
      true,
    ],
    [
      "a pod that finds the other one on the node that is free",
      { pods: [unschedulable("1 node(s) didn't match pod anti-affinity rules"), running()] },
      "q",
      "1 of 2 pods: no node has room for it (1 node(s) didn't match pod anti-affinity rules)",
    ],
    [
      "a reason that is not known here",
      { workload: reserved("Moon", "the moon is full") },
      "q",
      "in Kueue's queue q: Moon (the moon is full)",
    ],
    [
      "a check before admission",
      {
        workload: workload([
          { type: "QuotaReserved", status: "True" },
          { type: "Admitted", status: "False", reason: "UnsatisfiedAdmissionChecks" },
        ]),
      },
      "q",
      "in Kueue's queue q: a check before its admission has not passed",
    ],
    [
      "deactivated",
      {
        workload: workload(
          [
            {
              type: "Evicted",
              status: "True",
              reason: "Deactivated",
              message: "exceeded the limit of requeuing",
            },
          ],
          { active: false },
        ),
      },
      "q",
      "in Kueue's queue q: Kueue has deactivated it (exceeded the limit of requeuing)",
      true,
    ],
    [
      "admitted, no room",
      {
        workload: admitted,
        pods: [running(), unschedulable("0/2 nodes are available: 2 Insufficient cpu.")],
      },
      "q",
      "1 of 2 pods: no node has room for it (0/2 nodes are available: 2 Insufficient cpu.)",
    ],
    [
      "an image that cannot be pulled goes before two pods without room",
      { pods: [waitingFor("ImagePullBackOff", "not found"), unschedulable("full"), unschedulable("full")] },
      undefined,
      "1 of 2 pods: its image cannot be pulled (not found)",
      true,
    ],
    [
      "a secret that is missing",
      { pods: [waitingFor("CreateContainerConfigError", 'secret "tokens" not found'), running()] },
      undefined,
      '1 of 2 pods: a secret that it names is not there (secret "tokens" not found)',
      true,
    ],
    [
      "containers that are being made",
      { pods: [waitingFor("ContainerCreating"), waitingFor("ContainerCreating")] },
      undefined,
      "2 of 2 pods: its container is being made",
    ],
    [
      "a node that says nothing",
      { pods: [pod({ phase: "Pending" }, { spec: { nodeName: "n" } }), running()] },
      undefined,
      "1 of 2 pods: its node has not taken it up yet",
    ],
    ["all run", { pods: [running(), running()] }, undefined, undefined],
    [
      "it is over",
      { jobSet: jobSet({}, { terminalState: "Failed" }), pods: [unschedulable("full")] },
      undefined,
      undefined,
    ],
  ])("%s", (_, over, queue, words, hasRemedy) => {
    const reason = waitingReason(seen(over), { queue, nodes: 2 });
    expect(reason?.words).toBe(words);
    expect(reason?.remedy !== undefined).toBe(hasRemedy ?? false);
  });

  it("is nothing once all pods run or have run", () => {
    expect(allRun({ pods: [running(), pod({ phase: "Succeeded" })] }, 2)).toBe(true);
    expect(allRun({ pods: [running(), pod({ phase: "Pending" })] }, 2)).toBe(false);
  });
});

describe("how a pod ended", () => {
  const terminated = (reason: string, exitCode: number): Pod["status"] => ({
    phase: "Failed",
    containerStatuses: [{ state: { terminated: { reason, exitCode } } }],
  });
  it.each<[what: string, status: Pod["status"], words: RegExp | undefined, outOfMemory?: true]>([
    ["out of memory", terminated("OOMKilled", 137), /more memory than it may/, true],
    ["an exit code", terminated("Error", 3), /exit code 3/],
    [
      "a lost node",
      {
        phase: "Failed",
        conditions: [{ type: "DisruptionTarget", status: "True", reason: "DeletionByTaintManager" }],
      },
      /its node was lost, or tainted/,
    ],
    [
      "a drained node",
      { conditions: [{ type: "DisruptionTarget", status: "True", reason: "EvictionByEvictionAPI" }] },
      /drained/,
    ],
    [
      "devices",
      { phase: "Failed", reason: "UnexpectedAdmissionError", message: "no gpu" },
      /devices.*\(no gpu\)/,
    ],
    ["an unknown reason", { phase: "Failed", reason: "Moon" }, /: Moon$/],
    ["well", { phase: "Succeeded" }, undefined],
    ["not at all", { phase: "Running" }, undefined],
  ])("%s", (_, status, words, outOfMemory) => {
    const end = podEnd(pod(status, { spec: { nodeName: "n1" } }));
    if (words === undefined) return expect(end).toBeUndefined();
    expect(end?.words).toMatch(words);
    expect(end?.words).toMatch(/^pod p-\d+ on n1: /);
    expect(end?.outOfMemory).toBe(outOfMemory ?? false);
  });

  it("tells what Kueue did", () => {
    expect(evictionWords(undefined)).toBeUndefined();
    expect(evictionWords(admitted)).toBeUndefined();
    expect(
      evictionWords(
        workload([{ type: "Evicted", status: "True", reason: "Preempted", message: "to a workload of b" }]),
      ),
    ).toBe("Kueue took its place away: to a workload of b");
  });
});
