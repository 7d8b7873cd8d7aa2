import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { knownClusters, launchRanks } from "@internevo/launcher";
import { IS_APPLIED } from "@internevo/launcher/kubernetes";
import { Type } from "typebox";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parseAllDocuments } from "yaml";
import { buildHelm, caseNames, compareChart, render, valuesOf } from "../src/chart.ts";
import { namespace, pathOf, type Manifest } from "../src/manifests.ts";
import { KubernetesStand } from "../src/stand.ts";

const RELEASE = "internevo";
/** The stand's pods run in this one. */
const ELSEWHERE = "default";
const NOWHERE = "other";

/** As the Prometheus operator installs it, with the fields that the chart uses. */
const serviceMonitors: Manifest = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "servicemonitors.monitoring.coreos.com" },
  spec: {
    group: "monitoring.coreos.com",
    scope: "Namespaced",
    names: { kind: "ServiceMonitor", plural: "servicemonitors" },
    versions: [
      {
        name: "v1",
        served: true,
        storage: true,
        schema: { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } },
      },
    ],
  },
};

const jobSets = (where: string): string => `/apis/jobset.x-k8s.io/v1alpha2/namespaces/${where}/jobsets`;
const core = (where: string, what: string): string => `/api/v1/namespaces/${where}/${what}`;
const workloads = `/apis/kueue.x-k8s.io/v1beta2/namespaces/${RELEASE}/workloads`;
const WATCH = "?watch=true&timeoutSeconds=1";
const APPLY = "?fieldManager=internevo&dryRun=All";
const DRY = "?dryRun=All";

const container = { name: "c", image: "none" };
const pod = (where: string) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "p", namespace: where },
  spec: { containers: [container] },
});
const jobSet = (where: string) => ({
  apiVersion: "jobset.x-k8s.io/v1alpha2",
  kind: "JobSet",
  metadata: { name: "j", namespace: where },
  spec: {
    replicatedJobs: [
      {
        name: "ranks",
        template: { spec: { template: { spec: { restartPolicy: "Never", containers: [container] } } } },
      },
    ],
  },
});

type Ask = readonly [method: string, path: string, body?: object];
/** What the how-to's table lists. */
const LAUNCH: readonly Ask[] = [
  ["GET", `${jobSets(RELEASE)}/none`],
  ["GET", jobSets(RELEASE)],
  ["GET", jobSets(RELEASE) + WATCH],
  ["PATCH", `${jobSets(RELEASE)}/j${APPLY}`, jobSet(RELEASE)],
  ["DELETE", `${jobSets(RELEASE)}/none`],
  ["GET", core(RELEASE, "pods")],
  ["GET", core(RELEASE, `pods${WATCH}`)],
  ["DELETE", core(RELEASE, "pods/none")],
  ["GET", workloads],
  ["GET", workloads + WATCH],
  ["GET", "/api/v1/nodes"],
  ["GET", `/api/v1/nodes${WATCH}`],
];
const LOOK: readonly Ask[] = [
  ["GET", jobSets(RELEASE)],
  ["GET", "/api/v1/nodes"],
];
/** What nobody of the chart may. */
const NOBODY: readonly Ask[] = [
  ["GET", core(RELEASE, "secrets")],
  ["GET", core(RELEASE, "secrets/internevo")],
  ["GET", "/api/v1/secrets"],
  ["GET", core(RELEASE, "configmaps")],
  ["GET", core(RELEASE, "pods/none")],
  ["GET", core(RELEASE, "pods/none/log")],
  ["POST", core(RELEASE, `pods${DRY}`), pod(RELEASE)],
  ["POST", core(RELEASE, "pods/none/exec?command=id"), {}],
  ["DELETE", core(RELEASE, `pods${DRY}`)],
  ["GET", "/api/v1/pods"],
  ["GET", "/apis/jobset.x-k8s.io/v1alpha2/jobsets"],
  ["DELETE", jobSets(RELEASE) + DRY],
  ["GET", jobSets(NOWHERE)],
  ["PATCH", `${jobSets(NOWHERE)}/j${APPLY}`, jobSet(NOWHERE)],
  ["DELETE", `${jobSets(NOWHERE)}/none`],
  ["GET", core(NOWHERE, "pods")],
  ["DELETE", core(NOWHERE, "pods/none")],
  ["DELETE", `${workloads}/none`],
  ["GET", "/api/v1/nodes/n1"],
  ["DELETE", `/api/v1/nodes/n1${DRY}`],
  ["PATCH", `/api/v1/nodes/n1${APPLY}`, { apiVersion: "v1", kind: "Node", metadata: { name: "n1" } }],
  ["GET", "/api/v1/namespaces"],
  ["POST", core(RELEASE, `serviceaccounts/internevo-launch/token${DRY}`), {}],
  ["GET", `/apis/rbac.authorization.k8s.io/v1/namespaces/${RELEASE}/roles`],
  ["GET", `/apis/apps/v1/namespaces/${RELEASE}/deployments`],
];
const namesOf = (asks: readonly Ask[]): string[] => asks.map(([method, path]) => `${method} ${path}`);

