import { describe, expect, it } from "vitest";
import { outcomeOf, type Ended } from "./end.ts";
import { waitingReason } from "./reasons.ts";
import { LASTING_SECONDS, WaitWatch } from "./shortage.ts";
import { isLostPod, type Node, type Pod } from "./status.ts";

const pod = (status: Pod["status"]): Pod => ({
  metadata: { name: "p-0", uid: "1" },
  spec: { nodeName: "n1" },
  status: status ?? {},
});
const ended = (over: Partial<Ended>): Ended => ({
  jobSet: undefined,
  workload: undefined,
  pods: [],
  end: undefined,
  name: "internevo-a",
  isDeleted: false,
  cause: undefined,
  nodesOut: [],
  done: false,
  firstError: undefined,
  stderrTail: "",
  ...over,
});
const left = (exitCode: number | null, told = ""): Partial<Ended> => ({ end: { pod: "u", exitCode, told } });
const lost: Pod = pod({
  phase: "Failed",
  conditions: [{ type: "DisruptionTarget", status: "True", reason: "DeletionByTaintManager" }],
});

describe("the outcome of a launch", () => {
  it.each<readonly [string, Partial<Ended>, object]>([
    ["completed", { ...left(0), done: true }, { status: "completed" }],
    ["done, and mpirun stayed", { done: true }, { status: "completed" }],
    [
      "asked to stop, and did",
      { ...left(75, "TERM"), done: true, cause: { kind: "stop" } },
      { status: "stopped", graceful: true },
    ],
    ["killed when asked", { ...left(137), cause: { kind: "kill" } }, { status: "stopped", graceful: false }],
    [
      "Kueue took its place, in order",
      {
        ...left(75, "TERM"),
        done: true,
        workload: {
          metadata: { name: "w", uid: "w" },
          status: { conditions: [{ type: "Evicted", status: "True", message: "to another" }] },
        },
      },
      {
        status: "failed",
        failure: {
          code: "rank-lost",
          message: expect.stringMatching(/in order.*Kueue took its place away: to another/),
        },
      },
    ],
    [
      "started anew",
      left(null, "AGAIN"),
      { failure: { code: "rank-lost", message: expect.stringMatching(/anew/) } },
    ],
    [
      "too little memory",
      {
        pods: [
          pod({
            phase: "Failed",
            containerStatuses: [{ state: { terminated: { reason: "OOMKilled", exitCode: 137 } } }],
          }),
        ],
      },
      { failure: { code: "out-of-memory", remedy: expect.stringMatching(/memoryPerNodeBytes/) } },
    ],
    [
      "deleted by somebody",
      { isDeleted: true },
      { failure: { code: "cancelled", remedy: expect.any(String) } },
    ],
    [
      "deleted by somebody, and the ranks ended in order",
      { ...left(75, "TERM"), done: true, isDeleted: true },
      {
        failure: {
          code: "cancelled",
          message: expect.stringMatching(/in order, with a checkpoint: somebody has deleted it/),
          remedy: expect.any(String),
        },
      },
    ],
    [
      "its node was lost, and no word",
      { pods: [lost] },
      { failure: { code: "rank-lost", message: expect.stringMatching(/p-0 on n1/) } },
    ],
    [
      "no word at all",
      {},
      { failure: { code: "rank-lost", message: expect.stringMatching(/without a word/) } },
    ],
    [
      "a daemon was lost",
      { ...left(1), stderrTail: "ORTE has lost communication with a remote daemon." },
      { failure: { code: "rank-lost", message: expect.stringMatching(/a pod was lost/) } },
    ],
    [
      "a node is out while ranks cannot reach each other",
      {
        ...left(6),
        firstError: { event: "error", code: "communication_error", message: "rank 0 cannot reach rank 1" },
        nodesOut: ["n1 is not ready"],
      },
      {
        failure: {
          code: "rank-lost",
          message: expect.stringMatching(/^n1 is not ready; .*\(internevo-a\)$/),
        },
      },
    ],
    [
      "an error of its own",
      { ...left(4), firstError: { event: "error", code: "data_error", message: "no data" } },
      { failure: { code: "data-invalid" } },
    ],
  ])("%s", (_, over, outcome) => {
    expect(outcomeOf(ended(over))).toMatchObject(outcome);
  });
});

const node = (name: string, ready: boolean): Node => ({
  metadata: { name, uid: name, labels: { kind: "a" } },
  status: { conditions: [{ type: "Ready", status: ready ? "True" : "False" }] },
});

