import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { checkCluster, launchTarget } from "../launchers.ts";
import type { KubernetesSettings } from "./settings.ts";

let directory: string;
beforeEach(() => void (directory = mkdtempSync(join(tmpdir(), "internevo-kubernetes-settings-"))));
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const fleet = {
  name: "fleet",
  launcher: "kubernetes",
  nodes: 2,
  gpusPerNode: 1,
  memoryPerGpuBytes: 2 ** 30,
  profile: null,
} as const;

function described(over: Record<string, unknown>): string {
  const path = join(directory, "clusters.json");
  const volumes = [{ claim: "jobs", mountPath: "/shared" }];
  writeFileSync(
    path,
    JSON.stringify({ clusters: { fleet: { kubernetes: { image: "i:1", volumes, ...over } } } }),
  );
  return path;
}

describe("the settings of a Kubernetes cluster", () => {
  it("are read as they are written", async () => {
    const settings: Partial<KubernetesSettings> = {
      queue: "gpus",
      directory: "/shared/jobs",
      gpuResource: "nvidia.com/gpu",
    };
    expect(await launchTarget(fleet, described(settings))).toMatchObject({
      launcher: "kubernetes",
      ranksPerNode: 1,
      settings: { image: "i:1", ...settings },
    });
  });

  it.each<readonly [string, Record<string, unknown>, string, RegExp]>([
    ["an image that is missing", { image: undefined }, "image", /./],
    ["a field that is none", { qeue: "a" }, "qeue", /./],
    ["a secret's content in place of its name", { secrets: ["A=b c"] }, "secrets", /./],
    ["a quantity that is none", { resources: { "rdma/hca": "many" } }, "resources", /./],
    ["a label that is none", { nodeSelector: { "a b": "c" } }, "nodeSelector", /./],
    ["a directory on no volume", { directory: "/elsewhere" }, "directory", /lies on no volume/],
    [
      "a directory that cannot be written",
      { directory: "/data/jobs", volumes: [{ hostPath: "/data", mountPath: "/data", readOnly: true }] },
      "directory",
      /lies on no volume/,
    ],
    [
      "a volume of nothing",
      { volumes: [{ mountPath: "/shared" }] },
      "volumes.0",
      /neither of claim and hostPath/,
    ],
    [
      "a volume of both",
      { volumes: [{ claim: "a", hostPath: "/b", mountPath: "/shared" }] },
      "volumes.0",
      /both of claim and hostPath/,
    ],
    [
      "a volume over shared memory",
      { volumes: [{ claim: "a", mountPath: "/dev/shm/" }] },
      "volumes.0.mountPath",
      /something else/,
    ],
    [
      "both topologies",
      { queue: "q", requiredTopology: "a", preferredTopology: "b" },
      "preferredTopology",
      /does not go with/,
    ],
    ["a topology without a queue", { requiredTopology: "a/b" }, "requiredTopology", /is read by Kueue/],
    [
      "Kueue's priority without a queue",
      { queuePriorityClass: "a" },
      "queuePriorityClass",
      /is read by Kueue/,
    ],
    ["a context of nothing", { context: "a" }, "context", /part of a kubeconfig/],
    ["what follows from the job", { resources: { cpu: "1" } }, "resources.cpu", /follows from/],
    [
      "GPUs twice",
      { gpuResource: "nvidia.com/gpu", resources: { "nvidia.com/gpu": "1" } },
      "resources.nvidia.com/gpu",
      /follows from/,
    ],
  ])("that have %s are an error with field, value and remedy", async (_, over, field, message) => {
    await expect(launchTarget(fleet, described(over))).rejects.toMatchObject({
      code: "unavailable",
      details: expect.arrayContaining([
        expect.objectContaining({
          field: expect.stringContaining(field),
          message: expect.stringMatching(message),
          remedy: expect.any(String),
        }),
      ]),
    });
  });

  it("need a volume on which the data directory lies", async () => {
    const here = {
      clustersFile: described({}),
      hasProgram: () => true,
      maximumLocalRanks: 1,
      localMemoryBytes: 1,
    };
    await checkCluster(fleet, { ...here, dataDirectory: "/shared/internevo" });
    await expect(checkCluster(fleet, { ...here, dataDirectory: "/var/lib/internevo" })).rejects.toMatchObject(
      {
        code: "job-invalid",
        details: [
          {
            field: "cluster.launcher",
            value: "kubernetes",
            message: expect.stringContaining("do not see the data directory"),
          },
        ],
      },
    );
  });
});
