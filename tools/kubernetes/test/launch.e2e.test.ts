import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { knownClusters, launchRanks, type LaunchOptions, type NativeProgram } from "@internevo/launcher";
import {
  jobSetName,
  POD_FILES,
  readKubernetesRecord,
  type JobSetStatus,
  type KubernetesSettings,
  type Pod,
} from "@internevo/launcher/kubernetes";
import { eventually } from "@internevo/test-kit";
import { Type, type TSchema } from "typebox";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { KubernetesStand } from "../src/stand.ts";

type Program = NativeProgram<TSchema, TSchema>;
/** `kubernetes`: over the settings of the test's cluster. */
type Options = Partial<LaunchOptions<Program>> & { readonly kubernetes?: Partial<KubernetesSettings> };

const RANK = "${OMPI_COMM_WORLD_RANK:?}";
const HELLO = `printf '{"event":"hello","rank":%s,"host":"%s","text":"%s"}\\n' ${RANK} "$(hostname)" "\${WORD:-}"`;
const DONE = `printf '{"event":"done"}\\n'`;
/** Until the test writes the file. */
const WAIT = "until [ -e $(dirname $0)/go ]; do sleep 0.05; done";

interface Said {
  readonly event: string;
  readonly rank: number;
  readonly host: string;
  readonly text: string;
}