describe("the chart on a cluster", () => {
  let stand: KubernetesStand;
  let directory: string;
  let helm: string;
  const rendered = (args: readonly string[]): Manifest[] =>
    parseAllDocuments(render(helm, args, RELEASE)).flatMap(
      (each) => (each.toJSON() as Manifest | null) ?? [],
    );
  const plain = (): Manifest[] =>
    rendered(["--values", valuesOf("plain"), "--set", `launcher.namespaces={${RELEASE},${ELSEWHERE}}`]);
  beforeAll(async () => {
    helm = buildHelm();
    stand = await KubernetesStand.start();
    directory = mkdtempSync(join(tmpdir(), "internevo-chart-"));
    await stand.apply([...[RELEASE, NOWHERE, "gpus", "training"].map(namespace), serviceMonitors]);
    const isForAccounts = /^(ServiceAccount|(Cluster)?Role(Binding)?)$/;
    await stand.apply(plain().filter(({ kind }) => isForAccounts.test(kind)));
    await stand.until("service monitors are known", async () => {
      await stand.api.ask({ path: `/apis/monitoring.coreos.com/v1/namespaces/${RELEASE}/servicemonitors` });
      return true;
    });
  }, 600_000);
  afterAll(async () => {
    await stand?.stop();
    rmSync(directory, { recursive: true, force: true });
  });

  /** The token of an account, as the API server signs it. */
  const tokenOf = async (name: string): Promise<string> => {
    const body = { spec: { audiences: [], expirationSeconds: 600 } };
    const made = await stand.core.createNamespacedServiceAccountToken({ name, namespace: RELEASE, body });
    return made.status?.token ?? "";
  };
  const cluster = () => {
    const { server = "", caData = "" } = stand.config.getCurrentCluster() ?? {};
    return { server, caData };
  };
  /** @returns the status of the answer to a request with a token. */
  const ask = (token: string, [method, path, body]: Ask): Promise<number> =>
    new Promise((resolve, reject) => {
      const { server, caData } = cluster();
      const type = method === "PATCH" ? "application/apply-patch+yaml" : "application/json";
      const headers = { authorization: `Bearer ${token}`, "content-type": type };
      const ca = Buffer.from(caData, "base64");
      request(server + path, { method, ca, headers }, (answer) => {
        answer.resume().once("end", () => resolve(answer.statusCode ?? 0));
      })
        .once("error", reject)
        .end(body === undefined ? undefined : JSON.stringify(body));
    });
  /** Those that the API server refuses for want of rights, and those that it knows nothing of. */
  const sorted = async (token: string, asks: readonly Ask[]) => {
    const may: string[] = [];
    const mayNot: string[] = [];
    for (const each of asks) {
      const status = await ask(token, each);
      const [name] = namesOf([each]) as [string];
      if (status === 403) mayNot.push(name);
      else if (status < 300 || status === 404) may.push(name);
      else throw new Error(`${name} is answered by ${status}`);
    }
    return { may, mayNot };
  };

  it("is what its golden files have", () => expect(compareChart(false)).toEqual([]));

  it.each(caseNames())("has only objects that the API server takes, with the values %s", async (name) => {
    const objects = rendered(["--values", valuesOf(name)]);
    expect(objects.length).toBeGreaterThan(5);
    const query = { ...IS_APPLIED.query, dryRun: "All", fieldValidation: "Strict" };
    for (const body of objects) await stand.api.ask({ ...IS_APPLIED, query, path: pathOf(body), body });
  });

  it("is refused by the API server where a field is misspelt", async () => {
    const [first] = plain().filter(({ kind }) => kind === "Deployment") as [Manifest];
    const body = { ...first, spec: { ...(first["spec"] as object), replica: 1 } };
    const query = { ...IS_APPLIED.query, dryRun: "All", fieldValidation: "Strict" };
    await expect(stand.api.ask({ ...IS_APPLIED, query, path: pathOf(body), body })).rejects.toThrow(
      /replica/,
    );
  });

  it("has pods that a namespace takes which restricts them as far as Kubernetes can", async () => {
    const labels = { "pod-security.kubernetes.io/enforce": "restricted" };
    await stand.apply([{ ...namespace(RELEASE), metadata: { name: RELEASE, labels } }]);
    const admin = stand.config.getCurrentUser()?.token ?? "";
    const path = core(RELEASE, `pods${DRY}`);
    const deployments = plain().filter(({ kind }) => kind === "Deployment");
    expect(deployments).toHaveLength(6);
    for (const { metadata, spec } of deployments) {
      const { template } = spec as { readonly template: { readonly spec: object } };
      const made = { apiVersion: "v1", kind: "Pod", metadata: { name: metadata.name }, spec: template.spec };
      expect(await ask(admin, ["POST", path, made])).toBe(201);
    }
    expect(await ask(admin, ["POST", path, pod(RELEASE)])).toBe(403);
  });

  it.each<[what: string, set: string, field: RegExp]>([
    ["no image", "image.repository=", /image.repository/],
    ["a service that is none", "services.scheduler.replicas=1", /scheduler/],
    ["a misspelt field", "services.api.replica=1", /replica/],
    ["a number that is none", "services.planner.replicas=many", /services.planner.replicas/],
    ["a secret among variables", "environment.DATABASE_URL=postgres://a", /environment.DATABASE_URL/],
    [
      "a variable that the chart sets",
      "services.api.environment.HEALTH_PORT=1",
      /api.environment.HEALTH_PORT/,
    ],
    ["no time to end", "terminationGracePeriodSeconds=5", /terminationGracePeriodSeconds/],
    ["an ingress without a host", "ingress.enabled=true", /ingress.host/],
    ["a path that is none", "data.mountPath=shared", /data.mountPath/],
    ["rights that are none", "services.api.cluster=admin", /services.api.cluster/],
    ["a port that is none", "networkPolicy.egress.nats.ports={0}", /networkPolicy.egress.nats.ports/],
    [
      "a cluster without rights",
      "clusters.fleet.kubernetes.namespace=gpus",
      /clusters.fleet.kubernetes.namespace/,
    ],
    [
      "a most below the least",
      "services.api.autoscaling.enabled=true,services.api.autoscaling.maximum=1",
      /services.api.autoscaling.maximum/,
    ],
  ])("refuses %s, and names the field", (_, set, field) => {
    const words = (): string => {
      try {
        rendered(["--values", valuesOf("plain"), "--set", set]);
        return "";
      } catch (error) {
        return (error as Error).message.replaceAll("/", ".");
      }
    };
    expect(words()).toMatch(field);
  });

  it.each<[account: string, may: readonly Ask[], mayNot: readonly Ask[]]>([
    ["internevo-launch", LAUNCH, NOBODY],
    [
      "internevo-look",
      LOOK,
      [...LAUNCH.filter((each) => !LOOK.some(([, path]) => path === each[1])), ...NOBODY],
    ],
    ["internevo", [], [...LAUNCH, ...NOBODY]],
  ])("lets the account %s do what it needs, and nothing else", async (account, may, mayNot) => {
    const token = await tokenOf(account);
    expect(await sorted(token, [...may, ...mayNot])).toEqual({ may: namesOf(may), mayNot: namesOf(mayNot) });
  });

  /** The stand's settings, by a kubeconfig that has nothing but an account's token. */
  const settingsOf = async (account: string) => {
    const { server, caData } = cluster();
    const path = join(directory, account);
    writeFileSync(
      path,
      JSON.stringify({
        apiVersion: "v1",
        kind: "Config",
        clusters: [{ name: "c", cluster: { server, "certificate-authority-data": caData } }],
        users: [{ name: "u", user: { token: await tokenOf(account) } }],
        contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
        "current-context": "c",
      }),
    );
    return { ...stand.settings, kubeconfig: path };
  };

  it("launches with the rights of its account alone", async () => {
    const path = join(directory, "program");
    const done = `[ "\${OMPI_COMM_WORLD_RANK:?}" = 0 ] && printf '{"event":"done"}\\n'; exit 0`;
    writeFileSync(path, `#!/bin/bash\n${done}\n`, { mode: 0o755 });
    const outcome = await launchRanks({
      program: { name: "program", path, configSchema: Type.Any(), eventSchema: Type.Any() },
      config: { any: 1 },
      ranks: 4,
      ranksPerNode: 2,
      threadsPerRank: 1,
      launcher: "kubernetes",
      settings: await settingsOf("internevo-launch"),
      runDirectory: join(directory, "run"),
      onEvent: () => {},
    });
    expect(outcome).toMatchObject({ status: "completed", exitCode: 0 });
  });

  it("shows the cluster with the rights of the API's account alone", async () => {
    const clustersFile = join(directory, "clusters.json");
    const kubernetes = await settingsOf("internevo-look");
    writeFileSync(clustersFile, JSON.stringify({ clusters: { site: { kubernetes } } }));
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
