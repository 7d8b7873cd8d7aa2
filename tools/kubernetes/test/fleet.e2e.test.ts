import { fork, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { LaunchOutcome } from "@internevo/launcher";
import {
  jobSetName,
  readKubernetesRecord,
  type JobSetStatus,
  type KubernetesSettings,
  type Pod,
  type Workload,
} from "@internevo/launcher/kubernetes";
import { eventually } from "@internevo/test-kit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Measured, Order, Report } from "../src/fleet-launches.ts";
import { BLOCK, fleetQueue, GPU, makeFleet, nodesOfFleet, RACK, type Fleet } from "../src/fleet.ts";
import { KubernetesStand } from "../src/stand.ts";

const FLEET: Fleet = {
  blocks: 10,
  racksPerBlock: 10,
  nodesPerRack: 20,
  gpusPerNode: 8,
  cpusPerNode: 64,
  memoryPerNode: "512Gi",
};
const NODES = nodesOfFleet(FLEET);
const LAUNCHES = 40;
const NODES_EACH = NODES.length / LAUNCHES;
const QUEUE = "fleet";
const MIB = 2 ** 20;
const LAUNCHER = join(import.meta.dirname, "../src/fleet-launches.ts");

/** Launches of a process that can be killed. */
class Supervisor {
  readonly said = new Map<string, string[]>();
  readonly outcomes = new Map<string, LaunchOutcome>();
  readonly #child: ChildProcess = fork(LAUNCHER, { execArgv: ["--expose-gc"] });
  readonly #gone = new Promise<void>((resolve) => this.#child.once("exit", () => resolve()));
  #measured: ((measured: Measured) => void) | undefined;
  #failure = "";

  constructor() {
    this.#child.on("message", (report: Report) => {
      if (report.kind === "said")
        this.said.set(report.name, [...(this.said.get(report.name) ?? []), report.message]);
      else if (report.kind === "ended") this.outcomes.set(report.name, report.outcome);
      else if (report.kind === "measured") this.#measured?.(report.measured);
      else this.#failure = `${report.name}: ${report.message}`;
    });
  }

  order(order: Order): void {
    this.#child.send(order);
  }

  /** What a launch said last. */
  last(name: string): string {
    if (this.#failure !== "") throw new Error(this.#failure);
    const outcome = this.outcomes.get(name);
    if (outcome?.status === "failed") throw new Error(`${name}: ${outcome.failure.message}`);
    return this.said.get(name)?.at(-1) ?? "";
  }

  measure(): Promise<Measured> {
    return new Promise((resolve) => {
      this.#measured = resolve;
      this.order({ kind: "measure" });
    });
  }

  async kill(): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#gone;
  }
}

const begin = performance.now();
const print = (what: string, since = begin): void =>
  console.log(`${what}: ${((performance.now() - since) / 1000).toFixed(0)} s`);
const printMeasured = (what: string, { heapBytes, residentBytes, cpuSeconds, requests }: Measured): void =>
  console.log(
    `${what}: heap ${(heapBytes / MIB).toFixed(0)} MiB, resident ${(residentBytes / MIB).toFixed(0)} MiB, ` +
      `processors ${cpuSeconds.toFixed(0)} s, requests ${JSON.stringify(requests)}`,
  );
const sum = (numbers: readonly number[]): number => numbers.reduce((total, each) => total + each, 0);

