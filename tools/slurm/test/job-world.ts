import { eventually } from "@internevo/test-kit";
import { requestCancel } from "@internevo/store";
import { isAtRest } from "@internevo/domain";
import { executorSupervisor } from "@internevo/executor-supervisor";
import { planner } from "@internevo/planner";
import { profiler } from "@internevo/profiler";
import { trialRunner } from "@internevo/trial-runner";
import type { RunningService } from "@internevo/service-kit";
import { runOf } from "@internevo/test-kit/job-told";
import { createWorld, smallJob, type ServiceProcess, type World } from "@internevo/test-kit/world";
import type { SlurmOptions } from "../src/stand.ts";
import { createSite, type Site } from "./slurm-world.ts";

/** A Slurm cluster, and the services of all stages but training, which tests start and kill by themselves. */
export interface JobWorld {
  readonly site: Site;
  readonly world: World;
  readonly environment: Readonly<Record<string, string>>;
  /** A job whose plan is tried once, for a step, without measuring the cluster. */
  submit(cluster: Record<string, unknown>, over?: Record<string, unknown>): Promise<string>;
  /** The executor's supervisor {@link tidy}. */
  supervise(): Promise<RunningService>;
  /** The same as a process of its own. */
  executor(): Promise<ServiceProcess>;
  /** The Slurm jobs of ours, oldest first, once Slurm ends none of them any more. */
  slurmJobs(): ReturnType<Site["jobs"]>;
  runOf(jobId: string): ReturnType<typeof runOf>;
  /** Ends a node at once {@link tidy}. */
  killNode(node: string): Promise<void>;
  /** Ends what a test has left, and waits until every node can take jobs. */
  tidy(): Promise<void>;
  close(): Promise<void>;
}

export async function createJobWorld(slurm: SlurmOptions = {}): Promise<JobWorld> {
  const site = await createSite({}, slurm);
  const world = await createWorld();
  const environment = { INTERNEVO_CLUSTERS: site.clustersFile };
  const submitted: string[] = [];
  const killed: string[] = [];
  const supervisors: (() => Promise<void>)[] = [];
  for (const service of [profiler, planner, trialRunner])
    await world.start(service as typeof profiler, environment);
  const submit: JobWorld["submit"] = async (cluster, over = {}) => {
    const id = await world.submit(
      smallJob({
        cluster: {
          name: "site",
          launcher: "slurm",
          nodes: 2,
          gpusPerNode: 1,
          memoryPerGpu: "4GiB",
          profile: world.profileId,
          ...cluster,
        },
        trials: { count: 1, warmupSteps: 0, steps: 1, repeats: 0 },
        ...over,
      }),
    );
    submitted.push(id);
    return id;
  };
  return {
    site,
    world,
    environment,
    submit,
    async supervise() {
      const service = await world.start(executorSupervisor, environment);
      supervisors.push(() => service.stop());
      return service;
    },
    async executor() {
      const service = await world.startProcess("executor-supervisor", {
        ...environment,
        ...site.slurm.environment,
      });
      supervisors.push(() => service.kill());
      return service;
    },
    async slurmJobs() {
      const ours = async () => (await site.jobs()).filter(({ name }) => name.startsWith("internevo-"));
      await eventually(
        "Slurm has cleaned up",
        async () => (await ours()).every(({ state }) => state !== "COMPLETING"),
        60,
        site.slurm.logs,
      );
      return ours();
    },
    runOf: (jobId) => runOf(world.database.db, jobId),
    killNode(node) {
      killed.push(node);
      return site.slurm.killNode(node);
    },
    async tidy() {
      // Only a test that failed leaves a job: it must not take nodes from the next.
      for (const id of submitted.splice(0))
        if (!isAtRest((await world.job(id)).state))
          await world.database.transaction((tx) => requestCancel(tx, id));
      // It would take the work of the next test's.
      for (const end of supervisors.splice(0)) await end();
      for (const node of killed.splice(0)) await site.slurm.startNode(node);
      await site.slurm.slurm("scancel", "--user=root");
      await eventually(
        "no job is left in Slurm",
        async () =>
          (await site.jobs()).every(({ state }) => !["RUNNING", "PENDING", "COMPLETING"].includes(state)),
        60,
        site.slurm.logs,
      );
      await site.slurm.untilUp(site.slurm.nodes.length);
      for (const brake of [site.held, site.slowed]) brake.close();
    },
    async close() {
      await world.close();
      await site.close();
    },
  };
}
