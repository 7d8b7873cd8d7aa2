import { setTimeout as sleep } from "node:timers/promises";
import { KubernetesAwayError, KubernetesRefusalError, type KubernetesApi } from "./api.ts";

/** The server ends a watch after so long; one that is silent for longer is lost. */
const WATCH_SECONDS = 60;
const LOST_SECONDS = 75;
const RETRY_MILLISECONDS = 1000;

/** What all objects have. */
export interface Named {
  readonly metadata: { readonly name: string; readonly uid: string; readonly resourceVersion?: string };
}

interface List<T> {
  readonly metadata: { readonly resourceVersion: string };
  readonly items: readonly T[];
}

interface Change<T> {
  readonly type: string;
  readonly object: T & { readonly code?: number; readonly message?: string };
}

/** The version from which a watch began is too old: what happened since is forgotten. */
class ForgottenError extends Error {}

/** The objects of a selection, kept by a list and a watch that begins where the list or the last watch ended. */
export class WatchedList<T extends Named> {
  readonly #api: KubernetesApi;
  readonly #path: string;
  readonly #selection: Readonly<Record<string, string>>;
  readonly #kept: (object: T) => T;
  readonly #end = new AbortController();
  readonly #objects = new Map<string, T>();
  #version: string | undefined;
  #away: string | undefined = "it has not been asked yet";
  #refusal: KubernetesRefusalError | undefined;

  /** @param kept what is kept of an object: all of it unless said otherwise. */
  constructor(
    api: KubernetesApi,
    path: string,
    selection: Readonly<Record<string, string>>,
    kept: (object: T) => T = (object) => object,
  ) {
    this.#api = api;
    this.#path = path;
    this.#selection = selection;
    this.#kept = kept;
    void this.#follow();
  }

  get objects(): readonly T[] {
    return [...this.#objects.values()];
  }

  /** Why the objects may not be as they are told; undefined: they are. */
  get away(): string | undefined {
    return this.#away;
  }

  /** The server forbids to look, or has no such kind. */
  get refusal(): KubernetesRefusalError | undefined {
    return this.#refusal;
  }

  close(): void {
    this.#end.abort();
  }

  /** In a property of its own: while it is awaited the end may come. */
  get #isOver(): boolean {
    return this.#end.signal.aborted;
  }

  async #follow(): Promise<void> {
    while (!this.#isOver) {
      try {
        if (this.#version === undefined) await this.#list();
        await this.#watch(this.#version ?? "");
      } catch (error) {
        if (this.#isOver) return;
        if (error instanceof ForgottenError) {
          this.#version = undefined;
          continue;
        }
        if (error instanceof KubernetesRefusalError) {
          if (error.status === 410) this.#version = undefined;
          else this.#refusal = error;
        } else if (!(error instanceof KubernetesAwayError)) this.#version = undefined;
        this.#away = (error as Error).message;
        await sleep(RETRY_MILLISECONDS, undefined, { ref: false });
      }
    }
  }

  async #list(): Promise<void> {
    const list = await this.#api.ask<List<T>>({ path: this.#path, query: this.#selection });
    this.#objects.clear();
    for (const each of list.items) this.#objects.set(each.metadata.uid, this.#kept(each));
    this.#version = list.metadata.resourceVersion;
  }

  #here(): void {
    this.#away = undefined;
    this.#refusal = undefined;
  }

  async #watch(version: string): Promise<void> {
    const query = {
      ...this.#selection,
      watch: "true",
      allowWatchBookmarks: "true",
      resourceVersion: version,
      timeoutSeconds: String(WATCH_SECONDS),
    };
    const signal = AbortSignal.any([this.#end.signal, AbortSignal.timeout(LOST_SECONDS * 1000)]);
    let forgotten = false;
    await this.#api.lines({ path: this.#path, query }, signal, {
      onOpen: () => this.#here(),
      onLine: (line) => {
        const change = JSON.parse(line) as Change<T>;
        if (change.type === "ERROR") forgotten = true;
        else this.#take(change);
      },
    });
    if (forgotten) throw new ForgottenError();
  }

  #take({ type, object }: Change<T>): void {
    this.#version = object.metadata.resourceVersion ?? this.#version;
    if (type === "BOOKMARK") return;
    if (type === "DELETED") this.#objects.delete(object.metadata.uid);
    else this.#objects.set(object.metadata.uid, this.#kept(object));
  }
}
