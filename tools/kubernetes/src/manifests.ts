import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import type { Programs } from "./build.ts";
import { KUEUE_NAMESPACE, type Certificates } from "./certificates.ts";

/** An object of the API, as it is written to it. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string } & Record<string, unknown>;
  readonly [member: string]: unknown;
}

/** The kinds that are written, as paths name them. */
const PLURALS: Readonly<Record<string, string>> = {
  CustomResourceDefinition: "customresourcedefinitions",
  Namespace: "namespaces",
  Secret: "secrets",
  MutatingWebhookConfiguration: "mutatingwebhookconfigurations",
  ValidatingWebhookConfiguration: "validatingwebhookconfigurations",
  ResourceFlavor: "resourceflavors",
  ClusterQueue: "clusterqueues",
  LocalQueue: "localqueues",
  Topology: "topologies",
  PersistentVolume: "persistentvolumes",
  PersistentVolumeClaim: "persistentvolumeclaims",
  ClusterRole: "clusterroles",
  ClusterRoleBinding: "clusterrolebindings",
  ConfigMap: "configmaps",
  Deployment: "deployments",
  HorizontalPodAutoscaler: "horizontalpodautoscalers",
  Ingress: "ingresses",
  NetworkPolicy: "networkpolicies",
  PodDisruptionBudget: "poddisruptionbudgets",
  Role: "roles",
  RoleBinding: "rolebindings",
  Service: "services",
  ServiceAccount: "serviceaccounts",
  ServiceMonitor: "servicemonitors",
};

/** Where the API server keeps an object. */
export function pathOf({ apiVersion, kind, metadata }: Manifest): string {
  const plural = PLURALS[kind];
  if (plural === undefined) throw new Error(`the path of kind ${kind} is not known: add it to PLURALS`);
  const group = apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const namespace = metadata.namespace === undefined ? "" : `/namespaces/${metadata.namespace}`;
  return `${group}${namespace}/${plural}/${metadata.name}`;
}

interface Webhook {
  readonly name: string;
  readonly clientConfig: { readonly service?: { readonly path?: string } };
}

const documentsOf = (path: string): Manifest[] =>
  parseAllDocuments(readFileSync(path, "utf8")).flatMap((each) => (each.toJSON() as Manifest | null) ?? []);

/** A webhook as a server outside of the cluster is named. */
const outside = (port: number, path: string, { ca }: Certificates) => ({
  url: `https://127.0.0.1:${port}${path}`,
  caBundle: ca.toString("base64"),
});

/** Kueue asks for more kinds of jobs than are installed here. */
const isWanted = ({ name }: Webhook): boolean =>
  /^[mv](jobset|pod|clusterqueue|cohort|resourceflavor|workload|localqueue)\.kb\.io$/.test(name);

/** The webhook configurations of a file, whose programs run outside of the cluster. */
function webhooksOf(
  path: string,
  name: string,
  port: number,
  certificates: Certificates,
  pods: boolean,
): Manifest[] {
  return documentsOf(path).map((each) => ({
    ...each,
    metadata: { name: `${name}-${each.metadata.name}` },
    webhooks: (each["webhooks"] as readonly Webhook[])
      .filter((webhook) => isWanted(webhook) && (pods || !/pod\.kb\.io$/.test(webhook.name)))
      .map((webhook) => ({
        ...webhook,
        clientConfig: outside(port, webhook.clientConfig.service?.path ?? "", certificates),
      })),
  }));
}

const definitionsIn = (directory: string): Manifest[] =>
  readdirSync(directory).flatMap((name) => documentsOf(join(directory, name)));

/** Kinds of Kueue that it has kept in several versions, and translates itself. */
const TRANSLATED = ["localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters"];

function translated(definition: Manifest, port: number, certificates: Certificates): Manifest {
  const [plural] = definition.metadata.name.split(".");
  if (!TRANSLATED.includes(plural ?? "")) return definition;
  return {
    ...definition,
    spec: {
      ...(definition["spec"] as object),
      conversion: {
        strategy: "Webhook",
        webhook: { conversionReviewVersions: ["v1"], clientConfig: outside(port, "/convert", certificates) },
      },
    },
  };
}

export const namespace = (name: string): Manifest => ({
  apiVersion: "v1",
  kind: "Namespace",
  metadata: { name },
});

