import { eventually } from "@internevo/test-kit";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, readlinkSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { NATIVE_PROTOCOL, type ProbeConfig, type ProbeEvent } from "@internevo/contracts";
import { launchTarget, launchRanks, probeIn, type LaunchOutcome, type Probe } from "@internevo/launcher";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { DEFAULT_SETTINGS, type Settings } from "./options.ts";
import { holderOf, kill, markedProcesses, pids, processesInside, startTicks } from "./processes.ts";
import {
  clustersFileOf,
  current,
  directoryOf,
  down,
  hostName,
  up,
  whyImpossible,
  type State,
} from "./testbed.ts";

const impossible = whyImpossible();
if (impossible !== undefined) console.warn(`The tests of the testbed are skipped: ${impossible}`);

const repository = join(import.meta.dirname, "..", "..", "..");
const probe = probeIn(process.env["INTERNEVO_NATIVE_DIRECTORY"] ?? join(repository, "native", "dist"));
/**
 * Names of this process alone, so that runs of these tests do not disturb each other, nor a testbed that
 * somebody uses.
 */
const name = (which: string): string => `t${process.pid}-${which}`;
const SLOW: Settings = { ...DEFAULT_SETTINGS, bandwidthBitsPerSecond: 100e6 };

const alive = (list: readonly number[]): number[] => list.filter((pid) => startTicks(pid) !== undefined);
/** Identities of all network namespaces that a process is in. */
const networks = (): Set<string> =>
  new Set(
    pids().flatMap((pid) => {
      try {
        return [readlinkSync(`/proc/${pid}/ns/net`)];
      } catch {
        return [];
      }
    }),
  );
const networkOf = (pid: number): string => readlinkSync(`/proc/${pid}/ns/net`);
const hostLinks = (): string =>
  execFileSync("ip", ["-o", "link"], {
    encoding: "utf8",
    env: { ...process.env, PATH: `${process.env["PATH"]}:/usr/sbin:/sbin` },
  }).replaceAll(/ state \S+/g, "");
const onNode = (testbed: string, node: number, command: string): string =>
  execFileSync(join(directoryOf(testbed), "rsh"), [hostName(testbed, node), command], {
    encoding: "utf8",
    timeout: 20_000,
  });

/** Nothing of the testbed is left on this machine. */
function expectGone(testbed: string, inside: readonly number[], nets: readonly string[]): void {
  expect(markedProcesses(testbed)).toEqual([]);
  expect(alive(inside)).toEqual([]);
  const left = networks();
  expect(nets.filter((each) => left.has(each))).toEqual([]);
  expect(existsSync(directoryOf(testbed))).toBe(false);
}

const probeOf = (over: Partial<ProbeConfig>): ProbeConfig => ({
  protocol: NATIVE_PROTOCOL,
  threadsPerRank: 1,
  minimumSamples: 5,
  maximumSeconds: 2,
  targetRelativeSpread: 0.05,
  collectives: [],
  modules: [],
  overlaps: [],
  device: false,
  ...over,
});

async function launchProbe(
  testbed: string,
  nodes: number,
  runDirectory: string,
  config: ProbeConfig,
): Promise<{ outcome: LaunchOutcome; events: ProbeEvent[] }> {
  const events: ProbeEvent[] = [];
  const target = await launchTarget(
    { name: testbed, nodes, gpusPerNode: 2, launcher: "ssh" },
    clustersFileOf(testbed),
  );
  const outcome = await launchRanks<Probe>({
    program: probe,
    config,
    ranks: 2 * nodes,
    threadsPerRank: 1,
    ...target,
    runDirectory,
    timeoutSeconds: 100,
    onEvent: (event) => events.push(event),
  });
  return { outcome, events };
}

