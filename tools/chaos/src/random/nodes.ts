import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { clustersOf, down, joinNode, up, type State } from "@internevo/testbed/testbed";

/** Nodes of a testbed, whose links can be cut. */
export class Nodes {
  readonly #state: State;
  readonly #mends = new Map<number, NodeJS.Timeout>();
  clustersFile = "";

  private constructor(state: State) {
    this.#state = state;
  }

  static async start(count: number): Promise<Nodes> {
    const name = `chaos-${randomBytes(4).toString("hex")}`;
    const settings = { nodes: count, ranksPerNode: 1, bandwidthBitsPerSecond: 1e9, latencySeconds: 0 };
    return new Nodes((await up(name, settings)).state);
  }

  /** Describes them to an installation, once under each name. */
  writeClusters(file: string, names: readonly string[]): void {
    const [cluster] = Object.values(clustersOf(this.#state).clusters);
    writeFileSync(
      file,
      JSON.stringify({ clusters: Object.fromEntries(names.map((name) => [name, cluster])) }),
    );
    this.clustersFile = file;
  }

  /** Nothing reaches a node, or leaves it, for so long; a cut that comes meanwhile replaces it. */
  cut(node: number, seconds: number): void {
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

  mend(): void {
    for (const node of [...this.#mends.keys()]) this.#join(node);
  }

  async stop(): Promise<void> {
    this.mend();
    await down(this.#state.name);
  }
}
