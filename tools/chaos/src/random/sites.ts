import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { startSlurm, type SlurmStand } from "@internevo/slurm/stand";
import { clustersOf, down, joinNode, up, type State } from "@internevo/testbed/testbed";
import type { SiteTarget } from "./kills.ts";

/** Of a site, with one rank each. */
export const NODES = 2;

/** Where ranks run, other than on this machine alone. */
export interface Site {
  /** What a job says of its cluster, beside the name. */
  readonly cluster: Readonly<Record<string, unknown>>;
  /** Of every service. */
  readonly environment: Readonly<Record<string, string>>;
  /** What can fail of it. */
  readonly target: SiteTarget;
  /** It fails for so long; a failure that comes meanwhile replaces it. @param share drawn from 0 to 1 */
  fail(share: number, seconds: number): void;
  mend(): Promise<void>;
  stop(): Promise<void>;
}

/** The same cluster under each name. */
function writeClusters(
  file: string,
  names: readonly string[],
  cluster: unknown,
): { INTERNEVO_CLUSTERS: string } {
  writeFileSync(file, JSON.stringify({ clusters: Object.fromEntries(names.map((name) => [name, cluster])) }));
  return { INTERNEVO_CLUSTERS: file };
}

const IS_SHARED = { nodes: NODES, gpusPerNode: 1 };

/** Nodes of a testbed, whose links are cut: nothing reaches a node, or leaves it. */
class TestbedSite implements Site {
  readonly cluster = { ...IS_SHARED, launcher: "ssh" };
  readonly target = "link of a node";
  readonly environment: Readonly<Record<string, string>>;
  readonly #state: State;
  readonly #mends = new Map<number, NodeJS.Timeout>();

  constructor(state: State, file: string, names: readonly string[]) {
    this.#state = state;
    this.environment = writeClusters(file, names, Object.values(clustersOf(state).clusters)[0]);
  }

  fail(share: number, seconds: number): void {
    const node = Math.floor(share * 1000) % NODES;
    clearTimeout(this.#mends.get(node));
    joinNode(this.#state, node, false);
    this.#mends.set(
      node,
      setTimeout(() => this.#join(node), seconds * 1000),
    );
  }

  #join(node: number): void {
    clearTimeout(this.#mends.get(node));
    this.#mends.delete(node);
    joinNode(this.#state, node, true);
  }

  mend(): Promise<void> {
    for (const node of [...this.#mends.keys()]) this.#join(node);
    return Promise.resolve();
  }

  async stop(): Promise<void> {
    await this.mend();
    await down(this.#state.name);
  }
}

/** A real Slurm, whose controller dies and is started again. */
class SlurmSite implements Site {
  readonly cluster = { ...IS_SHARED, launcher: "slurm" };
  readonly target = "slurm controller";
  readonly environment: Readonly<Record<string, string>>;
  readonly #slurm: SlurmStand;
  /** One after the other: it is killed and started by turns. */
  #turns: Promise<void> = Promise.resolve();

  constructor(slurm: SlurmStand, file: string, names: readonly string[]) {
    this.#slurm = slurm;
    const settings = { pollSeconds: 0.5, nodeLossSeconds: 30, saveSeconds: 20 };
    this.environment = { ...writeClusters(file, names, { slurm: settings }), ...slurm.environment };
  }

  fail(_: number, seconds: number): void {
    this.#turns = this.#turns.then(async () => {
      await this.#slurm.killController();
      await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
      await this.#slurm.startController();
    });
  }

  mend(): Promise<void> {
    return this.#turns;
  }

  async stop(): Promise<void> {
    await this.mend();
    await this.#slurm.stop();
  }
}

/** @param names of the clusters that the installation knows by `file` */
export async function startSite(
  kind: "testbed" | "slurm",
  file: string,
  names: readonly string[],
): Promise<Site> {
  // Whoever waits for nodes that a killed job has just left waits for its end, as on any cluster.
  if (kind === "slurm") return new SlurmSite(await startSlurm({ nodes: 2 * NODES }), file, names);
  const settings = { nodes: NODES, ranksPerNode: 1, bandwidthBitsPerSecond: 1e9, latencySeconds: 0 };
  const { state } = await up(`chaos-${randomBytes(4).toString("hex")}`, settings);
  return new TestbedSite(state, file, names);
}
