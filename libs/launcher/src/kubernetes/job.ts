import { join } from "node:path";
import { KubernetesAwayError, KubernetesRefusalError, type KubernetesApi, type Question } from "./api.ts";
import { IS_APPLIED, JOBSET_API, jobSetName, LAUNCH_LABEL, type JobSetObject } from "./objects.ts";
import { writeKubernetesRecord, type KubernetesRecord } from "./record.ts";
import { POD_FILES } from "./script.ts";
import { namespaceOf } from "./settings.ts";
import { isOnLostNode, isOver, type JobSetStatus, type Node, type Pod } from "./status.ts";

/** The kubelet ends the ranks of a pod that is killed after so long. */
const KILL_SECONDS = 1;
/** A pod whose node does not confirm its end is let go after so long. */
const FORCE_SECONDS = 20;

export const NODES_PATH = "/api/v1/nodes";
export const podsPath = (namespace: string): string => `/api/v1/namespaces/${namespace}/pods`;
export const jobSetsPath = (namespace: string): string =>
  `/apis/${JOBSET_API}/namespaces/${namespace}/jobsets`;

/** Whether the API server did not do what it was asked, which it may do later. */
export const isNotDone = (error: unknown): boolean =>
  error instanceof KubernetesAwayError || error instanceof KubernetesRefusalError;

/**
 * The JobSet of a record: found again by its name, written at most once. One whose identity is known is never
 * written again, so that one that somebody deletes stays deleted.
 */
export class LaunchedJobSet {
  readonly #api: KubernetesApi;
  readonly #runDirectory: string;
  #record: KubernetesRecord;

  constructor(api: KubernetesApi, runDirectory: string, record: KubernetesRecord) {
    this.#api = api;
    this.#runDirectory = runDirectory;
    this.#record = record;
  }

  get record(): KubernetesRecord {
    return this.#record;
  }

  get name(): string {
    return jobSetName(this.#record.marker);
  }

  get namespace(): string {
    return namespaceOf(this.#record.settings);
  }

  /** Selects its pods. */
  get selection(): { readonly labelSelector: string } {
    return { labelSelector: `${LAUNCH_LABEL}=${this.#record.marker}` };
  }

  update(change: Partial<KubernetesRecord>): void {
    this.#record = { ...this.#record, ...change };
    writeKubernetesRecord(this.#runDirectory, this.#record);
  }

  file(name: keyof typeof POD_FILES): string {
    return join(this.#record.directory, POD_FILES[name]);
  }

  get #path(): string {
    return `${jobSetsPath(this.namespace)}/${this.name}`;
  }

  find(): Promise<JobSetStatus | undefined> {
    return this.#api.find({ path: this.#path });
  }

  /** Writes it unless that has been done. @throws KubernetesRefusalError, KubernetesAwayError */
  async ensure(wanted: JobSetObject): Promise<void> {
    if (this.#record.uid !== null) return;
    const { metadata } = await this.#api.ask<JobSetStatus>({ ...IS_APPLIED, path: this.#path, body: wanted });
    this.update({ uid: metadata.uid });
  }

  async pods(): Promise<readonly Pod[]> {
    const list = await this.#api.ask<{ readonly items: readonly Pod[] }>({
      path: podsPath(this.namespace),
      query: this.selection,
    });
    return list.items;
  }

  /** The nodes by their names; none where the settings' account may not list them. */
  async nodes(): Promise<readonly Node[]> {
    try {
      return (await this.#api.ask<{ readonly items: readonly Node[] }>({ path: NODES_PATH })).items;
    } catch (error) {
      if (isNotDone(error)) return [];
      throw error;
    }
  }

  async #delete(path: string, more: Readonly<Record<string, unknown>> = {}): Promise<void> {
    const question: Question = {
      method: "DELETE",
      path,
      body: { apiVersion: "v1", kind: "DeleteOptions", ...more },
    };
    await this.#api.find(question);
  }

  /** Takes its pods away: ranks get the time of their grace for a checkpoint. */
  async askToEnd(): Promise<void> {
    await this.#delete(this.#path, { propagationPolicy: "Foreground" });
  }

  async #killPods(pods: readonly Pod[], isForced: boolean): Promise<void> {
    const nodes = isForced ? await this.nodes() : [];
    for (const pod of pods) {
      const gracePeriodSeconds = isOver(pod) || isOnLostNode(pod, nodes) ? 0 : KILL_SECONDS;
      await this.#delete(`${podsPath(this.namespace)}/${pod.metadata.name}`, {
        gracePeriodSeconds,
        preconditions: { uid: pod.metadata.uid },
      });
    }
  }

  /**
   * Deletes it, and waits until its pods have gone.
   * @param seconds how long that may take; @returns whether it is over: if not, the record says that it is to be
   * deleted.
   */
  async cancel(seconds: number, pause: (milliseconds: number) => Promise<unknown>): Promise<boolean> {
    if (!this.#record.cancelled) this.update({ cancelled: true });
    const begin = performance.now();
    const since = (): number => (performance.now() - begin) / 1000;
    for (;;) {
      try {
        await this.askToEnd();
        const pods = await this.pods();
        if (pods.length === 0 && (await this.find()) === undefined) return true;
        await this.#killPods(pods, since() >= Math.min(FORCE_SECONDS, seconds / 2));
      } catch (error) {
        if (!isNotDone(error)) throw error;
      }
      if (since() >= seconds) return false;
      await pause(500);
    }
  }
}
