import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { checkerOf, type Definition } from "../../test/definitions.ts";
import { describe, expect, it } from "vitest";
import { jobSetOf, type JobSetRequest } from "./objects.ts";
import { agentScript, podScript } from "./script.ts";

const read = (path: string): string => readFileSync(join(import.meta.dirname, path), "utf8");

const isJobSet = checkerOf(
  (JSON.parse(read("definitions/jobset.json")) as { openAPIV3Schema: Definition }).openAPIV3Schema,
);
const isJobTemplate = checkerOf({
  ...(JSON.parse(read("definitions/job-template.json")) as Definition),
  $ref: "#/components/schemas/io.k8s.api.batch.v1.JobTemplateSpec",
});

const plain: JobSetRequest = {
  marker: "0123456789abcdef",
  label: "attempt 1",
  program: "internevo-trainer",
  nodes: 2,
  ranksPerNode: 4,
  threadsPerRank: 2,
  directory: "/shared/jobs/0123456789abcdef",
  environment: {},
  settings: { image: "registry.example/internevo:1", volumes: [{ claim: "jobs", mountPath: "/shared" }] },
};
const full: JobSetRequest = {
  ...plain,
  nodes: 16,
  ranksPerNode: 8,
  environment: { WORD: "it's" },
  settings: {
    image: "registry.example/internevo:1",
    imagePullPolicy: "Always",
    imagePullSecrets: ["registry"],
    kubeconfig: "/etc/internevo/kubeconfig",
    namespace: "training",
    queue: "gpus",
    queuePriorityClass: "high",
    priorityClass: "training",
    requiredTopology: "cloud.example/rack",
    serviceAccount: "trainer",
    secrets: ["tokens"],
    environment: { NCCL_IB_HCA: "mlx5" },
    gpuResource: "nvidia.com/gpu",
    cpuPerRank: 1.5,
    memoryPerNodeBytes: 2 ** 40,
    sharedMemoryBytes: 2 ** 36,
    resources: { "rdma/hca": "8" },
    annotations: { "k8s.v1.cni.cncf.io/networks": "rail-0,rail-1" },
    nodeSelector: { "node.example/kind": "h200" },
    tolerations: [{ key: "nvidia.com/gpu", operator: "Exists", effect: "NoSchedule" }],
    hostNetwork: true,
    lockMemory: true,
    volumes: [
      { claim: "jobs", mountPath: "/shared" },
      { hostPath: "/lustre/data", mountPath: "/lustre/data", readOnly: true },
    ],
    saveSeconds: 600,
  },
};

describe.each([
  ["plain", plain],
  ["full", full],
] as const)("the JobSet of a %s request", (name, request) => {
  const jobSet = jobSetOf(request);

  it("is what its golden file has", () => {
    const path = join(import.meta.dirname, "golden", `${name}.json`);
    const text = `${JSON.stringify(jobSet, null, 2)}\n`;
    if (process.env["UPDATE_GOLDEN"] === "1") writeFileSync(path, text);
    expect(text).toBe(readFileSync(path, "utf8"));
  });

  it("is valid by JobSet's own definition, and has no field that this does not name", () => {
    expect(isJobSet(jobSet), JSON.stringify(isJobSet.errors)).toBe(true);
  });

  it("has a job whose pods are valid by Kubernetes' definition", () => {
    const template = jobSet.spec.replicatedJobs[0]?.template;
    expect(isJobTemplate(template), JSON.stringify(isJobTemplate.errors)).toBe(true);
  });

  it("starts nothing again by itself", () => {
    expect(jobSet.spec.failurePolicy).toEqual({ maxRestarts: 0 });
    expect(jobSet.spec.replicatedJobs[0]?.template.spec).toMatchObject({
      backoffLimit: 0,
      template: { spec: { restartPolicy: "Never" } },
    });
  });
});

describe("the definitions", () => {
  it("refuse what is misspelt, at any depth", () => {
    const wrong = structuredClone(jobSetOf(plain)) as { spec: Record<string, unknown> };
    wrong.spec["failurePolcy"] = {};
    expect(isJobSet(wrong)).toBe(false);
    const [{ template }] = jobSetOf(plain).spec.replicatedJobs as unknown as [
      { template: { spec: { template: { spec: Record<string, unknown> } } } },
    ];
    template.spec.template.spec["hostNetworks"] = true;
    expect(isJobTemplate(template)).toBe(false);
  });
});

describe("what pods run", () => {
  it("quotes what comes from people, and gives every other pod the daemon of its own host", () => {
    const script = podScript({
      nodes: 3,
      ranksPerNode: 2,
      program: "/opt/it's",
      configPath: "/c",
      directory: "/shared/it's",
      hostnames: ["a-0", "a-1", "a-2"],
      mpirunOptions: ["--mca", "btl", "^openib"],
    });
    expect(script).toContain(`cd '/shared/it'\\''s' || exit 1`);
    expect(script).toContain(`names=('a-0' 'a-1' 'a-2')`);
    expect(script).toContain(`mpirun -np 6 --host "$(hostname):2,a-1:2,a-2:2" --map-by slot`);
    expect(script).toContain(`'--mca' 'btl' '^openib' '/opt/it'\\''s' '--config' '/c'`);
    expect(agentScript("/shared/it's")).toContain(`cd '/shared/it'\\''s'`);
    expect(() =>
      podScript({ ...plain, configPath: "/c", hostnames: [], mpirunOptions: [], nodes: 0 }),
    ).toThrow(/nodes is 0/);
  });
});
