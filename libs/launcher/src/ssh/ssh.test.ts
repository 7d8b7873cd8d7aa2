import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { YIELDS_VARIABLE } from "../environment.ts";
import { launchTarget } from "../launchers.ts";
import { hostsCommand } from "./command.ts";

afterEach(() => vi.unstubAllEnvs());

const hosts = [
  { name: "n1", slots: 4 },
  { name: "n2", slots: 2 },
  { name: "n3", slots: 4 },
];
const options = {
  program: "/opt/internevo-trainer",
  configPath: "/shared/config.json",
  ranks: 4,
  ranksPerNode: 2,
  threadsPerRank: 1,
  hosts: { hosts },
};

/** The value of the MCA parameter in a command line. */
const mca = (command: readonly string[], name: string): string | undefined =>
  command.find((_, at) => command[at - 2] === "--mca" && command[at - 1] === name);

describe("hostsCommand", () => {
  it("fills hosts with consecutive ranks, over ssh, and leaves the transport to Open MPI", () => {
    const command = hostsCommand(options);
    expect(command.slice(0, 5)).toEqual(["setpriv", "--pdeathsig", "KILL", "--", "mpirun"]);
    expect(command.join(" ")).toContain(
      "-np 4 --oversubscribe --bind-to none --map-by slot --host n1:2,n2:2 ",
    );
    expect(mca(command, "plm_rsh_agent")).toBe("ssh -o BatchMode=yes");
    expect(mca(command, "btl_tcp_if_include")).toBeUndefined();
    expect(mca(command, "btl_tcp_flags")).toBe("send");
    expect(command.join(" ")).toContain("-x INTERNEVO_RUN ");
    expect(command.slice(-3)).toEqual(["/opt/internevo-trainer", "--config", "/shared/config.json"]);
  });

  it("enters first, and takes the shell, the network and the variables that it is given", () => {
    const command = hostsCommand({
      ...options,
      ranks: 2,
      exported: ["EXTRA"],
      hosts: {
        hosts,
        remoteShell: ["/opt/rsh", "-v"],
        network: ["10.1.0.0/16", "ib0"],
        enter: ["ip", "netns", "exec", "x"],
      },
    });
    expect(command.slice(0, 6)).toEqual(["ip", "netns", "exec", "x", "setpriv", "--pdeathsig"]);
    expect(command.join(" ")).toContain("--host n1:2 ");
    expect(mca(command, "plm_rsh_agent")).toBe("/opt/rsh -v");
    for (const name of ["oob_tcp_if_include", "btl_tcp_if_include"])
      expect(mca(command, name)).toBe("10.1.0.0/16,ib0");
    expect(command.join(" ")).toContain("-x EXTRA ");
  });

  it("lets waiting ranks keep their cores only where every host is known to have one for each thread", () => {
    vi.stubEnv(YIELDS_VARIABLE, undefined);
    const yields = (cores: readonly (number | undefined)[], threadsPerRank = 1): string | undefined =>
      mca(
        hostsCommand({
          ...options,
          threadsPerRank,
          hosts: {
            hosts: cores.map((each, at) => ({
              name: `n${at}`,
              slots: 2,
              ...(each === undefined ? {} : { cores: each }),
            })),
          },
        }),
        "mpi_yield_when_idle",
      );
    expect(yields([undefined, undefined])).toBe("1");
    expect(yields([2, undefined])).toBe("1");
    expect(yields([2, 1])).toBe("1");
    expect(yields([2, 2])).toBe("0");
    expect(yields([2, 2], 2)).toBe("1");
  });

  it.each([
    [8, 2],
    [8, 4],
    [16, 4],
  ])("refuses %i ranks, %i a node, where they do not fit", (ranks, ranksPerNode) => {
    expect(() => hostsCommand({ ...options, ranks, ranksPerNode })).toThrow(
      /do not fit on hosts n1:4,n2:2,n3:4/,
    );
  });
});

/** What the launcher needs of a cluster over ssh. */
const hostsOf = async (
  cluster: { readonly name: string; readonly nodes: number; readonly gpusPerNode: number },
  file: string | undefined,
): Promise<unknown> => (await launchTarget({ ...cluster, launcher: "ssh" }, file)).settings;

describe("the hosts of a described cluster", () => {
  let directory: string;
  let file: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), "internevo-clusters-"));
    file = join(directory, "clusters.json");
    await writeFile(file, JSON.stringify({ clusters: { here: { hosts, remoteShell: ["ssh"] } } }));
  });
  afterEach(() => rm(directory, { recursive: true }));

  it("takes the first hosts of the cluster that the job names", async () => {
    expect(await hostsOf({ name: "here", nodes: 2, gpusPerNode: 2 }, file)).toEqual({
      hosts: hosts.slice(0, 2),
      remoteShell: ["ssh"],
    });
  });

  it.each([
    [{ name: "there" }, "cluster.name", /use one of: here/],
    [{ name: "toString" }, "cluster.name", /use one of: here/],
    [{ nodes: 4 }, "cluster.nodes", /use 3 or fewer/],
    [{ gpusPerNode: 3 }, "cluster.gpusPerNode", /use 2 or fewer/],
  ])("refuses %j by name, value and remedy", async (over, field, remedy) => {
    await expect(hostsOf({ name: "here", nodes: 2, gpusPerNode: 2, ...over }, file)).rejects.toMatchObject({
      code: "job-invalid",
      details: [{ field, value: Object.values(over)[0], remedy: expect.stringMatching(remedy) }],
    });
  });

  it("says what to set where no hosts are described", async () => {
    await expect(hostsOf({ name: "here", nodes: 1, gpusPerNode: 1 }, undefined)).rejects.toMatchObject({
      code: "job-invalid",
      details: [{ field: "cluster.launcher", remedy: expect.stringContaining("INTERNEVO_CLUSTERS") }],
    });
  });

  it.each([
    ["nothing", undefined, "INTERNEVO_CLUSTERS"],
    ["no JSON", "hosts: n1", "INTERNEVO_CLUSTERS"],
    [
      "a host that is an option",
      JSON.stringify({ clusters: { here: { hosts: [{ name: "-x", slots: 1 }] } } }),
      "clusters.here.hosts.0.name",
    ],
    [
      "a shell that Open MPI would cut in two",
      JSON.stringify({ clusters: { here: { hosts, remoteShell: ["ssh -x"] } } }),
      "clusters.here.remoteShell.0",
    ],
  ])("refuses a file that holds %s", async (_, text, field) => {
    const path = join(directory, "other.json");
    if (text !== undefined) await writeFile(path, text);
    await expect(hostsOf({ name: "here", nodes: 1, gpusPerNode: 1 }, path)).rejects.toMatchObject({
      code: "unavailable",
      details: [expect.objectContaining({ field })],
    });
  });

  it("is asked for launcher ssh only", async () => {
    const cluster = { name: "elsewhere", nodes: 1, gpusPerNode: 2 };
    expect(await launchTarget({ ...cluster, launcher: "local" }, undefined)).toEqual({
      launcher: "local",
      ranksPerNode: 2,
    });
    await expect(launchTarget({ ...cluster, launcher: "ssh" }, file)).rejects.toThrow(
      /elsewhere|cluster.name/,
    );
  });
});
