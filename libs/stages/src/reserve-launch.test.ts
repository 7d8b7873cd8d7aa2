import { spawn, type ChildProcess } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { WAITS_FOR_CLUSTER } from "@internevo/contracts";
import type { Cluster } from "@internevo/domain";
import { ownHost, RUN_MARKER } from "@internevo/launcher";
import { OthersGoFirstError } from "@internevo/service-kit";
import { clusterRunDirectory } from "./directories.ts";
import { reserveLaunch } from "./reserve-launch.ts";

let dataDirectory: string;
const children: ChildProcess[] = [];
beforeEach(() => void (dataDirectory = mkdtempSync(join(tmpdir(), "internevo-reserve-"))));
afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  rmSync(dataDirectory, { recursive: true, force: true });
});

const cluster = (over: Partial<Cluster> = {}): Cluster => ({
  name: "mine",
  nodes: 1,
  gpusPerNode: 2,
  memoryPerGpuBytes: 2 ** 30,
  launcher: "local",
  profile: null,
  ...over,
});

const place = () => ({ dataDirectory, machineDirectory: dataDirectory });
const quiet = {
  use: "measure" as const,
  signal: new AbortController().signal,
  onWait: () => {},
  onNotice: () => {},
  onDetails: () => {},
};

/** Takes everything at once; says what. */
async function reserved(over: Partial<Cluster>, clustersFile?: string): Promise<string[]> {
  const claimed: string[] = [];
  await reserveLaunch({
    ...place(),
    clustersFile,
    cluster: cluster(over),
    confirm: async () => {},
    ...quiet,
    claimHosts: async (hosts) => void claimed.push(...hosts),
  });
  return claimed;
}

function clusters(hosts: Record<string, string[]>): string {
  const path = join(dataDirectory, "clusters.json");
  const described = Object.entries(hosts).map(([name, names]) => [
    name,
    { hosts: names.map((host) => ({ name: host, slots: 4 })) },
  ]);
  writeFileSync(
    path,
    JSON.stringify({
      clusters: { ...Object.fromEntries(described), queue: { slurm: { partition: "all" } } },
    }),
  );
  return path;
}

describe("what a launch reserves", () => {
  it("is this machine for every local cluster, whatever its name", async () => {
    expect(await reserved({ name: "one" })).toEqual([ownHost()]);
    expect(await reserved({ name: "another", nodes: 4 })).toEqual([ownHost()]);
  });
  it("is every host of a cluster over ssh, and this machine by its own name", async () => {
    const file = clusters({ ab: ["a", "b"], ca: ["a", "c", "unused"], here: ["localhost"] });
    expect(await reserved({ name: "ab", nodes: 2, launcher: "ssh" }, file)).toEqual(["a", "b"]);
    expect(await reserved({ name: "ca", nodes: 2, launcher: "ssh" }, file)).toEqual(["a", "c"]);
    expect(await reserved({ name: "here", launcher: "ssh" }, file)).toEqual(await reserved({}));
  });
  it("is no host where Slurm shares out the nodes", async () => {
    expect(await reserved({ name: "queue", launcher: "slurm" }, clusters({}))).toEqual([]);
  });
  it.each([
    [null, WAITS_FOR_CLUSTER],
    ["project nlp uses 8 of 8 GPUs", "queued: project nlp uses 8 of 8 GPUs"],
  ])("says that others go first, or which quota, and goes on with nothing meanwhile", async (limit, said) => {
    const waits: string[] = [];
    const asked = reserveLaunch({
      ...place(),
      cluster: cluster(),
      confirm: () => Promise.reject(new Error("went on")),
      ...quiet,
      onWait: (message) => waits.push(message),
      claimHosts: () => Promise.reject(new OthersGoFirstError(limit)),
    });
    await expect(asked).rejects.toThrow(OthersGoFirstError);
    expect(waits).toEqual([said]);
  });
});

