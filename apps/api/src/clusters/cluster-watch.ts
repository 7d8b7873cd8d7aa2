import { setTimeout as delay } from "node:timers/promises";
import {
  knownClusters,
  type ClusterLook,
  type KnownCluster,
  type LaunchCapabilities,
} from "@internevo/launcher";

/** A look is not repeated before. */
const FRESH_MILLISECONDS = 30_000;
/** Whoever asks waits so long for a look; then he is told what was seen last. */
const PATIENCE_MILLISECONDS = 2000;
/** A look that takes longer is given up. */
const MOST_LOOK_MILLISECONDS = 60_000;

/** A cluster, and what was seen when it was looked at last. */
export interface SeenCluster {
  readonly name: string;
  readonly launcher: KnownCluster["launcher"];
  readonly hosts: KnownCluster["hosts"];
  /** Undefined: the first look is not over. */
  readonly seen: { readonly look: ClusterLook; readonly at: Date } | undefined;
}

interface Watched {
  seen?: { readonly look: ClusterLook; readonly at: Date };
  pending?: Promise<void>;
}

/** Looks at clusters when somebody asks for them, at most every half minute, whoever asks. */
export class ClusterWatch {
  readonly #here: LaunchCapabilities;
  readonly #watched = new Map<string, Watched>();
  readonly #closed = new AbortController();
  readonly #onError: (error: unknown, cluster: string) => void;

  /** @param onError told of a look that failed otherwise than by the cluster's being away. */
  constructor(here: LaunchCapabilities, onError: (error: unknown, cluster: string) => void) {
    this.#here = here;
    this.#onError = onError;
  }

  /** @throws ProblemError `unavailable` when the clusters file cannot be read or is wrong. */
  async clusters(): Promise<readonly SeenCluster[]> {
    const known = await knownClusters(this.#here);
    const watched = known.map((cluster) => ({ cluster, watch: this.#watch(cluster) }));
    await this.#patiently(watched.flatMap(({ watch }) => watch.pending ?? []));
    return watched.map(({ cluster: { name, launcher, hosts }, watch: { seen } }) => ({
      name,
      launcher,
      hosts,
      seen,
    }));
  }

  /** Ends looks that are under way. */
  close(): void {
    this.#closed.abort();
  }

  /** Begins a look where the last one is too long ago. */
  #watch(cluster: KnownCluster): Watched {
    const key = `${cluster.launcher}:${cluster.name}`;
    const watch = this.#watched.get(key) ?? {};
    this.#watched.set(key, watch);
    const age = watch.seen === undefined ? Infinity : Date.now() - watch.seen.at.getTime();
    if (watch.pending === undefined && age >= FRESH_MILLISECONDS)
      watch.pending = this.#look(cluster, watch).finally(() => delete watch.pending);
    return watch;
  }

  async #look(cluster: KnownCluster, watch: Watched): Promise<void> {
    const signal = AbortSignal.any([this.#closed.signal, AbortSignal.timeout(MOST_LOOK_MILLISECONDS)]);
    try {
      watch.seen = { look: await cluster.look(signal), at: new Date() };
    } catch (error) {
      if (!this.#closed.signal.aborted) this.#onError(error, cluster.name);
    }
  }

  async #patiently(pending: readonly Promise<void>[]): Promise<void> {
    if (pending.length === 0) return;
    const enough = new AbortController();
    const patience = delay(PATIENCE_MILLISECONDS, undefined, { signal: enough.signal }).catch(
      () => undefined,
    );
    await Promise.race([Promise.all(pending), patience]);
    enough.abort();
  }
}
