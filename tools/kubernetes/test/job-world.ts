import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Watch } from "@kubernetes/client-node";
import type { JobSetStatus, KubernetesSettings, Pod } from "@internevo/launcher/kubernetes";
import { eventually } from "@internevo/test-kit";
import { runOf } from "@internevo/test-kit/job-told";
import { createWorld, smallJob, type ServiceProcess, type World } from "@internevo/test-kit/world";
import { KubernetesStand } from "../src/stand.ts";

export type JobState = Parameters<World["untilState"]>[1];

export const NODES = 2;
export const CPUS = 4;
const JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2";

/** A test cluster of two nodes, and what jobs on it need. Tests start the services. */
export interface JobWorld {
  readonly stand: KubernetesStand;
  readonly world: World;
  /** Of the services: it names the clusters. */
  readonly environment: Readonly<Record<string, string>>;
  /** A service as a process of its own. */
  startProcess(name: string): Promise<ServiceProcess>;
  /** A job whose plan is tried once, for a step, without measuring the cluster, unless `over` says otherwise. */
  submit(over?: Record<string, unknown>, cluster?: Record<string, unknown>): Promise<string>;
  jobSets(): Promise<readonly JobSetStatus[]>;
  pods(): Promise<readonly Pod[]>;
  nothingIsLeft(): Promise<unknown>;
  /** Waits until ranks of a job run in a stage. */
  untilRanks(id: string, stage: JobState): Promise<void>;
  runOf(jobId: string): ReturnType<typeof runOf>;
  close(): Promise<void>;
}

/** @param more clusters beside `site`, by what their settings have over those of the stand. */
export async function createJobWorld(
  more: Readonly<Record<string, Partial<KubernetesSettings>>> = {},
): Promise<JobWorld> {
  const stand = await KubernetesStand.start({ nodes: NODES, cpusPerNode: CPUS });
  const world = await createWorld();
  const directory = mkdtempSync(join(tmpdir(), "internevo-kubernetes-site-"));
  const clustersFile = join(directory, "clusters.json");
  // By this variable the test finds ranks again.
  const marked = { ...stand.settings, environment: { INTERNEVO_STACK_DIRECTORY: world.dataDirectory } };
  const clusters = Object.entries({ site: {}, ...more }).map(([name, over]) => [
    name,
    { kubernetes: { ...marked, ...over } },
  ]);
  writeFileSync(clustersFile, JSON.stringify({ clusters: Object.fromEntries(clusters) }));
  const environment = { INTERNEVO_CLUSTERS: clustersFile };
  const jobSets: JobWorld["jobSets"] = () => stand.list(JOBSETS, "jobsets");
  const pods: JobWorld["pods"] = () => stand.list("/api/v1", "pods");
  return {
    stand,
    world,
    environment,
    startProcess: (name) => world.startProcess(name, environment),
    submit: (over = {}, cluster = {}) =>
      world.submit(
        smallJob({
          cluster: {
            name: "site",
            launcher: "kubernetes",
            nodes: NODES,
            gpusPerNode: 1,
            memoryPerGpu: "4GiB",
            profile: world.profileId,
            ...cluster,
          },
          trials: { count: 1, warmupSteps: 0, steps: 1, repeats: 0 },
          ...over,
        }),
      ),
    jobSets,
    pods,
    nothingIsLeft: () =>
      eventually(
        "no JobSet and no pod is left",
        async () => (await jobSets()).length === 0 && (await pods()).length === 0,
        60,
        () => stand.logs(),
      ),
    async untilRanks(id, stage) {
      await world.untilState(id, stage, 200);
      await eventually(
        `ranks run while ${stage}`,
        () => world.rankPids().length >= NODES,
        60,
        () => world.logs(),
      );
    },
    runOf: (jobId) => runOf(world.database.db, jobId),
    async close() {
      await world.close();
      await stand.stop();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

interface LabelledJobSet {
  readonly metadata: { readonly uid: string; readonly annotations?: Readonly<Record<string, string>> };
}

/** Every JobSet that comes, also those that have gone meanwhile. */
export class WrittenJobSets {
  readonly #labels = new Map<string, string>();
  readonly #watch: Watch;
  #end: AbortController | undefined;
  #isOver = false;

  constructor({ stand }: Pick<JobWorld, "stand">) {
    this.#watch = new Watch(stand.config);
    void this.#follow();
  }

  /** Begins again while the API server is away: with what is there then. */
  async #follow(): Promise<void> {
    while (!this.#isOver)
      await new Promise<void>((resolve) => {
        this.#watch
          .watch(
            `${JOBSETS}/namespaces/default/jobsets`,
            {},
            (_, object: LabelledJobSet) =>
              void this.#labels.set(
                object.metadata.uid,
                object.metadata.annotations?.["internevo.dev/label"] ?? "",
              ),
            () => setTimeout(resolve, 50),
          )
          .then(
            (end) => (this.#end = end),
            () => setTimeout(resolve, 50),
          );
      });
  }

  /** What was launched, in the launcher's words, in the order of the alphabet. */
  get labels(): readonly string[] {
    return [...this.#labels.values()].sort();
  }

  close(): void {
    this.#isOver = true;
    this.#end?.abort();
  }
}
