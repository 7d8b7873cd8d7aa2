import { PlanChangePageSchema, type Problem } from "@internevo/contracts";
import { findShippedProfile } from "@internevo/cost-model";
import { planLabel, PlanChangeSchema, type Candidate, type Profile } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { createTrials, ensureRun, storePlanning, submitJob, updateJob } from "@internevo/store";
import { shippedProfileSpec } from "@internevo/test-kit/fixtures";
import { afterAll, beforeAll, expect, it } from "vitest";
import { problem, shaped, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let profile: Profile;
beforeAll(async () => {
  api = await startTestApi();
  const shipped = findShippedProfile("a800-128");
  if (!shipped) throw new Error("the profile ships with the project");
  profile = shipped;
});
afterAll(() => api.close());

/** A job that trains with the best plan. */
async function training(
  as: (best: Candidate) => Candidate = (best) => best,
): Promise<{ id: string; plans: Candidate[] }> {
  const job = shippedProfileSpec();
  const { candidates } = planJob(job, profile, { top: 5 });
  const id = await api.database.transaction((tx) => submitJob(tx, job));
  await api.database.transaction((tx) => ensureRun(tx, id, as(candidates[0] as Candidate)));
  await api.database.db.execute(`update jobs set state = 'running' where id = '${id}'`);
  return { id, plans: candidates };
}
const labelOf = (candidate: Candidate | undefined): string => planLabel((candidate as Candidate).plan);
const send = (
  method: "GET" | "POST" | "DELETE",
  url: string,
  payload?: object,
  authorization = api.bearer.operator,
) =>
  api.app.inject({
    method,
    url: `/api/v1/jobs/${url}`,
    headers: { authorization },
    ...(payload === undefined ? {} : { payload }),
  });
const ask = (id: string, body: object) => send("POST", `${id}/plan-changes`, body);
const refusalOf = async (id: string, body: object, status: number, code: Problem["code"]) =>
  (problem(await ask(id, body), status, code).errors ?? [])[0];

it("asks for a change with both predictions, one at a time, and takes it back in time", async () => {
  const { id, plans } = await training();
  const asked = await ask(id, { plan: labelOf(plans[1]), gainThreshold: 0.02, compareSteps: 5 });
  expect(asked.statusCode).toBe(201);
  const change = shaped(PlanChangeSchema, asked);
  expect(change).toMatchObject({
    jobId: id,
    state: "asked",
    origin: "person",
    askedBy: "operator",
    from: { plan: plans[0]?.plan },
    to: { plan: plans[1]?.plan, rank: plans[1]?.rank },
    gainThreshold: 0.02,
    compareSteps: 5,
    appliedAtStep: null,
    measuredGain: null,
  });
  const seconds = (candidate: Candidate | undefined) => candidate?.predicted.stepTimeSeconds ?? NaN;
  expect(change.to.stepTimeSeconds).toBeCloseTo(seconds(plans[1]), 12);
  expect(change.predictedGain).toBeCloseTo(1 - seconds(plans[1]) / seconds(plans[0]), 12);
  expect(await refusalOf(id, { plan: labelOf(plans[2]) }, 409, "conflict")).toMatchObject({
    field: "id",
    message: `has a plan change ${change.id} that is asked`,
    remedy: "dismiss it first, or wait until it is made and judged",
  });
  const dismissed = await send("DELETE", `${id}/plan-changes/${change.id}`);
  expect(shaped(PlanChangeSchema, dismissed)).toMatchObject({
    state: "dismissed",
    reason: "dismissed by operator",
  });
  problem(await send("DELETE", `${id}/plan-changes/${change.id}`), 409, "conflict");
  problem(await send("DELETE", `${id}/plan-changes/nothing`), 404, "not-found");
  problem(await send("DELETE", `nothing/plan-changes/${change.id}`), 404, "not-found");
  const second = shaped(PlanChangeSchema, await ask(id, { plan: 3 }));
  expect(second.to.plan).toEqual(plans[2]?.plan);
  const listed = shaped(
    PlanChangePageSchema,
    await send("GET", `${id}/plan-changes`, undefined, api.bearer.viewer),
  );
  expect(listed.items.map(({ id: one }) => one)).toEqual([second.id, change.id]);
  const { rows } = await api.database.db.execute(
    `select data from outbox where type = 'plan-change.transitioned' `,
  );
  expect(rows.map(({ data }) => data)).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ planChangeId: change.id, to: "asked", planAfter: plans[1]?.plan }),
      expect.objectContaining({ planChangeId: change.id, to: "dismissed" }),
      expect.objectContaining({ planChangeId: second.id, to: "asked" }),
    ]),
  );
  expect(rows).toHaveLength(3);
});

