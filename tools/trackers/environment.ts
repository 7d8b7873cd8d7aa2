// The Python environment with the servers that the trackers are tested on.
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { step } from "../setup/python.ts";

/** TensorBoard still imports pkg_resources, which later versions of setuptools lack. */
const PACKAGES = ["mlflow==3.17.2", "tensorboard==2.21.0", "setuptools<81"];

const repository = fileURLToPath(new URL("../../", import.meta.url));

/** The interpreter of `.tools/trackers`, which is made where it lacks, or where it was made for other packages. */
export function trackerServers(): string {
  const folder = join(repository, ".tools", "trackers");
  const python = join(folder, "bin", "python");
  const complete = join(folder, "complete");
  const packages = PACKAGES.join("\n");
  if (existsSync(complete) && readFileSync(complete, "utf8") === packages) return python;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  step(
    "Making a Python environment in .tools/trackers",
    "",
    "Install python3 (3.10 or later) with its venv module; Debian's package is python3-venv",
    "python3",
    ["-m", "venv", folder],
  );
  step(
    "Installing MLflow and TensorBoard",
    ": this takes a minute or more, and 850 MB",
    "Pip must reach a package index, and the disk must have 1 GB free",
    python,
    ["-m", "pip", "install", "--quiet", ...PACKAGES],
  );
  writeFileSync(complete, packages);
  return python;
}
