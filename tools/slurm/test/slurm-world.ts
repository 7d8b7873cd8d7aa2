import { eventually } from "@internevo/test-kit";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SlurmSettings } from "@internevo/launcher";
import { jobsOf, type SlurmJob } from "@internevo/launcher";
import { createBrake, type Brake } from "@internevo/test-kit/brake";
import { startSlurm, type SlurmOptions, type SlurmStand } from "../src/stand.ts";

export interface Site {
  readonly slurm: SlurmStand;
  /** For INTERNEVO_CLUSTERS: the cluster is `site` in it, and `held` and `slowed` with a brake. */
  readonly clustersFile: string;
  readonly settings: SlurmSettings;
  /** All jobs that Slurm knows, oldest first. */
  jobs(): Promise<SlurmJob[]>;
  readonly held: Brake;
  readonly slowed: Brake;
  /**
   * Takes all nodes away from whoever comes next, and waits until it has them. @returns what gives them back.
   */
  occupy(): Promise<() => Promise<unknown>>;
  close(): Promise<void>;
}

/** What every test asks of its site: quick looks, no more waiting than needed. */
export const QUICK: SlurmSettings = { pollSeconds: 0.5, nodeLossSeconds: 3, saveSeconds: 20 };

/** Lines of a file; none where it is not there. */
export function linesOf(path: string): string[] {
  try {
    return readFileSync(path, "utf8").split("\n").slice(0, -1);
  } catch (error) {
    if (["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "")) return [];
    throw error;
  }
}

/**
 * The message of a launch that runs on these two nodes. Which it gets is for Slurm to say: a node that a job
 * has just left may not be free yet. @throws Error for as many as it does not know how to write.
 */
export const runsOn = (nodes: readonly string[]): RegExp => {
  const [first, second, ...others] = [...new Set(nodes)]
    .map((node) => Number(/^n(\d+)$/.exec(node)?.[1]))
    .sort((a, b) => a - b);
  if (first === undefined || second === undefined || others.length > 0)
    throw new Error(`two nodes are named n and a number; these are ${nodes.join(", ")}`);
  return new RegExp(`^Slurm job \\d+ runs on n\\[${first}${second === first + 1 ? "-" : ","}${second}\\]$`);
};

/** A Slurm cluster, and the file by which an installation knows it. The commands of this process use it. */
export async function createSite(
  over: Partial<SlurmSettings> = {},
  options: SlurmOptions = {},
): Promise<Site> {
  const slurm = await startSlurm(options);
  const directory = mkdtempSync(join(tmpdir(), "internevo-site-"));
  const clustersFile = join(directory, "clusters.json");
  const settings = { ...QUICK, ...over };
  const [held, slowed] = [createBrake(30, "hold"), createBrake(30)];
  const braked = ({ command }: Brake) => ({ slurm: { ...settings, container: command } });
  writeFileSync(
    clustersFile,
    JSON.stringify({ clusters: { site: { slurm: settings }, held: braked(held), slowed: braked(slowed) } }),
  );
  process.env["SLURM_CONF"] = slurm.environment.SLURM_CONF;
  const jobs = async (): Promise<SlurmJob[]> =>
    jobsOf(JSON.parse(await slurm.slurm("squeue", "--json"))).sort((a, b) => a.id - b.id);
  return {
    slurm,
    clustersFile,
    settings,
    jobs,
    held,
    slowed,
    async occupy() {
      const id = Number(
        await slurm.slurm(
          "sbatch",
          "--parsable",
          "--exclusive",
          `--nodes=${slurm.nodes.length}`,
          "--time=10",
          "--job-name=other",
          "--output=/dev/null",
          "--wrap=sleep 600",
        ),
      );
      await eventually(
        `job ${id} has all nodes`,
        async () => (await jobs()).find((job) => job.id === id)?.state === "RUNNING",
        60,
        slurm.logs,
      );
      return () => slurm.slurm("scancel", String(id));
    },
    async close() {
      delete process.env["SLURM_CONF"];
      await slurm.stop();
      held.dispose();
      slowed.dispose();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
