import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parsePlanPart, type Plan } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { getJobDetail, getPlanning, listTrials } from "@internevo/store";
import { WIDE_HEADS_ON_GPUS } from "@internevo/test-kit";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { profiler } from "@internevo/profiler";
import { planner } from "../src/index.ts";

let world: World;
beforeAll(async () => {
  world = await createWorld();
  await world.start(profiler);
  await world.start(planner);
});
afterAll(() => world.close());

const planned = (over: Record<string, unknown> = {}, cluster: Record<string, unknown> = {}) =>
  smallJob({
    ...over,
    cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB", profile: world.profileId, ...cluster },
  });

async function failureOf(job: Record<string, unknown>) {
  const id = await world.submit(job);
  await world.untilState(id, "failed", 30);
  return world.job(id);
}

describe("planner", () => {
  it("stores the ranked plans with all counts, and makes the best runnable ones trials", async () => {
    const id = await world.submit(planned({ trials: { count: 4 } }));
    await world.untilState(id, "trialling", 30);
    const job = await world.job(id);
    const planning = await getPlanning(world.database.db, job.planningId as string);
    if (!planning) throw new Error("no planning");
    const { evaluated, feasible, rejected, pruned = 0 } = planning.counts;
    expect(feasible).toBeGreaterThan(0);
    expect(feasible + pruned + Object.values(rejected).reduce((sum, count) => sum + count, 0)).toBe(
      evaluated,
    );
    const trials = await listTrials(world.database.db, id);
    expect(trials.map((trial) => trial.candidate.plan)).toEqual(
      planning.runnableCandidates.slice(0, 4).map((candidate) => candidate.plan),
    );
    expect(trials.every((trial) => trial.state === "pending" && trial.candidate.runnable)).toBe(true);
    expect(trials).toHaveLength(4);
    const { transitions } = (await getJobDetail(world.database.db, id)) ?? {};
    expect(transitions?.at(-1)?.reason, "as people read counts").toMatch(
      /^\d{1,3}(,\d{3})* plans were considered; 4 are tried$/,
    );
  });

  it("tries the best plan with each part that is asked for beside the best ones", async () => {
    const also = ["tp2", "pp2 dp4", "b8 sp4", "dp8", "tp4 b2"];
    const id = await world.submit(planned({ trials: { count: 1, also } }));
    await world.untilState(id, "trialling", 30);
    const tried = (await listTrials(world.database.db, id)).map(({ candidate }) => candidate);
    const { spec } = await world.job(id);
    const all = planJob(spec, world.profile, { top: 1e6, exhaustive: true }).runnableCandidates;
    const isPart = (plan: Plan, part: object) =>
      Object.entries(part).every(([field, value]) => plan[field as keyof Plan] === value);
    const wanted = also.map((text) => all.find(({ plan }) => isPart(plan, parsePlanPart(text)))?.rank);
    expect(wanted).not.toContain(undefined);
    expect(tried.map(({ rank }) => rank)).toEqual([...new Set([1, ...wanted])].sort((a = 0, b = 0) => a - b));
    for (const { rank, plan, predicted } of tried) {
      const same = all.find((each) => each.rank === rank);
      expect({ plan, predicted }).toEqual({ plan: same?.plan, predicted: same?.predicted });
    }
  });

  it("says for which part nothing more is tried", async () => {
    const id = await world.submit(planned({ trials: { count: 1, also: ["pp2 tp4 dp1 ps8"] } }));
    await world.untilState(id, "trialling", 30);
    const { transitions } = (await getJobDetail(world.database.db, id)) ?? {};
    expect(transitions?.at(-1)?.reason).toMatch(/1 is tried; nothing more is tried for pp2 tp4 dp1 ps8$/);
  });

  it("says what would fit when nothing does", async () => {
    const { id, failure, planningId } = await failureOf(planned({}, { memoryPerGpu: "1MB" }));
    expect(failure).toMatchObject({
      code: "no-feasible-plan",
      message: expect.stringMatching(
        /no plan fits in .*; the one that needs the least memory needs .*, of which [a-z -]+ [\d.]+ .iB \(b\d+ .*rejected: does not fit in memory/,
      ),
      remedy: expect.stringContaining("cluster.memoryPerGpu"),
    });
    const planning = await getPlanning(world.database.db, planningId as string);
    expect(planning?.closest?.peakMemoryBytes).toBeGreaterThan(1e6);
    expect(failure?.remedy).toContain(String(planning?.closest?.peakMemoryBytes));
    expect(await listTrials(world.database.db, id)).toEqual([]);
  });

  it("says which constraint stands in the way when no plan divides", async () => {
    // One sequence a step, and 7 ranks over which neither the batch nor heads nor layers divide.
    const { failure } = await failureOf(
      planned({ sequenceLengthTokens: 64, globalBatchTokens: 64 }, { gpusPerNode: 7 }),
    );
    expect(failure).toMatchObject({
      code: "no-feasible-plan",
      message: expect.stringMatching(/none of [\d,]+ plans divides.* not divisible/),
    });
  });

  it("fails a job whose feasible plans the executor does not run yet", async () => {
    const { model, cluster } = WIDE_HEADS_ON_GPUS;
    const { failure } = await failureOf(planned({ model }, { device: cluster.device }));
    expect(failure).toMatchObject({
      code: "plan-unsupported",
      message: expect.stringMatching(
        /^\d+ plans fit in memory\. InternEvo's own trainer cannot run it: heads of 512 elements on GPUs, where 256 is the most$/,
      ),
      remedy: expect.stringMatching(/^use 4 heads or more/),
    });
  });

  it("fails a job without data after it is planned", async () => {
    const { failure, planningId } = await failureOf(planned({ data: undefined }));
    expect(failure?.code).toBe("data-invalid");
    expect(planningId).not.toBeNull();
  });
});
