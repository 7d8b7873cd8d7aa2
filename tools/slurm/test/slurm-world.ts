import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SlurmSettings } from "@internevo/domain";
import { startSlurm, type SlurmOptions, type SlurmStand } from "../src/stand.ts";

export interface Site {
  readonly slurm: SlurmStand;
  /** For INTERNEVO_CLUSTERS: the cluster's name in it is `site`. */
  readonly clustersFile: string;
  readonly settings: SlurmSettings;
  close(): Promise<void>;
}

/** What every test asks of its site: quick looks, no more waiting than needed. */
export const QUICK: SlurmSettings = { pollSeconds: 0.5, nodeLossSeconds: 10, saveSeconds: 20 };

/** A Slurm cluster, and the file by which an installation knows it. The commands of this process use it. */
export async function createSite(over: Partial<SlurmSettings> = {}, options: SlurmOptions = {}): Promise<Site> {
  const slurm = await startSlurm(options);
  const directory = mkdtempSync(join(tmpdir(), "internevo-site-"));
  const clustersFile = join(directory, "clusters.json");
  const settings = { ...QUICK, ...over };
  writeFileSync(clustersFile, JSON.stringify({ clusters: { site: { slurm: settings } } }));
  process.env["SLURM_CONF"] = slurm.environment.SLURM_CONF;
  return {
    slurm, clustersFile, settings,
    async close() {
      delete process.env["SLURM_CONF"];
      await slurm.stop();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