it("takes a rank from the job's own tables, whatever a search says now", async () => {
  const job = shippedProfileSpec();
  const planning = planJob(job, profile, { top: 6 });
  const plans = planning.candidates;
  const ranked = (rank: number, of: number): Candidate => ({ ...(plans[of - 1] as Candidate), rank });
  const askOf = async (rank: number) => {
    const { id } = await training();
    await api.database.transaction(async (tx) => {
      // As another measurement of the cluster ranked them.
      const candidates = [ranked(1, 1), ranked(2, 4), ranked(3, 2)];
      const stored = { ...planning, candidates, runnableCandidates: candidates };
      await updateJob(tx, id, { planningId: await storePlanning(tx, stored, { jobId: id }) });
      await createTrials(tx, id, [ranked(3, 5)]);
    });
    return shaped(PlanChangeSchema, await ask(id, { plan: rank })).to;
  };
  expect((await askOf(2)).plan).toEqual(plans[3]?.plan);
  // Trials are what tables show first.
  expect((await askOf(3)).plan).toEqual(plans[4]?.plan);
  // Of what is not kept, the search says the rank.
  expect((await askOf(6)).plan).toEqual(plans[5]?.plan);
});

it("says of both plans what the newest measurements predict, and the gain that follows", async () => {
  const { id, plans } = await training((best) => ({
    ...best,
    rank: 7,
    predicted: { ...best.predicted, stepTimeSeconds: 3 * best.predicted.stepTimeSeconds },
  }));
  const { from, to, predictedGain } = shaped(PlanChangeSchema, await ask(id, { plan: labelOf(plans[1]) }));
  expect(from).toMatchObject({ rank: 1, plan: plans[0]?.plan });
  expect(from.stepTimeSeconds).toBeCloseTo(plans[0]?.predicted.stepTimeSeconds ?? NaN, 12);
  expect(predictedGain).toBeCloseTo(1 - to.stepTimeSeconds / from.stepTimeSeconds, 12);
  expect(predictedGain).toBeLessThanOrEqual(0);
});

it("refuses what the run cannot go on under, and says what to do", async () => {
  const { id, plans } = await training();
  expect(await refusalOf(id, { plan: labelOf(plans[0]) }, 422, "plan-invalid")).toMatchObject({
    field: "plan",
    value: labelOf(plans[0]),
    message: "is the one that the job has",
  });
  // Everything on each rank, and every layer kept.
  const whole = "b1 n64 a0 pp1 dp16 tp1 sp1 ps1 gs1 oss1";
  expect(await refusalOf(id, { plan: whole }, 422, "plan-invalid")).toMatchObject({
    field: "plan",
    message: expect.stringContaining("does not fit: memory-exceeded"),
    remedy: expect.stringContaining("why-not"),
  });
  expect(await refusalOf(id, { plan: whole.replace("dp16", "dp3") }, 422, "plan-invalid")).toMatchObject({
    field: "plan",
  });
  problem(await ask("00000000-0000-4000-8000-000000000000", { plan: whole }), 404, "not-found");
  problem(await send("POST", `${id}/plan-changes`, { plan: whole }, api.bearer.viewer), 403, "forbidden");
  const without = await training();
  await api.database.db.execute(
    `update jobs set spec = jsonb_set(spec, '{checkpointing}', 'null') where id = '${without.id}'`,
  );
  expect(await refusalOf(without.id, { plan: labelOf(plans[1]) }, 409, "conflict")).toMatchObject({
    message: "writes no checkpoints to go on from",
  });
  await api.database.db.execute(`update jobs set state = 'succeeded' where id = '${id}'`);
  expect(await refusalOf(id, { plan: labelOf(plans[1]) }, 409, "conflict")).toMatchObject({
    message: "has succeeded",
    remedy: "ask of a job that trains",
  });
  const early = await api.database.transaction((tx) => submitJob(tx, shippedProfileSpec()));
  expect(await refusalOf(early, { plan: whole }, 409, "conflict")).toMatchObject({
    message: "does not train yet",
  });
});
