import { readFileSync } from "node:fs";
import { join } from "node:path";
import { buildGo, go, KEPT } from "./go.ts";

const MODULE = join(import.meta.dirname, "..", "kwok");
/** The label of nodes that kwok plays. */
export const PLAYED = { "internevo.dev/test": "kwok" };
/** What nodes and pods do, from kwok's own files. There is none by which pods end: ranks train on. */
const STAGES = [
  "node/fast/node-initialize",
  "node/heartbeat-with-lease/node-heartbeat-with-lease",
  "pod/fast/pod-ready",
  "pod/fast/pod-delete",
];
/** A kubelet says that it lives every 10 seconds. Thousands on two cores say it four times less often. */
const LEASE_SECONDS = 160;
/** A node whose lease is older than this is lost. */
export const KWOK_GRACE_SECONDS = LEASE_SECONDS;

/** kwok, and the configuration with which it plays nodes of the label {@link PLAYED}. */
export interface Kwok {
  readonly path: string;
  readonly configuration: string;
}

/** Builds kwok, unless it is there: minutes. */
export function buildKwok(): Kwok {
  const directory = join(KEPT, "kwok");
  buildGo({
    module: MODULE,
    sources: ["go.mod", "go.sum"],
    packages: ["sigs.k8s.io/kwok/cmd/kwok"],
    linked: "-s -w",
    directory,
    words: "Building kwok: some minutes, once",
  });
  const source = go(MODULE, ["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"], "pipe").trim();
  const options = {
    manageNodesWithLabelSelector: Object.entries(PLAYED)
      .map(([key, value]) => `${key}=${value}`)
      .join(","),
    nodeLeaseDurationSeconds: LEASE_SECONDS,
    nodePlayStageParallelism: 16,
    podPlayStageParallelism: 16,
    nodeLeaseParallelism: 16,
    cidr: "10.128.0.0/16",
  };
  const configuration = { apiVersion: "config.kwok.x-k8s.io/v1alpha1", kind: "KwokConfiguration", options };
  return {
    path: join(directory, "kwok"),
    configuration: [
      JSON.stringify(configuration),
      ...STAGES.map((name) => readFileSync(join(source, "kustomize", "stage", `${name}.yaml`), "utf8")),
    ].join("\n---\n"),
  };
}
