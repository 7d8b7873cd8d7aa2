// NVIDIA's compiler, headers and libraries in the workspace's own folder, for builds that are asked for the
// CUDA backend.
import { createHash } from "node:crypto";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root, runStep, SetupError } from "./steps.mjs";

/** Builds and tests of the native core take in the CUDA backend. */
export const wantsCuda = () => process.env.INTERNEVO_CUDA === "1";

const wheels = join(root, "tools", "setup", "cuda-wheels.txt");
const mpiWheels = join(root, "tools", "setup", "mpi-wheels.txt");
const sha256 = (path) => createHash("sha256").update(readFileSync(path)).digest("hex");
const folder = join(root, ".tools", "cuda");

/** What CMake is told: a toolkit of the system's in CUDA_HOME comes before the wheels. */
export function cudaOptions() {
  if (!wantsCuda()) return ["-DINTERNEVO_CUDA=OFF"];
  return [
    "-DINTERNEVO_CUDA=ON",
    `-DINTERNEVO_CUDA_ROOT=${process.env.CUDA_HOME || join(folder, "nvidia", "cu13")}`,
  ];
}

/**
 * Installs the pinned wheels (their hashes are checked) unless they are there, or CUDA_HOME names a toolkit;
 * and the MPI that bundles take along.
 * @throws SetupError where pip or the processor does not fit, or a wheel can't be had.
 */
export async function ensureCuda() {
  if (!wantsCuda()) return;
  await ensureToolkit();
  // native/gpu-bundle writes the stamp.
  const stamp = join(root, ".tools", "mpi", ".internevo-wheels");
  if (
    process.arch !== "x64" ||
    (existsSync(stamp) && readFileSync(stamp, "utf8").trim() === sha256(mpiWheels))
  )
    return;
  await runStep(
    "Fetching Open MPI for bundles into .tools/mpi",
    "native/gpu-bundle takes it to nodes that have none; 5 MB, the first time",
    join(root, "native", "gpu-bundle"),
    ["--fetch-mpi"],
    { quiet: true },
  );
}

async function ensureToolkit() {
  const home = process.env.CUDA_HOME;
  if (home) {
    if (!existsSync(join(home, "bin", "nvcc")))
      throw new SetupError(
        `CUDA_HOME is ${home}, which has no bin/nvcc: name a CUDA toolkit, or unset it for NVIDIA's wheels.`,
      );
    return;
  }
  if (process.arch !== "x64")
    throw new SetupError(
      `NVIDIA's wheels are pinned for x64 and this machine is ${process.arch}: set CUDA_HOME to a CUDA toolkit.`,
    );
  const fingerprint = sha256(wheels);
  const stamp = join(folder, ".internevo-wheels");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === fingerprint) return;
  rmSync(folder, { recursive: true, force: true });
  const pip = [
    "-m",
    "pip",
    "install",
    "--target",
    folder,
    "--no-deps",
    "--require-hashes",
    "--only-binary=:all:",
    "--no-cache-dir",
    "--no-compile",
    "--disable-pip-version-check",
    "--root-user-action=ignore",
    "--retries",
    "2",
    "-r",
    wheels,
  ];
  try {
    await install(pip);
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    throw new SetupError(
      `${error.message}\nThe CUDA backend is built with NVIDIA's compiler from PyPI, which must be reachable (PIP_INDEX_URL names a mirror). Set CUDA_HOME to a toolkit of this machine instead, or leave INTERNEVO_CUDA out.`,
    );
  }
  writeFileSync(stamp, fingerprint);
}

function install(pip) {
  return runStep(
    "Installing NVIDIA's compiler and libraries into .tools/cuda",
    "INTERNEVO_CUDA=1 asks for the CUDA backend; two thirds of a gigabyte",
    "python3",
    pip,
    { quiet: true },
  );
}
