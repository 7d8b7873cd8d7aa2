// Type check of every TypeScript project: the services and libraries together, the console on its own (it has
// the browser's types).
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";

const projects = ["tsconfig.json", "apps/console/tsconfig.json"].filter((path) => existsSync(path));
let failed = false;
for (const project of projects) {
  console.log(`tsc -p ${project}`);
  if (spawnSync("tsc", ["-p", project, "--noEmit"], { stdio: "inherit" }).status !== 0) failed = true;
}
process.exit(failed ? 1 : 0);
