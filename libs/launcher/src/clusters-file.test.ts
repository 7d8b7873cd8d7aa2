import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ClustersFileError } from "./clusters-file.ts";
import { knownClusters, launchTarget } from "./launchers.ts";

describe("a clusters file with an entry that is wrong", () => {
  let directory: string;
  let clustersFile: string;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), "internevo-clusters-"));
    clustersFile = join(directory, "clusters.json");
    const clusters = { lab: { hosts: [{ name: "n1", slots: 2 }] }, badmod: { slurm: { modules: ["a", 5] } } };
    writeFileSync(clustersFile, JSON.stringify({ clusters }));
  });
  afterEach(() => rmSync(directory, { recursive: true }));
  const target = (name: string, launcher: "ssh" | "slurm") =>
    launchTarget({ name, launcher, nodes: 1, gpusPerNode: 2 }, clustersFile);

  it("describes the others", async () => {
    expect(await target("lab", "ssh")).toMatchObject({ launcher: "ssh", ranksPerNode: 2 });
  });

  it("says what is wrong with it to jobs of that cluster, and that it is the installation's", async () => {
    const error: unknown = await target("badmod", "slurm").catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ClustersFileError);
    expect(error).toMatchObject({
      code: "unavailable",
      details: [{ field: "clusters.badmod.slurm.modules.1", value: 5, remedy: expect.any(String) as string }],
    });
    await expect(target("absent", "ssh")).rejects.toMatchObject({ code: "job-invalid" });
  });

  it("lists all, that one as a cluster that nobody can use", async () => {
    const here = { hasProgram: () => false, maximumLocalRanks: 1, localMemoryBytes: 1, clustersFile };
    const known = await knownClusters(here);
    expect(known.map(({ name }) => name).slice(1)).toEqual(["lab", "badmod"]);
    expect(await known.at(-1)?.look(new AbortController().signal)).toMatchObject({
      health: { message: expect.stringContaining("clusters.badmod.slurm.modules.1") as string },
    });
  });
});