describe.skipIf(impossible !== undefined)("a testbed", () => {
  const used = new Set<string>();
  const make = (which: string): string => {
    used.add(name(which));
    return name(which);
  };
  afterEach(async () => {
    for (const each of used) await down(each);
    used.clear();
  });

  it("stands apart from the machine's own network, stays when it is built again, and leaves nothing", async () => {
    const testbed = make("whole");
    const before = hostLinks();
    const { state, built } = await up(testbed, SLOW);
    expect(built).toBe(true);
    const inside = processesInside(state.holder.pid);
    const nets = [...new Set(inside.map(networkOf))];
    expect(nets).toHaveLength(1 + SLOW.nodes);
    expect(hostLinks()).toBe(before);
    expect(onNode(testbed, 1, "hostname").trim()).toBe(hostName(testbed, 1));
    expect(onNode(testbed, 1, "ls /dev/shm")).toBe("");
    expect(await up(testbed, SLOW)).toEqual({ state, built: false });
    const other = await up(testbed, { ...SLOW, nodes: 3 });
    expect(other.built).toBe(true);
    expect(alive(inside)).toEqual([]);
    const insideOther = processesInside(other.state.holder.pid);
    expect(await down(testbed)).toBeGreaterThan(3);
    expectGone(testbed, insideOther, nets);
    expect(hostLinks()).toBe(before);
    expect(await down(testbed)).toBe(0);
  });

  it("leaves nothing when its holder is killed, and can be built again", async () => {
    const testbed = make("killed");
    const { state } = await up(testbed, SLOW);
    const inside = processesInside(state.holder.pid);
    kill(state.holder.pid);
    await eventually("all processes gone", () => alive(inside).length === 0);
    expect(current(testbed)).toBeUndefined();
    expect((await up(testbed, SLOW)).built).toBe(true);
    await down(testbed);
    expectGone(testbed, inside, []);
  });

  it("is found and taken away after the command that was building it was killed", async () => {
    const testbed = make("half");
    const child = spawn(
      process.execPath,
      [join(repository, "tools", "testbed", "main.ts"), "up", "--name", testbed, "--nodes", "30"],
      { stdio: "ignore" },
    );
    const gone = new Promise((resolve) => child.once("exit", resolve));
    await eventually("the holder is there", () => holderOf(testbed) !== undefined, 30);
    child.kill("SIGKILL");
    await gone;
    expect(current(testbed)).toBeUndefined();
    const inside = markedProcesses(testbed);
    await down(testbed);
    expectGone(testbed, inside, []);
  });

  it("does not reach another one, nor end with it", async () => {
    const [one, two] = [make("one"), make("two")];
    const first = (await up(one, SLOW)).state;
    const inside = processesInside(first.holder.pid);
    const second = (await up(two, { ...SLOW, nodes: 3 })).state;
    const reached = (testbed: string, address: string): boolean =>
      onNode(testbed, 0, `timeout 5 bash -c 'exec 3<>/dev/tcp/${address}/9' 2>&1; true`).includes("refused");
    // Node 2 answers (nobody listens) in the testbed that has it, and only there.
    expect(reached(two, "10.77.0.3")).toBe(true);
    expect(reached(one, "10.77.0.3")).toBe(false);
    await down(one);
    expect(alive(inside)).toEqual([]);
    expect(current(two)).toEqual(second);
    expect(onNode(two, 2, "hostname").trim()).toBe(hostName(two, 2));
  });

  it("delays packets by at least what was asked", async () => {
    const testbed = make("far");
    await up(testbed, { ...SLOW, latencySeconds: 0.02 });
    // A connection that is refused takes one round trip: the first also asks for the neighbour's address.
    const seconds =
      Number(
        onNode(
          testbed,
          0,
          `ask() { bash -c 'exec 3<>/dev/tcp/10.77.0.2/9' 2>/dev/null; true; }; ask; least=1000000000000; for i in 1 2 3 4 5 6 7 8 9; do a=$(date +%s%N); ask; took=$(( $(date +%s%N) - a )); [ $took -lt $least ] && least=$took; done; echo $least`,
        ),
      ) / 1e9;
    // The shortest of them: whatever else the machine does makes others longer.
    expect(seconds).toBeGreaterThanOrEqual(0.04);
    expect(seconds).toBeLessThan(0.2);
  });
});

