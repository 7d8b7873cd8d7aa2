// A Kubernetes of real parts on this machine, for tests: `npm run kubernetes -- COMMAND`; see
// docs/how-to/run-on-kubernetes.md.
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { buildPrograms, whyImpossible } from "./src/build.ts";
import { compareChart } from "./src/chart.ts";
import { buildKwok } from "./src/kwok.ts";
import { KubernetesStand } from "./src/stand.ts";

const USAGE = `usage: npm run kubernetes -- COMMAND
  up     a test cluster of two nodes, for as long as this command runs
  test   whole jobs on such a cluster: minutes    [-- vitest's arguments]
  build  etcd, Kubernetes, JobSet, Kueue and kwok from their sources: once
  chart  whether Helm makes of infra/chart what the golden files have    [--write: writes them]`;

function fail(message: string, status: number): never {
  console.error(message);
  process.exit(status);
}

async function up(): Promise<void> {
  const stand = await KubernetesStand.start();
  const clusters = join(stand.directory, "clusters.json");
  writeFileSync(
    clusters,
    JSON.stringify({ clusters: { kubernetes: { kubernetes: stand.settings } } }, null, 2),
  );
  console.log(
    `Test cluster with nodes ${stand.nodes.join(", ")}, which are processes of this machine.\n` +
      `export KUBECONFIG=${stand.kubeconfig} INTERNEVO_CLUSTERS=${clusters}\n` +
      "Jobs use it by cluster: { name: kubernetes, launcher: kubernetes }. Ctrl-C ends it.",
  );
  await new Promise<void>((resolve_) => {
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.once(signal, () => resolve_());
    // Nothing else keeps this process.
    setInterval(() => {}, 2 ** 30);
  });
  await stand.stop();
  process.exit(0);
}

const [command = "", ...rest] = process.argv.slice(2);
if (!["up", "test", "build", "chart"].includes(command)) fail(USAGE, 2);
if (command === "chart") {
  const different = compareChart(rest.includes("--write"));
  if (different.length > 0) fail(`The golden files differ for: ${different.join(", ")}`, 1);
  console.log("The golden files have what Helm makes of the chart.");
  process.exit(0);
}
const impossible = whyImpossible();
if (impossible !== undefined) fail(`No test cluster can be started here: ${impossible}`, 1);
if (command === "up") await up();
else {
  buildPrograms();
  buildKwok();
  if (command === "test")
    process.exitCode =
      spawnSync("vitest", ["run", "--config", join(import.meta.dirname, "vitest.config.ts"), ...rest], {
        stdio: "inherit",
        cwd: resolve(import.meta.dirname, "../.."),
      }).status ?? 1;
}