/** What must be there before the controllers start. */
export function definitions(
  { jobSet, kueue }: Programs,
  certificates: Certificates,
  ports: { readonly kueue: number },
): Manifest[] {
  const bases = "config/components/crd/bases";
  return [
    ...definitionsIn(join(jobSet, bases)),
    ...definitionsIn(join(kueue, bases)).map((each) => translated(each, ports.kueue, certificates)),
    namespace(KUEUE_NAMESPACE),
    namespace("jobset-system"),
    {
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name: "kueue-webhook-server-cert", namespace: KUEUE_NAMESPACE },
      data: Object.fromEntries(
        Object.entries({
          "ca.crt": certificates.ca,
          "ca.key": certificates.caKey,
          "tls.crt": certificates.certificate,
          "tls.key": certificates.key,
        }).map(([name, value]) => [name, value.toString("base64")]),
      ),
    },
  ];
}

/** What sends the API server's questions to the controllers. */
export function webhooks(
  { jobSet, kueue }: Programs,
  certificates: Certificates,
  ports: { readonly jobSet: number; readonly kueue: number },
): Manifest[] {
  const file = "config/components/webhook/manifests.yaml";
  return [
    ...webhooksOf(join(jobSet, file), "jobset", ports.jobSet, certificates, true),
    ...webhooksOf(join(kueue, file), "kueue", ports.kueue, certificates, false),
  ];
}

const KUEUE_API = "kueue.x-k8s.io/v1beta2";
type Texts = Readonly<Record<string, string>>;

function queueOf(name: string, flavor: Manifest, quota: Texts, namespaceName: string): Manifest[] {
  const resources = Object.entries(quota).map(([resource, amount]) => ({
    name: resource,
    nominalQuota: amount,
  }));
  return [
    flavor,
    {
      apiVersion: KUEUE_API,
      kind: "ClusterQueue",
      metadata: { name },
      spec: {
        namespaceSelector: {},
        resourceGroups: [
          { coveredResources: Object.keys(quota), flavors: [{ name: flavor.metadata.name, resources }] },
        ],
      },
    },
    {
      apiVersion: KUEUE_API,
      kind: "LocalQueue",
      metadata: { name, namespace: namespaceName },
      spec: { clusterQueue: name },
    },
  ];
}

/** A queue of Kueue with so many CPUs. */
export function queue(name: string, cpus: number, namespaceName = "default"): Manifest[] {
  const flavor = { apiVersion: KUEUE_API, kind: "ResourceFlavor", metadata: { name: "nodes" }, spec: {} };
  return queueOf(name, flavor, { cpu: String(cpus) }, namespaceName);
}

/** A queue of Kueue that gives jobs their place by labels of the nodes. */
export interface TopologyQueue {
  readonly name: string;
  /** From the widest part to a node. */
  readonly levels: readonly string[];
  /** Of the nodes that belong to it. */
  readonly nodeLabels: Texts;
  readonly quota: Texts;
}

export function topologyQueue({ name, levels, nodeLabels, quota }: TopologyQueue): Manifest[] {
  const metadata = { name };
  const flavor = {
    apiVersion: KUEUE_API,
    kind: "ResourceFlavor",
    metadata,
    spec: { nodeLabels, topologyName: name },
  };
  return [
    {
      apiVersion: KUEUE_API,
      kind: "Topology",
      metadata,
      spec: { levels: levels.map((nodeLabel) => ({ nodeLabel })) },
    },
    ...queueOf(name, flavor, quota, "default"),
  ];
}

/** A folder of this machine as the claim of a namespace. */
export function sharedFolder(name: string, path: string, namespaceName = "default"): Manifest[] {
  const storage = "1Ti";
  return [
    {
      apiVersion: "v1",
      kind: "PersistentVolume",
      metadata: { name },
      spec: {
        accessModes: ["ReadWriteMany"],
        capacity: { storage },
        storageClassName: "",
        hostPath: { path },
        claimRef: { namespace: namespaceName, name },
        persistentVolumeReclaimPolicy: "Retain",
      },
    },
    {
      apiVersion: "v1",
      kind: "PersistentVolumeClaim",
      metadata: { name, namespace: namespaceName },
      spec: {
        accessModes: ["ReadWriteMany"],
        storageClassName: "",
        volumeName: name,
        resources: { requests: { storage } },
      },
    },
  ];
}
