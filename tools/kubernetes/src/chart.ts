import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { buildGo, KEPT } from "./go.ts";

export const CHART = resolve(import.meta.dirname, "../../../infra/chart");
/** Values, and what the chart makes of them. */
export const CASES = resolve(import.meta.dirname, "../test-data/chart");
/** Which values there are, by name. */
export const caseNames = (): string[] =>
  readdirSync(CASES).flatMap((name) => /^(.*)\.values\.yaml$/.exec(name)?.[1] ?? []);
export const valuesOf = (name: string): string => join(CASES, `${name}.values.yaml`);
export const goldenOf = (name: string): string => join(CASES, `${name}.golden.yaml`);
const DIGEST_LINE = "# Made by `npm run kubernetes -- chart --write` of chart and values with the digest ";

const HELM = resolve(import.meta.dirname, "../helm");

/** Builds Helm, unless it is there: minutes. @returns its path. */
export function buildHelm(): string {
  const directory = join(KEPT, "helm");
  buildGo({
    module: HELM,
    sources: ["go.mod", "go.sum"],
    packages: ["helm.sh/helm/v3/cmd/helm"],
    linked: "-s -w",
    directory,
    words: "Building Helm: some minutes, once",
  });
  return join(directory, "helm");
}

/** What Helm says to the chart with values. @throws Error with its words where it refuses them. */
export function render(helm: string, args: readonly string[], namespace = "internevo"): string {
  const { status, error, stdout, stderr } = spawnSync(
    helm,
    ["template", "internevo", CHART, "--namespace", namespace, "--kube-version", "1.36.3", ...args],
    { encoding: "utf8" },
  );
  if (error) throw error;
  if (status !== 0) throw new Error(stderr);
  return stdout;
}

function filesBelow(directory: string): string[] {
  return readdirSync(directory, { withFileTypes: true })
    .flatMap((each) =>
      each.isDirectory() ? filesBelow(join(directory, each.name)) : [join(directory, each.name)],
    )
    .sort();
}

/** Of everything that a golden file follows from. */
export function digestOf(name: string): string {
  const hash = createHash("sha256");
  for (const path of [...filesBelow(CHART), valuesOf(name), join(HELM, "go.mod")])
    hash.update(readFileSync(path)).update("\0");
  return hash.digest("hex");
}

/** The digest that a golden file says. */
export const digestIn = (golden: string): string =>
  golden.startsWith(DIGEST_LINE) ? golden.slice(DIGEST_LINE.length).split("\n", 1)[0]! : "none";

/** Compares golden files with what Helm makes now, or writes them. @returns the names of those that differ. */
export function compareChart(write: boolean): string[] {
  const helm = buildHelm();
  return caseNames().filter((name) => {
    const text = `${DIGEST_LINE}${digestOf(name)}\n${render(helm, ["--values", valuesOf(name)])}`;
    if (write) writeFileSync(goldenOf(name), text);
    return text !== readFileSync(goldenOf(name), "utf8");
  });
}