describe.skipIf(impossible !== undefined)("ranks on a testbed", () => {
  const testbed = name("ranks");
  let state: State;
  let directory: string;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "internevo-testbed-test-"));
    ({ state } = await up(testbed, SLOW));
  });
  afterAll(async () => {
    await down(testbed);
    await rm(directory, { recursive: true });
  });

  it("sit on two hosts, and see the bandwidth that was asked for between them and an order more inside", async () => {
    const bytes = 8 * 2 ** 20;
    const both = { op: "all-gather", bytes } as const;
    const { outcome, events } = await launchProbe(
      testbed,
      2,
      join(directory, "probe"),
      probeOf({
        device: true,
        collectives: [
          { ...both, groups: [[0, 1]], placement: "intra-node" },
          { ...both, groups: [[0, 2]], placement: "inter-node" },
        ],
      }),
    );
    expect(outcome).toMatchObject({ status: "completed" });
    expect(events.find((event) => event.event === "device")?.hosts).toEqual([
      hostName(testbed, 0),
      hostName(testbed, 1),
    ]);
    const seconds = Object.fromEntries(
      events.flatMap((event) =>
        event.event === "collective" ? [[event.placement, event.medianSeconds]] : [],
      ),
    );
    // Each of two ranks sends its half to the other, both at the same time: links carry both ways at once.
    const bitsPerSecond = (bytes / 2 / (seconds["inter-node"] as number)) * 8;
    expect(bitsPerSecond / SLOW.bandwidthBitsPerSecond).toBeGreaterThan(0.8);
    expect(bitsPerSecond / SLOW.bandwidthBitsPerSecond).toBeLessThan(1.2);
    expect((seconds["inter-node"] as number) / (seconds["intra-node"] as number)).toBeGreaterThan(8);
  }, 110_000);

  it("leave the nodes as they were, also when who launched them is killed", async () => {
    const before = processesInside(state.holder.pid).sort();
    const script = join(directory, "launcher.ts");
    const launcher = JSON.stringify(new URL("../../../libs/launcher/src/index.ts", import.meta.url).href);
    const sleeper = join(directory, "sleeper");
    await writeFile(sleeper, "#!/bin/sh\nexec sleep 300\n", { mode: 0o755 });
    await writeFile(
      script,
      `import { launchTarget, launchRanks } from ${launcher};
      import { Type } from ${JSON.stringify(import.meta.resolve("typebox"))};
      const target = await launchTarget({ name: ${JSON.stringify(testbed)}, nodes: 2, gpusPerNode: 2, launcher: "ssh" }, ${JSON.stringify(clustersFileOf(testbed))});
      await launchRanks({ program: { name: "sleeper", path: ${JSON.stringify(sleeper)}, configSchema: Type.Any(), eventSchema: Type.Any() }, config: {}, ranks: 4, ...target,
        threadsPerRank: 1, runDirectory: ${JSON.stringify(join(directory, "killed"))}, onEvent: () => {} });`,
    );
    const child = spawn(process.execPath, [script], { stdio: ["ignore", "ignore", "inherit"] });
    const gone = new Promise((resolve) => child.once("exit", resolve));
    const sleepers = (): number => Number(onNode(testbed, 0, "pgrep -cx sleep || true"));
    // Keepers sleep as well: one a node, and the holder's.
    const resting = sleepers();
    await eventually("four ranks run", () => sleepers() === resting + 4, 30);
    child.kill("SIGKILL");
    await gone;
    await eventually(
      "the ranks and their daemons are gone",
      () => processesInside(state.holder.pid).sort().join() === before.join(),
      20,
    );
    expect(onNode(testbed, 0, "ls /dev/shm")).toBe("");
  });
});