describe("a launch on Kubernetes", () => {
  let stand: KubernetesStand;
  let directory: string;
  beforeAll(async () => {
    stand = await KubernetesStand.start();
  }, 600_000);
  afterAll(() => stand?.stop());
  beforeEach(() => void (directory = mkdtempSync(join(tmpdir(), "internevo-kubernetes-launch-"))));
  afterEach(async ({ task }) => {
    if (task.result?.state === "fail") console.error(stand.logs());
    await eventually("no pod is left", async () => (await pods()).length === 0, 60);
    expect(await jobSets()).toEqual([]);
    rmSync(directory, { recursive: true, force: true });
  });

  const jobSets = () => stand.list<JobSetStatus>("/apis/jobset.x-k8s.io/v1alpha2", "jobsets");
  const pods = () => stand.list<Pod>("/api/v1", "pods");
  const runDirectory = (): string => join(directory, "run");
  const program = (body: string): Program => {
    const path = join(directory, "program");
    if (!existsSync(path)) writeFileSync(path, `#!/bin/bash\n${body}\n`, { mode: 0o755 });
    return { name: "program", path, configSchema: Type.Any(), eventSchema: Type.Any() };
  };
  async function launch(body: string, { kubernetes, ...over }: Options = {}) {
    const events: Said[] = [];
    const repeated: boolean[] = [];
    const queue: string[] = [];
    const outcome = await launchRanks<Program>({
      program: program(body),
      config: { any: 1 },
      ranks: 4,
      ranksPerNode: 2,
      threadsPerRank: 1,
      launcher: "kubernetes",
      settings: { ...stand.settings, ...kubernetes },
      runDirectory: runDirectory(),
      ...over,
      onQueue: (message, waits) => {
        queue.push(message);
        over.onQueue?.(message, waits);
      },
      onEvent: (event, isRepeated) => {
        events.push(event as Said);
        repeated.push(isRepeated);
        over.onEvent?.(event, isRepeated);
      },
    });
    return { outcome, events, repeated, queue };
  }
  /** Does something when so many events have come. */
  const atEvent =
    (count: number, then: () => void): (() => void) =>
    () =>
      void (--count === 0 && then());

  it("fills pods by their index, with variables and members of secrets, and has no token of an account", async () => {
    await stand.core.createNamespacedSecret({
      namespace: "default",
      body: { metadata: { name: "tokens" }, stringData: { TOKEN: "from-a-secret" } },
    });
    const { outcome, events } = await launch(
      `WORD="$WORD $TOKEN"; ${HELLO}; [ ${RANK} = 0 ] && ${DONE}; exit 0`,
      { kubernetes: { environment: { WORD: "it's" }, secrets: ["tokens"] } },
    );
    expect(outcome).toMatchObject({ status: "completed", exitCode: 0 });
    const said = events.filter(({ event }) => event === "hello").sort((a, b) => a.rank - b.rank);
    expect(said.map(({ host }) => host.replace(/^internevo-[0-9a-f]{16}-/, ""))).toEqual([
      "ranks-0-0",
      "ranks-0-0",
      "ranks-0-1",
      "ranks-0-1",
    ]);
    expect(new Set(said.map(({ text }) => text))).toEqual(new Set(["it's from-a-secret"]));
    expect(readKubernetesRecord(runDirectory())).toBeUndefined();
  });

  it("goes on where its supervisor left it: the same JobSet, and events from the beginning", async () => {
    const detach = new AbortController();
    const body = `${HELLO}; ${WAIT}; [ ${RANK} = 0 ] && ${DONE}; exit 0`;
    const first = await launch(body, {
      detachSignal: detach.signal,
      onEvent: atEvent(4, () => detach.abort()),
    });
    expect(first.outcome).toMatchObject({ status: "stopped", detached: true });
    const record = readKubernetesRecord(runDirectory());
    const before = await jobSets();
    expect(before.map(({ metadata }) => metadata)).toMatchObject([
      { name: jobSetName(record?.marker ?? ""), uid: record?.uid },
    ]);
    // A supervisor that was killed before it heard of the JobSet's identity applies the same object again.
    const path = join(runDirectory(), "kubernetes.json");
    writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), uid: null }));
    const second = launch(body);
    await eventually(
      "the JobSet is found again",
      () => readKubernetesRecord(runDirectory())?.uid === record?.uid,
      30,
    );
    writeFileSync(join(directory, "go"), "");
    const { outcome, repeated } = await second;
    expect(outcome).toMatchObject({ status: "completed" });
    expect(repeated).toEqual([true, true, true, true, false]);
  });

  it("ends in order when it is asked, with the time that a checkpoint needs", async () => {
    const stop = new AbortController();
    const { outcome } = await launch(
      `stop() { sleep 1; ${DONE}; exit 75; }; trap stop USR1; ${HELLO}; while :; do sleep 0.1; done`,
      { signal: stop.signal, onEvent: atEvent(4, () => stop.abort()) },
    );
    expect(outcome).toMatchObject({ status: "stopped", graceful: true, exitCode: 75 });
  });

  it("is killed when it does not end in time", async () => {
    const stop = new AbortController();
    const { outcome } = await launch(`trap '' USR1 TERM; ${HELLO}; while :; do sleep 0.1; done`, {
      signal: stop.signal,
      graceSeconds: 1,
      onEvent: atEvent(4, () => stop.abort()),
    });
    expect(outcome).toMatchObject({ status: "stopped", graceful: false });
  });

  it.each<[what: string, body: string, words: RegExp]>([
    [
      "its ranks are killed",
      `trap '' USR1; ${HELLO}; while :; do sleep 0.1; done`,
      /^somebody has deleted internevo-/,
    ],
    [
      "its ranks end in order",
      `stop() { sleep 1; ${DONE}; exit 75; }; trap stop USR1; ${HELLO}; while :; do sleep 0.1; done`,
      /in order, with a checkpoint: somebody has deleted it/,
    ],
  ])("is not written again when somebody deletes its JobSet and %s", async (_, body, words) => {
    const { outcome } = await launch(body, {
      onEvent: atEvent(4, () => {
        const name = jobSetName(readKubernetesRecord(runDirectory())?.marker ?? "");
        const path = `/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/${name}`;
        void stand.api.ask({ method: "DELETE", path });
      }),
      kubernetes: { saveSeconds: 5 },
    });
    expect(outcome).toMatchObject({
      status: "failed",
      failure: { code: "cancelled", message: expect.stringMatching(words) },
    });
  });

  it.each<[what: string, Partial<KubernetesSettings>, RegExp]>([
    [
      "an image that is nowhere",
      { image: "registry.example/none:1" },
      /2 of 2 pods: its image cannot be pulled/,
    ],
    ["a secret that is missing", { secrets: ["nowhere"] }, /a secret that it names is not there/],
    ["a queue that is missing", { queue: "nowhere" }, /in Kueue's queue nowhere: .*nowhere doesn't exist/],
    [
      "a part of a topology that its queue has not",
      { requiredTopology: "internevo.dev/none" },
      /in Kueue's queue ranks: its queue knows no such part of a topology/,
    ],
    ["a namespace that is missing", { namespace: "nowhere" }, /^Kubernetes refuses the job: /],
  ])("fails in words with a remedy for %s", async (_, kubernetes, words) => {
    const { outcome } = await launch(HELLO, { kubernetes: { queueLimitSeconds: 40, ...kubernetes } });
    expect(outcome).toMatchObject({
      status: "failed",
      failure: { code: "not-started", message: expect.stringMatching(words), remedy: expect.any(String) },
    });
    expect(existsSync(join(runDirectory(), POD_FILES.claim))).toBe(false);
  });

  it("tells what the cluster has", async () => {
    const clustersFile = join(directory, "clusters.json");
    writeFileSync(clustersFile, JSON.stringify({ clusters: { site: { kubernetes: stand.settings } } }));
    const known = await knownClusters({
      clustersFile,
      hasProgram: () => true,
      maximumLocalRanks: 1,
      localMemoryBytes: 1,
    });
    const site = known.find(({ name }) => name === "site");
    expect(await site?.look(new AbortController().signal)).toMatchObject({
      capacity: { nodes: 2 },
      health: { state: "ready" },
    });
  });
});
