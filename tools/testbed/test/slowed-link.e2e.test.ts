import { executorSupervisor } from "@internevo/executor-supervisor";
import { planLabel, quantile, resolveJob, type PlanChange } from "@internevo/domain";
import { planner } from "@internevo/planner";
import { profiler } from "@internevo/profiler";
import { replanner } from "@internevo/replanner";
import {
  allSteps,
  createWorkload,
  findRun,
  fireWorkloadNow,
  getFiring,
  getJobDetail,
  listPlanChanges,
} from "@internevo/store";
import { eventually } from "@internevo/test-kit";
import { givePlan, quicklyTried } from "@internevo/test-kit/planned-job";
import { createWorld, type World } from "@internevo/test-kit/world";
import { trialRunner } from "@internevo/trial-runner";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { clustersFileOf, down, shape, up, whyImpossible } from "../src/testbed.ts";

const FAST_BITS = 1e9;
/** Steps whose median is a step time. */
const MANY = 20;
const name = `t${process.pid}-slowed`;

describe.skipIf(whyImpossible() !== undefined)("a run whose link becomes slow", () => {
  let world: World;
  const environment = { INTERNEVO_CLUSTERS: clustersFileOf(name) };
  beforeAll(async () => {
    await up(name, { nodes: 2, ranksPerNode: 1, bandwidthBitsPerSecond: FAST_BITS, latencySeconds: 0 });
    world = await createWorld();
    for (const service of [profiler, planner, trialRunner])
      await world.start(service as typeof profiler, environment);
    await world.start(replanner, { ...environment, INTERNEVO_REPLANNER_POLL_SECONDS: "0.2" });
  }, 120_000);
  afterAll(async () => {
    await world.endJobs();
    await world.close();
    await down(name);
  });

  const stepsOf = async (jobId: string) =>
    allSteps(world.database.db, (await findRun(world.database.db, jobId))?.id ?? "");
  const planOf = async (jobId: string) => (await findRun(world.database.db, jobId))?.candidate.plan;
  /** When so many steps more are done. @returns the median of their step times, seconds */
  async function nextSteps(jobId: string, count = MANY): Promise<number> {
    const from = (await stepsOf(jobId)).length;
    const steps = await eventually(
      `${count} steps more`,
      async () => {
        const all = await stepsOf(jobId);
        return all.length >= from + count && all;
      },
      300,
      world.logs,
    );
    return quantile(
      steps.slice(-count).map(({ stepTimeSeconds }) => stepTimeSeconds),
      0.5,
    );
  }
  const untilJudged = (jobId: string, count: number): Promise<PlanChange> =>
    eventually(
      "a change of plan that has ended",
      async () => {
        const { items } = await listPlanChanges(world.database.db, jobId);
        const [newest] = items;
        return items.length === count && newest?.endedAt ? newest : undefined;
      },
      600,
      world.logs,
    );

  it("goes over to a plan that needs the link less, and is measured again when it has recovered", async () => {
    const file = quicklyTried({
      name: "slowed",
      model: { name: "wide", hiddenSize: 256, layers: 4, heads: 4, ffnHiddenSize: 512, vocabularySize: 256 },
      globalBatchTokens: 512,
      // The test ends it.
      steps: 1_000_000,
      cluster: { name, nodes: 2, gpusPerNode: 1, memoryPerGpu: "512MiB", launcher: "ssh" },
      replanning: {
        driftThreshold: 0.5,
        gainThreshold: 0.05,
        compareSteps: MANY,
        lastingSeconds: 0,
        leastPauseSeconds: 1,
      },
    });
    const { db } = world.database;
    const jobId = await world.submit(file);
    // Of plans without stages, whose every layer moves what the link is slow for, replicas first.
    const { given: dependent, profileId } = await givePlan(
      world,
      jobId,
      (found) =>
        found.find(({ plan }) => plan.dataParallel === 2) ??
        found.find(({ plan }) => plan.pipelineParallel === 1),
    );
    await world.start(executorSupervisor, environment);
    await world.untilEvent(jobId, ({ type }) => type === "step", 120);
    const fast = await nextSteps(jobId, 40);

    await shape(name, FAST_BITS / 4);
    const change = await untilJudged(jobId, 1);
    expect(change).toMatchObject({ state: "kept", origin: "drift", from: { plan: dependent.plan } });
    expect(change.measuredGain).toBeGreaterThan(0.05);
    const changed = await nextSteps(jobId);
    console.log(
      JSON.stringify({
        from: planLabel(change.from.plan),
        to: planLabel(change.to.plan),
        fastSeconds: fast,
        slowedSeconds: change.secondsBefore,
        changedSeconds: changed,
        predictedGain: change.predictedGain,
        measuredGain: change.measuredGain,
      }),
    );
    expect(changed).toBeLessThan(change.secondsBefore ?? 0);

    await shape(name, FAST_BITS);
    const workload = await createWorkload(db, {
      name: "slowed",
      spec: resolveJob(file),
      cron: "0 3 * * *",
      timeZone: "UTC",
      policy: "apply",
      mayMeasureRuns: true,
      gainThreshold: 0.05,
      compareSteps: MANY,
      notInLastSteps: MANY,
      nextRunAt: null,
    });
    await db.execute("update profiles set fresh_until = clock_timestamp()");
    const firing = await world.database.transaction((tx) => fireWorkloadNow(tx, workload.id));
    const nightly = await eventually(
      "the end of the nightly look",
      async () => {
        const { items } = await listPlanChanges(db, jobId);
        const looked = items.find(({ origin }) => origin === "workload");
        return looked?.endedAt ? looked : undefined;
      },
      600,
      world.logs,
    );
    expect(await getFiring(db, firing.id)).toMatchObject({ state: "succeeded" });
    console.log(JSON.stringify({ state: nightly.state, reason: nightly.reason }));
    // It is measured anew, and goes on under the plan that is the best with the link as it is.
    expect((await getJobDetail(db, jobId))?.profileId).not.toBe(profileId);
    expect(["kept", "returned", "dismissed"]).toContain(nightly.state);
    expect(await planOf(jobId)).toEqual(nightly.state === "kept" ? nightly.to.plan : nightly.from.plan);
    await nextSteps(jobId);
    const steps = await stepsOf(jobId);
    expect(steps.map(({ step }) => step)).toEqual(steps.map((_, index) => index + 1));
  }, 2_400_000);
});
