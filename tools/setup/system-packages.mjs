import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { runStep, SetupError } from "./steps.mjs";

export { SetupError };

/** Debian's packages that the product needs, what for, and when. */
const PACKAGES = [
  { name: "g++", when: "build", why: "compiles the native core" },
  { name: "cmake", when: "build", why: "builds the native core" },
  { name: "ninja-build", when: "build", why: "builds the native core" },
  { name: "libopenmpi-dev", when: "build", why: "collectives between CPU ranks" },
  { name: "nlohmann-json3-dev", when: "build", why: "configuration and events of the native programs" },
  { name: "libxxhash-dev", when: "build", why: "checksums of checkpoints" },
  { name: "libgtest-dev", when: "test", why: "tests of the native core" },
  { name: "openmpi-bin", when: "run", why: "starts ranks" },
  { name: "nats-server", when: "run", why: "messages between the services" },
  { name: "util-linux", when: "run", why: "child processes that end with their parent" },
  { name: "iproute2", when: "testbed", why: "networks between the nodes of a testbed" },
  { name: "slurmctld", when: "slurm", why: "controller of the Slurm cluster that the launcher is tested on" },
  { name: "slurmd", when: "slurm", why: "nodes of that cluster" },
  { name: "slurm-client", when: "slurm", why: "commands that the launcher runs" },
  { name: "slurm-wlm-basic-plugins", when: "slurm", why: "Slurm's JSON, and PMIx between ranks" },
  { name: "slurmrestd", when: "slurm", why: "Slurm's REST interface" },
  { name: "munge", when: "slurm", why: "how Slurm's parts know each other" },
  { name: "python3-pip", when: "cuda", why: "fetches NVIDIA's compiler and libraries" },
  { name: "python3-venv", when: "frameworks", why: "the Python environment with the frameworks' parsers" },
  { name: "python3-venv", when: "trackers", why: "the Python environment with MLflow and TensorBoard" },
  { name: "clang-format", when: "format", why: "lays out the C++ sources" },
  {
    name: "python3",
    when: "test",
    why: "what Python makes of configurations, which the importer is compared with",
  },
  { name: "bash", when: "test", why: "what a shell makes of scripts, which the importer is compared with" },
  { name: "chromium", when: "test", why: "tests of the console in a real browser" },
];

const isInstalled = (name) => {
  const query = spawnSync("dpkg-query", ["-W", "-f=${db:Status-Status}", name], { encoding: "utf8" });
  return query.status === 0 && query.stdout.trim() === "installed";
};

function isDebian() {
  if (!existsSync("/etc/os-release")) return false;
  const release = readFileSync("/etc/os-release", "utf8");
  return /^ID(_LIKE)?=.*debian/m.test(release);
}

/**
 * Installs the Debian packages that are missing.
 * @param groups which of the values of `when` above are needed.
 * @throws SetupError naming the missing packages where they can't be installed.
 */
export async function ensureSystemPackages(groups) {
  const wanted = PACKAGES.filter((each) => groups.includes(each.when));
  if (wanted.length === 0) return;
  if (!isDebian()) {
    if (process.env.INTERNEVO_SKIP_SYSTEM_PACKAGES === "1") return;
    throw new SetupError(
      `This system is not Debian, so nothing was installed. Install what these Debian packages hold: ${wanted.map((each) => each.name).join(", ")}.\n` +
        `Then run again with INTERNEVO_SKIP_SYSTEM_PACKAGES=1.`,
    );
  }
  const missing = wanted.filter((each) => !isInstalled(each.name));
  if (missing.length === 0) return;
  const names = missing.map((each) => each.name);
  if (process.getuid?.() !== 0) {
    throw new SetupError(
      `These packages are missing and installing them needs root:\n${missing.map((each) => `  ${each.name}: ${each.why}`).join("\n")}\n` +
        `Install them (sudo apt-get install -y --no-install-recommends ${names.join(" ")}) and run again.`,
    );
  }
  console.error(
    `These Debian packages are missing:\n${missing.map((each) => `  ${each.name}: ${each.why}`).join("\n")}`,
  );
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  await runStep("Updating the package lists", "Debian packages are missing", "apt-get", ["update", "-qq"], {
    env,
    quiet: true,
  });
  await runStep(
    `Installing ${names.length} Debian packages`,
    "they are missing; this can take a minute",
    "apt-get",
    ["install", "-y", "-qq", "--no-install-recommends", ...names],
    { env, quiet: true },
  );
}
