import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import {
  ClusterPageSchema,
  ClusterRecordSchema,
  ProblemSchema,
  type ClusterRecord,
} from "@internevo/contracts";
import { shippedProfile } from "@internevo/cost-model";
import { validate } from "@internevo/domain";
import { claimHosts, jobLease, newTraceparent, storeProfile, submitJob } from "@internevo/store";
import { exampleSpec } from "@internevo/test-kit/fixtures";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { startTestApi, type TestApi } from "./harness.ts";

/** As a remote shell: n2 is down, what runs elsewhere runs here; `late` answers when a file is there. */
const SHELL = `#!/bin/sh
host=$1; shift
case $host in
  n2) echo "n2: no route to host" >&2; exit 255;;
  late) until [ -e "$(dirname "$0")/answer" ]; do sleep 0.05; done;;
esac
exec "$@"
`;

let directory: string;
let api: TestApi;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-clusters-"));
  const shell = join(directory, "shell");
  await writeFile(shell, SHELL);
  await chmod(shell, 0o755);
  const hosts = (...names: string[]) => ({
    remoteShell: [shell],
    hosts: names.map((name) => ({ name, slots: 2 })),
  });
  await describeClusters({
    pair: hosts("n1", "n2"),
    away: hosts("n2"),
    fleet: hosts("n3", "n4"),
    late: hosts("late"),
    torn: { slurm: { timeLimitSeconds: 100, saveSeconds: 60 } },
  });
  api = await startTestApi({
    capabilities: {
      hasProgram: () => false,
      clustersFile: join(directory, "clusters.json"),
      maximumLocalRanks: 8,
      localMemoryBytes: 64 * 2 ** 30,
      cuda: { hasBackend: true, gpus: 2 },
    },
  });
});
afterAll(async () => {
  await api.close();
  await rm(directory, { recursive: true });
});
beforeEach(async () => {
  await api.database.db.execute("truncate host_claims, host_waiters");
});

const describeClusters = (clusters: Record<string, unknown>) =>
  writeFile(join(directory, "clusters.json"), JSON.stringify({ clusters }));
const get = (path: string) =>
  api.app.inject({ url: `/api/v1${path}`, headers: { authorization: api.bearer.viewer } });
const list = async (): Promise<Map<string, ClusterRecord>> => {
  const { items } = validate(ClusterPageSchema, (await get("/clusters")).json(), "internal", "the list");
  return new Map(items.map((item) => [item.name, item]));
};
const one = async (name: string): Promise<ClusterRecord> =>
  validate(ClusterRecordSchema, (await get(`/clusters/${name}`)).json(), "internal", "the cluster");

/** A job that asks for hosts; they are its own, or it waits. */
async function jobOn(name: string, hosts: string[], minute: number): Promise<string> {
  return api.database.transaction(async (tx) => {
    const id = await submitJob(tx, { ...exampleSpec(), name });
    await claimHosts(tx, {
      owner: jobLease(id),
      hosts,
      submittedAt: new Date(Date.UTC(2026, 0, 1, 0, minute)),
      command: { type: "job.profile", data: { jobId: id }, traceparent: newTraceparent() },
    });
    return id;
  });
}