describe("what another installation does on this machine", () => {
  /** Reserves for a data directory of another installation; says what it is told. */
  function asked(over: Partial<Cluster>, clustersFile?: string) {
    const waits: string[] = [];
    const end = new AbortController();
    const reservation = reserveLaunch({
      dataDirectory: join(dataDirectory, "another"),
      machineDirectory: dataDirectory,
      clustersFile,
      cluster: cluster(over),
      confirm: async () => {},
      ...quiet,
      signal: end.signal,
      onWait: (message) => waits.push(message),
      claimHosts: async () => {},
    });
    return { waits, reservation, end };
  }
  const held = () =>
    reserveLaunch({
      ...place(),
      cluster: cluster(),
      confirm: async () => {},
      ...quiet,
      claimHosts: async () => {},
    });

  it.each([
    ["a local cluster", (): [Partial<Cluster>, string?] => [{ name: "one" }]],
    [
      "a testbed",
      (): [Partial<Cluster>, string?] => {
        const path = join(dataDirectory, "testbed.json");
        const hosts = [{ name: "testbed-1", slots: 2 }];
        writeFileSync(path, JSON.stringify({ clusters: { testbed: { hosts, enter: ["nsenter"] } } }));
        return [{ name: "testbed", launcher: "ssh" }, path];
      },
    ],
  ])("is waited for by %s", async (_what, over) => {
    const first = await held();
    const { waits, reservation } = asked(...over());
    await expect.poll(() => waits, { timeout: 10_000 }).toHaveLength(1);
    expect(waits[0]).toContain("another installation measures on this machine, since");
    expect(waits[0]).not.toContain(dataDirectory);
    first.release();
    (await reservation).release();
  });

  it("does not concern ranks on other machines", async () => {
    const first = await held();
    const { waits, reservation } = asked(
      { name: "ab", nodes: 2, launcher: "ssh" },
      clusters({ ab: ["a", "b"] }),
    );
    (await reservation).release();
    expect(waits).toEqual([]);
    first.release();
  });

  it("is given up with the work", async () => {
    const first = await held();
    const { waits, reservation, end } = asked({});
    await expect.poll(() => waits, { timeout: 10_000 }).toHaveLength(1);
    end.abort(new Error("cancelled"));
    await expect(reservation).rejects.toThrow("cancelled");
    first.release();
  });
});

describe("ranks that a killed holder left", () => {
  /**
   * A process that carries a run's marker, and the record that a killed supervisor of a cluster would have
   * left of it.
   */
  async function left(
    name: string,
    hosts: string[] | undefined,
    directory = clusterRunDirectory(dataDirectory, cluster({ name })),
  ): Promise<{ gone: Promise<void>; child: ChildProcess; directory: string }> {
    const marker = `left-${name}-${process.pid}`;
    const child = spawn("sleep", ["600"], {
      env: { PATH: process.env["PATH"], [RUN_MARKER]: marker },
      stdio: "ignore",
    });
    children.push(child);
    const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
    await mkdir(directory, { recursive: true });
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    writeFileSync(
      join(directory, "run.json"),
      JSON.stringify({
        marker,
        bootId: boot,
        process: null,
        command: [],
        startedAt: new Date().toISOString(),
        scratch: [],
        ...(hosts ? { hosts } : {}),
      }),
    );
    return { gone, child, directory };
  }

  it.each([
    ["of this machine", [ownHost()]],
    ["of an older version, which did not say where", undefined],
  ])("%s end under another cluster's name too", async (_what, hosts) => {
    const other = await left("x", hosts);
    await reserved({ name: "y" });
    await other.gone;
    expect(existsSync(join(other.directory, "run.json"))).toBe(false);
  });

  it("end where an older version kept them, which told clusters apart by their name alone", async () => {
    const hash = createHash("sha256").update("mine").digest("hex").slice(0, 16);
    const other = await left("mine", [ownHost()], join(dataDirectory, "clusters", hash, "run"));
    await reserved({});
    await other.gone;
    expect(existsSync(join(other.directory, "run.json"))).toBe(false);
  });

  it("lie apart for clusters of one name and two launchers", () => {
    const of = (launcher: "local" | "ssh", name: string) =>
      clusterRunDirectory(dataDirectory, cluster({ launcher, name }));
    expect(of("local", "testbed")).not.toBe(of("ssh", "testbed"));
    expect(of("ssh", "testbed")).toBe(of("ssh", "testbed"));
    expect(of("ssh", "other")).not.toBe(of("ssh", "testbed"));
  });

  it("on a host that the clusters share end, and on other hosts go on", async () => {
    const file = clusters({ ab: ["a", "b"], bc: ["b", "c"] });
    const shared = await left("ab", ["a", "b"]);
    const apart = await left("apart", ["d"]);
    await reserved({ name: "bc", nodes: 2, launcher: "ssh" }, file);
    await shared.gone;
    expect(apart.child.exitCode).toBeNull();
    expect(apart.child.signalCode).toBeNull();
    expect(existsSync(join(apart.directory, "run.json"))).toBe(true);
  });
});
