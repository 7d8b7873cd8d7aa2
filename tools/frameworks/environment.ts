// The Python environment with the frameworks' packages, and what is said when it cannot be made.
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { EnvironmentError, step } from "../setup/python.ts";

export { EnvironmentError };

/**
 * Torchtitan's last release that reads TOML, and what has DeepSpeed's parser; Megatron-LM's and
 * Megatron-DeepSpeed's are in no package.
 */
const PACKAGES = [
  "torch==2.15.0",
  "torchtitan==0.2.2",
  "deepspeed==0.19.8",
  "transformers==5.23.0",
  "numpy",
  "einops",
  "tensorboard",
  "six",
];
/** DeepSpeed is built where it is installed, and looks for torch while it is. */
const BUILDERS = ["setuptools", "wheel", "packaging", "ninja", PACKAGES[0] as string];

const repository = fileURLToPath(new URL("../../", import.meta.url));

/**
 * The interpreter of `.tools/frameworks`, which is made where it lacks, or where it was made for other
 * packages.
 */
export function pythonEnvironment(): string {
  const folder = join(repository, ".tools", "frameworks");
  const python = join(folder, "bin", "python");
  const complete = join(folder, "complete");
  const packages = PACKAGES.join("\n");
  if (existsSync(complete) && readFileSync(complete, "utf8") === packages) return python;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const reach =
    "Pip must reach a package index, and the disk must have 8 GB " +
    "free; or give an interpreter that has the packages with --python";
  step(
    "Making a Python environment in .tools/frameworks",
    "",
    "Install python3 (3.10 or later) with its venv module; Debian's package is python3-venv",
    "python3",
    ["-m", "venv", folder],
  );
  step("Installing torch", ": this takes minutes, and some gigabytes", reach, python, [
    "-m",
    "pip",
    "install",
    "--quiet",
    ...BUILDERS,
  ]);
  step("Installing torchtitan and DeepSpeed", "", reach, python, [
    "-m",
    "pip",
    "install",
    "--quiet",
    "--no-build-isolation",
    ...PACKAGES,
  ]);
  writeFileSync(complete, packages);
  return python;
}

/** The version of an installed package. @throws EnvironmentError when the interpreter lacks it. */
export function packageVersion(python: string, name: string): string {
  const { status, stdout, error } = spawnSync(
    python,
    ["-c", "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))", name],
    { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] },
  );
  if (error !== undefined)
    throw new EnvironmentError(`--python ${python} cannot be started: ${error.message}`);
  if (status !== 0)
    throw new EnvironmentError(
      `${python} has no package ${name}: install ${PACKAGES.join(", ")} there, or leave --python out`,
    );
  return stdout.trim();
}

/** A file of each checkout that its parser is in. */
const PARSER_FILES: Readonly<Record<string, string>> = {
  megatron: "megatron/training/arguments.py",
  "megatron-deepspeed": "megatron/arguments.py",
};

/**
 * The commit of a checkout; its folder where it is no repository. @throws EnvironmentError when it is no
 * checkout of the project that is asked for.
 */
export function checkoutVersion(checkout: string, name?: string): string {
  const file = name === undefined ? undefined : PARSER_FILES[name];
  if (file !== undefined && !existsSync(join(checkout, file)))
    throw new EnvironmentError(
      `--${name} ${checkout} has no ${file}: give the folder of a checkout, as git clone makes it`,
    );
  try {
    // A folder inside another repository would answer with that one's commit.
    if (!existsSync(join(checkout, ".git"))) return "no commit known";
    return execFileSync("git", ["-C", checkout, "rev-parse", "--short", "HEAD"], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    }).trim();
  } catch {
    return "no commit known";
  }
}
