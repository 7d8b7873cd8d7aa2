import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { cli } from "../../test/in-process.ts";

describe("profiles as files", () => {
  let directory = "";
  const file = (name: string): string => join(directory, name);
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), "internevo-profile-test-"));
    writeFileSync(
      file("curves.csv"),
      "op,groupSize,placement,bytes,medianSeconds\nall-gather,8,intra-node,1048576,1e-4\nall-gather,8,intra-node,67108864,1e-2\n",
    );
  });
  afterAll(() => rmSync(directory, { recursive: true }));

  it("take measured curves, plan with them, and say how they differ", async () => {
    const imported = await cli(
      "profile",
      "import",
      file("curves.csv"),
      "--format",
      "csv",
      "--into",
      "a800-128",
      "--name",
      "slow gathers",
      "--out",
      file("slow.json"),
    );
    expect(imported.stderr).toMatch(/1 curve from 1 file; the profile is in /);
    expect(imported.status).toBe(0);
    expect((JSON.parse(readFileSync(file("slow.json"), "utf8")) as { name: string }).name).toBe(
      "slow gathers",
    );
    const unnamed = ["profile", "import", file("curves.csv"), "--format", "csv", "--into", "a800-128"];
    await cli(...unnamed, "--out", file("mine.json"));
    expect((JSON.parse(readFileSync(file("mine.json"), "utf8")) as { name: string }).name).toBe("mine");
    const difference = await cli("profile", "diff", "a800-128", file("slow.json"));
    expect(difference.stdout.split("\n")[0]).toBe(`a800-128 beside ${file("slow.json")}`);
    expect(
      difference.stdout.split("\n").find((line) => line.startsWith("all-gather over 8 ranks, intra-node")),
    ).toMatch(/× slower/);
    expect(difference.stdout).not.toMatch(/all-to-all over 8 ranks, intra-node/);
    expect(difference.stdout).toMatch(
      /\nthe same in both: \d+ more\n[\s\S]*SLOW-DOWN WHEN TOGETHER\nthe same in both: all \d+\n/,
    );
    const job = new URL("../../../../examples/paper/7b-32k.yaml", import.meta.url).pathname;
    expect((await cli("plan", job, "--profile", file("slow.json"), "--top", "1")).status).toBe(0);
  });

  it("are shown without an API where they are shipped", async () => {
    const { status, stdout } = await cli("profile", "show", "a800-128");
    expect([status, stdout]).toEqual([
      0,
      expect.stringMatching(/^profile +a800-128, shipped: .*\ncluster +16 × 8/),
    ]);
    expect(JSON.parse((await cli("profile", "show", "a800-128", "--json")).stdout)).toMatchObject({
      cluster: { nodes: 16, gpusPerNode: 8 },
    });
  });

  it("are said to be the same where nothing differs, and not where anything does", async () => {
    expect((await cli("profile", "diff", "a800-128", "a800-128")).stdout).toMatch(
      /^.* beside .*\n\nthey are the same, in all that was compared: \d+ curves of collectives, \d+ kinds of modules, \d+ slow-downs, and what they state\n$/,
    );
    const profile = JSON.parse(
      (await cli("profile", "import", file("curves.csv"), "--format", "csv", "--into", "a800-128")).stdout,
    ) as { device: { name: string } };
    writeFileSync(file("one.json"), JSON.stringify(profile));
    writeFileSync(
      file("other.json"),
      JSON.stringify({ ...profile, device: { ...profile.device, name: "another" } }),
    );
    expect((await cli("profile", "diff", file("one.json"), file("other.json"))).stdout).toMatch(
      /STATED[\s\S]*another[\s\S]*COLLECTIVES/,
    );
  });

  it("are refused with file, line and remedy", async () => {
    writeFileSync(
      file("bad.csv"),
      "op,groupSize,placement,bytes,medianSeconds\nall-gather,8,intra-node,1048576,-1\n",
    );
    const { status, stderr } = await cli(
      "profile",
      "import",
      file("bad.csv"),
      "--format",
      "csv",
      "--into",
      "a800-128",
    );
    expect(status).toBe(2);
    expect(stderr).toMatch(
      /bad\.csv: line 2, medianSeconds is no time in seconds[\s\S]*→ give a number above 0/,
    );
    expect((await cli("profile", "import", file("absent.txt"), "--into", "a800-128")).stderr).toMatch(
      /absent\.txt does not exist[\s\S]*nccl-tests/,
    );
    expect((await cli("profile", "diff", "a800-128", file("absent.json"))).stderr).toMatch(/absent\.json/);
  });

  it("are named to whoever gives a name that is none, without a service", async () => {
    for (const command of [
      ["diff", "a800-128", "nosuch"],
      ["diff", "nosuch", "a800-128"],
      ["import", file("curves.csv"), "--format", "csv", "--into", "nosuch"],
    ]) {
      const { status, stderr } = await cli("--data-directory", file("no-stack"), "profile", ...command);
      expect(stderr).toMatch(
        /there is no profile nosuch[\s\S]*is "nosuch"[\s\S]*→ .*a800-128.*path of a profile file/,
      );
      expect(status).toBe(4);
    }
  });
});
