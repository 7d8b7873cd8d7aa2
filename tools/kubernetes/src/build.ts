import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

const MODULE = join(import.meta.dirname, "..", "control-plane");
const KEPT = resolve(import.meta.dirname, "../../../.tools/kubernetes");
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

function go(args: readonly string[], stdio: "inherit" | "pipe"): string {
  const { status, error, stdout } = spawnSync("go", args, {
    cwd: MODULE,
    encoding: "utf8",
    stdio: ["ignore", stdio === "pipe" ? "pipe" : 2, "inherit"],
  });
  if (error) throw new Error(`go cannot be started: ${error.message}. Install Go 1.26 or newer`);
  if (status !== 0) throw new Error(`go ${args[0] ?? ""} ended with ${status}`);
  return stdout ?? "";
}

/** Why the programs cannot be used here, or undefined. */
export function whyImpossible(): string | undefined {
  if (process.getuid?.() !== 0) return "pods are made of namespaces, which needs root";
  const missing = ["go", "openssl", "unshare", "setpriv", "mount", "mpirun"].filter(
    (program) => spawnSync("sh", ["-c", `command -v ${program}`]).status !== 0,
  );
  return missing.length === 0 ? undefined : `${missing.join(", ")} cannot be found`;
}

const digest = (): string =>
  createHash("sha256")
    .update(
      [
        LINKED,
        ...["go.mod", "go.sum", "main.go"].map((name) => readFileSync(join(MODULE, name), "utf8")),
      ].join("\0"),
    )
    .digest("hex");

/** Builds etcd, Kubernetes, JobSet and Kueue, unless they are there: ten minutes on two cores. */
export function buildPrograms(): Programs {
  const directory = join(KEPT, "bin");
  const stamp = join(directory, "built-from");
  const wanted = digest();
  if (!existsSync(stamp) || readFileSync(stamp, "utf8") !== wanted) {
    mkdirSync(directory, { recursive: true });
    rmSync(stamp, { force: true });
    console.error("Building etcd, Kubernetes, JobSet and Kueue: about ten minutes, once");
    go(
      [
        ...["build", "-p", "2", "-trimpath", "-ldflags", LINKED, "-o", `${directory}/`],
        ...[".", "sigs.k8s.io/jobset", "sigs.k8s.io/kueue/cmd/kueue"],
      ],
      "inherit",
    );
    for (const part of PARTS) {
      rmSync(join(directory, part), { force: true });
      symlinkSync("control-plane", join(directory, part));
    }
    writeFileSync(stamp, wanted);
  }
  const sourceOf = (module: string): string => go(["list", "-m", "-f", "{{.Dir}}", module], "pipe").trim();
  return { directory, jobSet: sourceOf("sigs.k8s.io/jobset"), kueue: sourceOf("sigs.k8s.io/kueue") };
}
