// `npm run trackers`: what is sent to trackers, with a real MLflow server and a real TensorBoard. They take too long
// to install for `npm test`.
import { spawnSync } from "node:child_process";
import { EnvironmentError } from "../setup/python.ts";
import { trackerServers } from "./environment.ts";

try {
  const python = trackerServers();
  const { status } = spawnSync(
    "vitest",
    ["run", "--config", `${import.meta.dirname}/vitest.config.ts`, ...process.argv.slice(2)],
    {
      stdio: "inherit",
      cwd: `${import.meta.dirname}/../..`,
      env: { ...process.env, INTERNEVO_TRACKERS_PYTHON: python },
    },
  );
  process.exitCode = status ?? 1;
} catch (error) {
  if (!(error instanceof EnvironmentError)) throw error;
  console.error(error.message);
  process.exitCode = 1;
}