describe("a pod", () => {
  const running = pod({ phase: "Running" });
  const deleted: Pod = { ...running, metadata: { ...running.metadata, deletionTimestamp: "now" } };
  const cordoned: Node = { ...node("n1", true), spec: { unschedulable: true } };

  it.each<[what: string, each: Pod, nodes: readonly Node[], isLost: boolean]>([
    ["was taken away from a node that is not ready", deleted, [node("n1", false)], true],
    ["was taken away from a node that is gone", deleted, [node("n2", true)], true],
    ["runs on a node that may come back", running, [node("n1", false)], false],
    ["is taken away from a node that is drained, in order", deleted, [cordoned], false],
    ["is taken away, and nodes may not be looked at", deleted, [], false],
  ])("that %s", (_, each, nodes, isLost) => {
    expect(isLostPod(each, nodes)).toBe(isLost);
  });
});

describe("a job that waits", () => {
  const reason = { words: "no node has room for it" };

  it("is taken back with the number of nodes that are left", () => {
    const watch = new WaitWatch(
      { image: "i", nodeLossSeconds: 0, nodeSelector: { kind: "a" } },
      2,
      Date.now(),
    );
    const nodes = [
      node("a", true),
      node("b", false),
      { ...node("c", true), metadata: { name: "c", uid: "c" } },
    ];
    expect(watch.look({ reason, nodes, isAdmitted: true })).toMatchObject({
      nodesLeft: 1,
      failure: {
        code: "not-started",
        message: expect.stringMatching(/needs 2 nodes, and 1 can.*b is not ready/),
      },
    });
    expect(watch.look({ reason, nodes, isAdmitted: false })).toBeUndefined();
    expect(
      watch.look({ reason, nodes: [node("a", true), node("b", true)], isAdmitted: true }),
    ).toBeUndefined();
  });

  it("is taken back for want of nodes before Kueue admits it, where Kueue finds no place for it", () => {
    const nodes = [node("a", true), node("b", false)];
    const held = (message: string) =>
      waitingReason(
        {
          jobSet: undefined,
          workload: {
            metadata: { name: "w", uid: "w" },
            status: { conditions: [{ type: "QuotaReserved", status: "False", reason: "Pending", message }] },
          },
          pods: [],
        },
        { queue: "q", nodes: 2 },
      ) ?? { words: "it is not held" };
    const look = (message: string) =>
      new WaitWatch({ image: "i", nodeLossSeconds: 0 }, 2, Date.now()).look({
        reason: held(message),
        nodes,
        isAdmitted: false,
      });
    expect(
      look(`couldn't assign flavors to pod set ranks: topology "t" allows to fit only 1 out of 2 pod(s)`),
    ).toMatchObject({ nodesLeft: 1 });
    // Whoever has its place gives it back some day, and the node may be there by then.
    expect(
      look("couldn't assign flavors to pod set ranks: insufficient unused quota for cpu"),
    ).toBeUndefined();
  });

  it("names some of many nodes, and counts the others", () => {
    const nodes = Array.from({ length: 2000 }, (_, index) => node(`n${index}`, false));
    const words =
      new WaitWatch({ image: "i", nodeLossSeconds: 0 }, 2000, Date.now()).look({
        reason,
        nodes,
        isAdmitted: true,
      })?.failure.message ?? "";
    expect(words).toMatch(/: n0 is not ready, n1 is not ready, .*, n15 is not ready and 1984 more$/);
    const many = { nodesOut: nodes.map(({ metadata }) => `${metadata.name} is not ready`) };
    const outcome = outcomeOf(ended(many)) as { readonly failure?: { readonly message: string } };
    expect(outcome.failure?.message).toMatch(/n15 is not ready and 1984 more$/);
  });

  it("may wait for what passes, and not for ever where a limit is set", () => {
    const watch = new WaitWatch({ image: "i", queueLimitSeconds: 60 }, 2, Date.now());
    expect(watch.look({ reason, nodes: [], isAdmitted: true })).toBeUndefined();
    expect(
      watch.look({ reason: { ...reason, remedy: "mend it" }, nodes: [], isAdmitted: true }),
    ).toBeUndefined();
    const late = new WaitWatch({ image: "i", queueLimitSeconds: 60 }, 2, Date.now() - 61_000);
    expect(late.look({ reason, nodes: [], isAdmitted: true })?.failure).toMatchObject({
      code: "not-started",
      message: "Kubernetes did not start it within 60.00 s: no node has room for it",
    });
    expect(LASTING_SECONDS).toBeGreaterThan(10);
  });
});