describe("clusters", () => {
  it("are this machine and those of the file, with what they have and how they are", async () => {
    const clusters = await list();
    expect([...clusters.keys()]).toEqual([hostname(), "pair", "away", "fleet", "late", "torn"]);
    expect(clusters.get(hostname())).toMatchObject({
      launcher: "local",
      capacity: { nodes: 1, ranks: 8, gpus: 2, memoryBytes: 64 * 2 ** 30 },
      health: { state: "ready", message: "every node can be used" },
    });
    expect(clusters.get("pair")).toMatchObject({
      launcher: "ssh",
      capacity: { nodes: 2, ranks: 4, gpus: null, memoryBytes: null },
      health: { state: "partly", message: "1 of 2 nodes cannot be used: n2 (n2: no route to host)" },
    });
    expect(clusters.get("away")?.health).toMatchObject({ state: "away" });
    expect(clusters.get("fleet")?.health).toMatchObject({ state: "ready" });
    expect(clusters.get("torn")?.health).toMatchObject({
      state: "away",
      message: expect.stringMatching(/^clusters\.torn\.slurm\.saveSeconds is more than half of/),
    });
  });

  it("that do not answer keep nobody waiting, and are told when they have answered", async () => {
    const holder = await jobOn("holder", ["late"], 1);
    expect(await one("late")).toMatchObject({ capacity: null, health: null, holders: [{ id: holder }] });
    await writeFile(join(directory, "answer"), "");
    // Every question waits for a look that is under way.
    expect((await one("late")).health).toMatchObject({ state: "ready" });
  });

  it("name who has their hosts, and who waits for them, in order", async () => {
    const first = await jobOn("first", ["n3", "n4"], 1);
    const third = await jobOn("third", ["n3"], 3);
    const second = await jobOn("second", ["n3", "n4"], 2);
    const elsewhere = await jobOn("elsewhere", ["n1"], 4);
    const clusters = await list();
    expect(clusters.get("fleet")).toMatchObject({
      holders: [{ kind: "job", id: first, name: "first", state: "profiling", hosts: ["n3", "n4"] }],
      waiting: [
        { kind: "job", id: second, name: "second", position: 1, hosts: ["n3", "n4"] },
        { kind: "job", id: third, name: "third", position: 2, hosts: ["n3"] },
      ],
    });
    expect(clusters.get("pair")).toMatchObject({ holders: [{ id: elsewhere }], waiting: [] });
    expect(clusters.get("away")).toMatchObject({ holders: [], waiting: [] });
  });

  it("have the profiles that were measured of them, newest first", async () => {
    const stored: string[] = [];
    for (const clusterKey of [
      "ssh:fleet:1x2",
      "ssh:fleet:2x2",
      "ssh:fleet2:2x2",
      "local:mine:1x2",
      "local:yours:1x4",
    ])
      stored.push(
        await storeProfile(api.database.db, {
          clusterKey,
          profile: { ...shippedProfile("a800-128"), name: clusterKey },
          freshForSeconds: 3600,
        }),
      );
    const profilesOf = async (name: string) => (await one(name)).profiles.map(({ id }) => id);
    expect(await profilesOf("fleet")).toEqual([stored[1], stored[0]]);
    // Whatever a job calls this machine.
    expect(await profilesOf(hostname())).toEqual([stored[4], stored[3]]);
    expect(await profilesOf("pair")).toEqual([]);
  });

  it("that are not here are refused with those that are", async () => {
    const reply = await get("/clusters/nowhere");
    const problem = validate(ProblemSchema, reply.json(), "internal", "the problem");
    expect([reply.statusCode, problem.errors?.[0]?.remedy]).toEqual([
      404,
      `use one of: ${[hostname(), "pair", "away", "fleet", "late", "torn"].join(", ")}; jobs may give the cluster ${hostname()} another name`,
    ]);
  });

  it("are read anew; an entry that is wrong is said to be, and a file that is wrong is named", async () => {
    await describeClusters({ fresh: { hosts: [{ name: "n9", slots: 1 }] } });
    expect([...(await list()).keys()]).toEqual([hostname(), "fresh"]);
    await describeClusters({ fresh: { hosts: [{ name: "n9", slots: 1 }] }, wrong: { hosts: [] } });
    expect([...(await list()).keys()]).toEqual([hostname(), "fresh", "wrong"]);
    expect((await one("wrong")).health).toMatchObject({
      state: "away",
      message: expect.stringContaining("clusters.wrong.hosts") as string,
    });
    await writeFile(join(directory, "clusters.json"), "hosts: n9");
    const reply = await get("/clusters");
    expect([reply.statusCode, reply.json().detail]).toEqual([503, expect.stringContaining("clusters.json")]);
  });
});
