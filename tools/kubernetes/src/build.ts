import { spawnSync } from "node:child_process";
import { rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { whyImpossible as whyNoTestbed } from "@internevo/testbed/testbed";
import { buildGo, go, KEPT } from "./go.ts";

const MODULE = join(import.meta.dirname, "..", "control-plane");
/** The parts that one program is, by the name under which it is called. */
const PARTS = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"] as const;

/** Kueue asks the API server for its version, and a server that is not built by its own scripts has none. */
const VERSION = { gitVersion: "v1.36.3", gitMajor: "1", gitMinor: "36" };
const LINKED = [
  "-s",
  "-w",
  ...Object.entries(VERSION).map(([name, value]) => `-X k8s.io/component-base/version.${name}=${value}`),
].join(" ");

/** Where the programs of a control plane are. */
export interface Programs {
  readonly directory: string;
  /** Sources of JobSet and Kueue, which have their definitions. */
  readonly jobSet: string;
  readonly kueue: string;
}

/** Why the programs cannot be used here, or undefined. */
export function whyImpossible(): string | undefined {
  if (process.getuid?.() !== 0) return "pods are made of namespaces, which needs root";
  const missing = ["go", "openssl", "unshare", "setpriv", "mount", "mpirun"].filter(
    (program) => spawnSync("sh", ["-c", `command -v ${program}`]).status !== 0,
  );
  return missing.length === 0 ? whyNoTestbed() : `${missing.join(", ")} cannot be found`;
}

/** Builds etcd, Kubernetes, JobSet and Kueue, unless they are there: ten minutes on two cores. */
export function buildPrograms(): Programs {
  const directory = join(KEPT, "bin");
  const isNew = buildGo({
    module: MODULE,
    sources: ["go.mod", "go.sum", "main.go"],
    packages: [".", "sigs.k8s.io/jobset", "sigs.k8s.io/kueue/cmd/kueue"],
    linked: LINKED,
    directory,
    words: "Building etcd, Kubernetes, JobSet and Kueue: about ten minutes, once",
  });
  for (const part of isNew ? PARTS : []) {
    rmSync(join(directory, part), { force: true });
    symlinkSync("control-plane", join(directory, part));
  }
  const sourceOf = (module: string): string =>
    go(MODULE, ["list", "-m", "-f", "{{.Dir}}", module], "pipe").trim();
  return { directory, jobSet: sourceOf("sigs.k8s.io/jobset"), kueue: sourceOf("sigs.k8s.io/kueue") };
}