describe("many jobs on a fleet", () => {
  let stand: KubernetesStand;
  let supervisor: Supervisor;
  let directory = "";
  let uids: Readonly<Record<string, string>>;
  beforeAll(async () => {
    stand = await KubernetesStand.start({ nodes: 0, kwok: true });
    print("The control plane is up after");
    const since = performance.now();
    await makeFleet(stand, FLEET);
    print(`${NODES.length} nodes are made and ready after`, since);
    await stand.apply(fleetQueue(QUEUE, FLEET));
    directory = mkdtempSync(join(tmpdir(), "internevo-kubernetes-fleet-"));
    const settings: KubernetesSettings = {
      ...stand.settings,
      queue: QUEUE,
      gpuResource: GPU,
      memoryPerNodeBytes: 256 * 2 ** 30,
    };
    const clusters = {
      required: { kubernetes: { ...settings, requiredTopology: BLOCK } },
      preferred: { kubernetes: { ...settings, preferredTopology: RACK } },
    };
    writeFileSync(join(directory, "clusters.json"), JSON.stringify({ clusters }));
    writeFileSync(join(directory, "program"), "#!/bin/bash\n", { mode: 0o755 });
    supervisor = new Supervisor();
  }, 1_800_000);
  afterAll(async () => {
    await supervisor?.kill();
    await stand?.stop();
    if (directory !== "") rmSync(directory, { recursive: true, force: true });
  });

  const names = Array.from({ length: LAUNCHES }, (_, index) => `job-${index + 1}`);
  const LATE = "late";
  const runDirectory = (name: string): string => join(directory, name);
  const nameOfJobSet = (name: string): string =>
    jobSetName(readKubernetesRecord(runDirectory(name))?.marker ?? "none");
  const launch = (name: string, index: number): void =>
    supervisor.order({
      kind: "launch",
      name,
      cluster: index % 2 === 0 ? "required" : "preferred",
      clustersFile: join(directory, "clusters.json"),
      nodes: NODES_EACH,
      gpusPerNode: FLEET.gpusPerNode,
      program: join(directory, "program"),
      runDirectory: runDirectory(name),
    });
  const launchAll = (): void => names.forEach(launch);
  const jobSets = () => stand.list<JobSetStatus>("/apis/jobset.x-k8s.io/v1alpha2", "jobsets");
  const pods = () => stand.list<Pod>("/api/v1", "pods");
  const workloads = () => stand.list<Workload>("/apis/kueue.x-k8s.io/v1beta2", "workloads");
  const isAdmitted = ({ status }: Workload): boolean =>
    status?.conditions?.some(({ type, status: is }) => type === "Admitted" && is === "True") === true;
  const uidsNow = async (): Promise<Record<string, string>> =>
    Object.fromEntries((await jobSets()).map(({ metadata }) => [metadata.name, metadata.uid]));
  const runs = (name: string): boolean => / runs on /.test(supervisor.last(name));
  const untilRuns = (every: readonly string[], seconds: number): Promise<unknown> =>
    eventually(
      `${every.length} launches run`,
      () => every.every(runs),
      seconds,
      () =>
        every
          .filter((name) => !runs(name))
          .map((name) => `${name}: ${supervisor.last(name)}`)
          .join("\n") + stand.logs(),
    );
  /** The places of a launch's pods, by the names of their nodes. */
  const placesOf = (every: readonly Pod[], name: string) =>
    every
      .filter(({ metadata }) => metadata.name.startsWith(`${nameOfJobSet(name)}-`))
      .map(({ spec }) => NODES.find((node) => node.name === spec?.nodeName));

  it("runs them on all nodes, each in a part of the network as its settings ask", async () => {
    const since = performance.now();
    launchAll();
    await eventually(
      "Kueue has admitted all",
      async () => {
        await sleep(500);
        return (await workloads()).filter(isAdmitted).length === LAUNCHES;
      },
      600,
      () => stand.logs(),
    );
    print(`${LAUNCHES} JobSets are admitted after`, since);
    await untilRuns(names, 900);
    print(`${NODES.length} pods run, as the launches say, after`, since);
    const every = await pods();
    expect(every).toHaveLength(NODES.length);
    expect(every.filter(({ status }) => status?.phase !== "Running")).toEqual([]);
    expect(new Set(every.map(({ spec }) => spec?.nodeName)).size).toBe(NODES.length);
    for (const name of names) {
      const places = placesOf(every, name);
      expect(places, name).toHaveLength(NODES_EACH);
      expect(new Set(places.map((place) => place?.block)).size, `blocks of ${name}`).toBe(1);
    }
    console.log(
      `Racks of each launch: ${names.map((name) => new Set(placesOf(every, name).map((place) => place?.rack)).size).join(" ")}`,
    );
    uids = await uidsNow();
    expect(Object.keys(uids).sort()).toEqual(names.map(nameOfJobSet).sort());
  }, 1_800_000);

  it("says why one more is held back", async () => {
    launch(LATE, 0);
    await eventually(
      "Kueue holds it back",
      () => / waits: in Kueue's queue fleet: what its queue may use is in use /.test(supervisor.last(LATE)),
      120,
      () => (supervisor.said.get(LATE) ?? []).join("\n"),
    );
    console.log(supervisor.last(LATE));
    expect(await pods()).toHaveLength(NODES.length);
    uids = await uidsNow();
  }, 600_000);

  it("needs little of the machine that follows them", async () => {
    const before = await supervisor.measure();
    printMeasured("Since the first launch", before);
    await sleep(60_000);
    const after = await supervisor.measure();
    printMeasured("A minute later, in which nothing happened", after);
    expect(after.heapBytes).toBeLessThan(256 * MIB);
    // A busy API server ends watches that it cannot serve in time, and they begin again where they ended.
    expect(sum(Object.values(before.requests))).toBeLessThan(60 * LAUNCHES);
    expect(before.requests["list nodes"]).toBeLessThan(5);
    // Watches begin again each minute.
    expect(sum(Object.values(after.requests)) - sum(Object.values(before.requests))).toBeLessThan(
      10 * LAUNCHES,
    );
    expect(after.cpuSeconds - before.cpuSeconds).toBeLessThan(20);
  }, 600_000);

  it("launches nothing twice when their supervisor is killed and another one takes over", async () => {
    await supervisor.kill();
    supervisor = new Supervisor();
    const since = performance.now();
    launchAll();
    launch(LATE, 0);
    await untilRuns(names, 300);
    await eventually("the last one waits again", () => / waits: /.test(supervisor.last(LATE)), 120);
    print(`Another supervisor has found all again after`, since);
    expect(await uidsNow()).toEqual(uids);
    expect(await pods()).toHaveLength(NODES.length);
    const measured = await supervisor.measure();
    printMeasured("The other supervisor", measured);
    expect(measured.requests["PATCH jobsets"] ?? 0).toBe(0);
  }, 600_000);

  it("gives the place of one that is cancelled to the one that waits", async () => {
    const [cancelled = ""] = names;
    const name = nameOfJobSet(cancelled);
    const freed = placesOf(await pods(), cancelled).map((place) => place?.name);
    const since = performance.now();
    supervisor.order({ kind: "cancel", name: cancelled });
    await eventually(
      "it has ended",
      () => supervisor.outcomes.has(cancelled),
      180,
      () => stand.logs(),
    );
    print("It is cancelled, and its pods are gone, after", since);
    expect(supervisor.outcomes.get(cancelled)).toMatchObject({ status: "stopped" });
    expect(Object.keys(await uidsNow())).not.toContain(name);
    await untilRuns([LATE], 300);
    print("The one that waited runs after", since);
    const every = await pods();
    expect(every.filter(({ metadata }) => metadata.name.startsWith(name))).toEqual([]);
    expect(
      placesOf(every, LATE)
        .map((place) => place?.name)
        .sort(),
    ).toEqual([...freed].sort());
    expect(new Set(every.map(({ spec }) => spec?.nodeName)).size).toBe(NODES.length);
  }, 900_000);
});
