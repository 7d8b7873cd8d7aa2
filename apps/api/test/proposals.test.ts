import { findShippedProfile } from "@internevo/cost-model";
import {
  PlanChangeSchema,
  ProposalSchema,
  WORKLOAD_DEFAULTS,
  WorkloadSchema,
  type Candidate,
  type JobSpec,
  type PlanChange,
  type Proposal,
  type Workload,
} from "@internevo/domain";
import { planJob } from "@internevo/search";
import { carryOutProposal } from "@internevo/stages";
import {
  beginPlanChange,
  createProject,
  createProposal,
  createWorkload,
  endPlanChange,
  ensureRun,
  finishFiring,
  fireWorkloadNow,
  openPlanChange,
  storePlanChange,
  submitJob,
  type NewPlanChange,
} from "@internevo/store";
import { shippedProfileSpec } from "@internevo/test-kit/fixtures";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { jobFile, problem, shaped, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let plans: readonly Candidate[];
const spec: JobSpec = shippedProfileSpec();
beforeAll(async () => {
  api = await startTestApi();
  const profile = findShippedProfile("a800-128");
  if (!profile) throw new Error("the profile ships with the project");
  plans = planJob(spec, profile, { top: 3 }).candidates;
});
afterAll(() => api.close());
afterEach(() => api.database.db.execute("update jobs set state = 'cancelled'"));

let made = 0;
const createNightly = (): Promise<Workload> =>
  createWorkload(api.database.db, {
    name: `nightly-${(made += 1)}`,
    spec,
    cron: "0 3 * * *",
    timeZone: "UTC",
    nextRunAt: null,
    gainThreshold: 0.03,
    compareSteps: 7,
  });
/** @param to the place of the plan that is proposed in the search */
const propose = (workload: Workload, to = 1): Promise<Proposal | undefined> =>
  api.database.transaction(async (tx) => {
    const { id: firingId } = await fireWorkloadNow(tx, workload.id);
    const proposal = await createProposal(tx, {
      workloadId: workload.id,
      firingId,
      planningId: null,
      current: plans[0] as Candidate,
      proposed: plans[to] as Candidate,
      predictedGain: 0.1,
      differences: [],
    });
    await finishFiring(tx, firingId, { state: "succeeded", outcome: "proposed" });
    return proposal;
  });
/** A job of the same work that trains with the best plan. */
async function training(): Promise<string> {
  const id = await api.database.transaction((tx) => submitJob(tx, spec));
  await api.database.transaction((tx) => ensureRun(tx, id, plans[0] as Candidate));
  await api.database.db.execute(`update jobs set state = 'running' where id = '${id}'`);
  return id;
}
const send = (
  method: "GET" | "POST" | "PATCH" | "DELETE",
  url: string,
  payload?: object,
  authorization = api.bearer.operator,
) =>
  api.app.inject({
    method,
    url: `/api/v1/${url}`,
    headers: { authorization },
    ...(payload === undefined ? {} : { payload }),
  });
const answer = (workload: Workload, id: string | undefined, what: string, who?: string) =>
  send("POST", `workloads/${workload.id}/proposals/${id ?? ""}/${what}`, undefined, who);
const proposalsOf = async (workload: Workload): Promise<Proposal[]> =>
  (await send("GET", `workloads/${workload.id}/proposals`)).json<{ items: Proposal[] }>().items;

describe("a proposal", () => {
  it("is carried out by the run that does the work, and goes the way of its plan change", async () => {
    const workload = await createNightly();
    const proposal = await propose(workload);
    const jobId = await training();
    const applying = shaped(ProposalSchema, await answer(workload, proposal?.id, "apply"));
    expect(applying).toMatchObject({ state: "applying", jobId, measuredGain: null });
    const [change] = (await send("GET", `jobs/${jobId}/plan-changes`)).json<{ items: object[] }>().items;
    expect(change).toMatchObject({
      state: "asked",
      origin: "person",
      askedBy: "operator",
      isTrial: false,
      proposalId: proposal?.id,
      gainThreshold: 0.03,
      compareSteps: 7,
      to: { plan: plans[1]?.plan },
    });
    // Who carries it out has it: nobody answers it meanwhile.
    expect(problem(await answer(workload, proposal?.id, "dismiss"), 409, "conflict").detail).toContain(
      "being applied",
    );
    const { id } = change as { id: string };
    shaped(PlanChangeSchema, await send("DELETE", `jobs/${jobId}/plan-changes/${id}`));
    expect(await proposalsOf(workload)).toMatchObject([
      { state: "dismissed", reason: "dismissed by operator", jobId },
    ]);
  });

  it("is carried out for a paused workload where somebody asks for it", async () => {
    const workload = await createNightly();
    const proposal = await propose(workload);
    await training();
    expect((await send("PATCH", `workloads/${workload.id}`, { enabled: false })).statusCode).toBe(200);
    expect(shaped(ProposalSchema, await answer(workload, proposal?.id, "apply")).state).toBe("applying");
  });

  it("is tried by a run, one change at a time", async () => {
    const [first, second] = [await createNightly(), await createNightly()];
    const [one, other] = [await propose(first), await propose(second, 2)];
    const jobId = await training();
    expect(shaped(ProposalSchema, await answer(first, one?.id, "try"))).toMatchObject({
      state: "trying",
      jobId,
    });
    expect((await send("GET", `jobs/${jobId}/plan-changes`)).json()).toMatchObject({
      items: [{ isTrial: true, state: "asked" }],
    });
    problem(await answer(second, other?.id, "apply"), 409, "conflict");
    expect(await proposalsOf(second)).toMatchObject([{ state: "proposed", jobId: null }]);
  });

  it("stays tried, and waits for an answer, where its run went back though it gained", async () => {
    const workload = await createNightly();
    const proposal = await propose(workload);
    const jobId = await training();
    await answer(workload, proposal?.id, "apply");
    const reason = "tried: a step took less; in doubt, since other work ran on the hosts meanwhile";
    const comparison = { secondsBefore: 2, secondsAfter: 1, measuredGain: 0.5, steps: 7 };
    await api.database.transaction(async (tx) => {
      const run = await ensureRun(tx, jobId, plans[0] as Candidate);
      const change = await openPlanChange(tx, { id: run.id, jobId });
      if (!change) throw new Error("no change is open");
      await beginPlanChange(tx, change, { atStep: 10, attempt: 2 });
      await endPlanChange(tx, change, { state: "returned", reason, comparison, proposalWaits: true });
    });
    expect(await proposalsOf(workload)).toMatchObject([{ state: "tried", reason, measuredGain: 0.5 }]);
    expect(shaped(ProposalSchema, await answer(workload, proposal?.id, "apply")).state).toBe("applying");
  });

  it("is refused with a reason where no run can go over to it", async () => {
    const workload = await createNightly();
    const proposal = await propose(workload);
    expect(problem(await answer(workload, proposal?.id, "apply"), 409, "conflict").detail).toContain(
      "no job of the workload trains now",
    );
    problem(await answer(workload, "nothing", "apply"), 404, "not-found");
    problem(await answer(await createNightly(), proposal?.id, "apply"), 404, "not-found");
    problem(await answer(workload, proposal?.id, "dismiss", api.bearer.viewer), 403, "forbidden");
    // The run has another plan by now.
    const jobId = await training();
    await api.database.db.execute(
      `update runs set candidate = '${JSON.stringify(plans[2])}' where job_id = '${jobId}'`,
    );
    expect(problem(await answer(workload, proposal?.id, "apply"), 409, "conflict").detail).toContain(
      "it was found for another plan",
    );
  });

  it("gives way to a newer one, and is answered once", async () => {
    const workload = await createNightly();
    const [older, newer] = [await propose(workload), await propose(workload, 2)];
    expect((await proposalsOf(workload)).map(({ id, state }) => [id, state])).toEqual([
      [newer?.id, "proposed"],
      [older?.id, "superseded"],
    ]);
    problem(await answer(workload, older?.id, "dismiss"), 409, "conflict");
    expect(shaped(ProposalSchema, await answer(workload, newer?.id, "dismiss"))).toMatchObject({
      state: "dismissed",
      reason: "dismissed by operator",
    });
    problem(await answer(workload, newer?.id, "dismiss"), 409, "conflict");
  });
});

/** What a workload's policy asks of a run. */
const pursue = (workload: Workload, proposalId = ""): Promise<Proposal> =>
  api.database.transaction((tx) =>
    carryOutProposal(tx, { workload, proposalId, how: "apply", askedBy: "replanner", origin: "workload" }),
  );
const changesOf = async (jobId: string): Promise<PlanChange[]> =>
  (await send("GET", `jobs/${jobId}/plan-changes`)).json<{ items: PlanChange[] }>().items;
const pause = async (workload: Workload): Promise<void> => {
  const reply = await send("PATCH", `workloads/${workload.id}`, { enabled: false });
  expect(shaped(WorkloadSchema, reply).enabled).toBe(false);
};

describe("a workload that is paused", () => {
  it("takes back what it asked a run for by itself, so that somebody may answer", async () => {
    const workload = await createNightly();
    const proposal = await propose(workload);
    const jobId = await training();
    expect(await pursue(workload, proposal?.id)).toMatchObject({ state: "applying", jobId });
    await pause(workload);
    const reason = "the workload was paused by operator";
    expect(await changesOf(jobId)).toMatchObject([{ state: "dismissed", origin: "workload", reason }]);
    expect(await proposalsOf(workload)).toMatchObject([{ state: "proposed", reason, jobId: null }]);
    expect(shaped(ProposalSchema, await answer(workload, proposal?.id, "apply")).state).toBe("applying");
    // Somebody asked for it: another pause leaves it alone.
    await pause(workload);
    expect(await changesOf(jobId)).toMatchObject([
      { state: "asked", origin: "person" },
      { state: "dismissed" },
    ]);
    expect(await proposalsOf(workload)).toMatchObject([{ state: "applying" }]);
  });

  it("leaves a newer proposal the one that waits", async () => {
    const workload = await createNightly();
    const older = await propose(workload);
    await training();
    await pursue(workload, older?.id);
    await propose(workload, 2);
    await pause(workload);
    expect((await proposalsOf(workload)).map(({ state }) => state)).toEqual(["proposed", "superseded"]);
  });

  it("takes back a search, and nothing of another workload", async () => {
    const [workload, other] = [await createNightly(), await createNightly()];
    const jobId = await training();
    await api.database.transaction(async (tx) => {
      const { id: firingId } = await fireWorkloadNow(tx, workload.id);
      const run = await ensureRun(tx, jobId, plans[0] as Candidate);
      const inUse = plans[0] as Candidate;
      const search: NewPlanChange = {
        state: "searching",
        reason: "measurements are old",
        origin: "workload",
        askedBy: "replanner",
        from: inUse,
        to: inUse,
        predictedGain: 0,
        gainThreshold: 0,
        compareSteps: 5,
        firingId,
      };
      await storePlanChange(tx, { id: run.id, jobId }, search);
    });
    await pause(other);
    expect(await changesOf(jobId)).toMatchObject([{ state: "searching" }]);
    await pause(workload);
    expect(await changesOf(jobId)).toMatchObject([
      { state: "dismissed", reason: "measurements are old; the workload was paused by operator" },
    ]);
  });

  it("lets a run compare what it has begun", async () => {
    const workload = await createNightly();
    const proposal = await propose(workload);
    const jobId = await training();
    await pursue(workload, proposal?.id);
    await api.database.transaction(async (tx) => {
      const run = await ensureRun(tx, jobId, plans[0] as Candidate);
      const change = await openPlanChange(tx, { id: run.id, jobId });
      await beginPlanChange(tx, change as PlanChange, { atStep: 10, attempt: 2 });
    });
    await pause(workload);
    expect(await changesOf(jobId)).toMatchObject([{ state: "comparing" }]);
    expect(await proposalsOf(workload)).toMatchObject([{ state: "applying", jobId }]);
  });
});

describe("a workload", () => {
  it("takes back what it asked a run for when it is removed", async () => {
    const workload = await createNightly();
    const proposal = await propose(workload);
    const jobId = await training();
    await pursue(workload, proposal?.id);
    expect((await send("DELETE", `workloads/${workload.id}`)).statusCode).toBe(204);
    expect(await changesOf(jobId)).toMatchObject([
      { state: "dismissed", reason: "the workload was removed by operator" },
    ]);
  });

  it("has its defaults, and is changed, paused and resumed", async () => {
    const body = { name: "edited", job: jobFile(api), cron: "0 3 * * *" };
    const workload = shaped(WorkloadSchema, await send("POST", "workloads", body));
    expect(workload).toMatchObject({ ...WORKLOAD_DEFAULTS, enabled: true });
    const url = `workloads/${workload.id}`;
    const change = { policy: "apply", changeWindow: { from: "22:00", to: "06:00" }, gainThreshold: 0.1 };
    expect(shaped(WorkloadSchema, await send("PATCH", url, change))).toEqual({ ...workload, ...change });
    expect(shaped(WorkloadSchema, await send("PATCH", url, { enabled: false }))).toMatchObject({
      enabled: false,
      nextRunAt: workload.nextRunAt,
    });
    const later = shaped(WorkloadSchema, await send("PATCH", url, { cron: "30 4 * * *", enabled: true }));
    expect(later.nextRunAt).toMatch(/T04:30:00/);
    const job = jobFile(api, { name: "other" });
    expect(shaped(WorkloadSchema, await send("PATCH", url, { job })).spec.name).toBe("other");
  });

  it.each([
    ["nothing", {}, 400, ""],
    ["a time that is none", { changeWindow: { from: "24:00", to: "06:00" } }, 400, "changeWindow.from"],
    ["a policy that is none", { policy: "yolo" }, 400, "policy"],
    ["no schedule", { cron: "every night" }, 400, "cron"],
    ["no time zone", { timeZone: "Mars/Olympus" }, 400, "timeZone"],
    ["a wrong job", { job: { name: "x" } }, 422, "job.model"],
    ["a job that measures again", { job: { measureAgain: true } }, 422, "job.measureAgain"],
    ["another project's job", { job: { project: "vision" } }, 400, "job.project"],
  ] as const)("is not changed by %s", async (_what, change, status, field) => {
    const name = `refuses-${(made += 1)}`;
    await api.database
      .transaction((tx) => createProject(tx, { name: "vision" }))
      .catch(() => {
        /* An earlier case has made it. */
      });
    const workload = shaped(
      WorkloadSchema,
      await send("POST", "workloads", { name, job: jobFile(api), cron: "0 3 * * *" }),
    );
    const whole = "job" in change && !("name" in change.job) ? { job: jobFile(api, change.job) } : change;
    const reply = await send("PATCH", `workloads/${workload.id}`, whole);
    const said = problem(reply, status, status === 422 ? "job-invalid" : "bad-request");
    if (field !== "") expect(said.errors?.map((detail) => detail.field)).toContain(field);
    expect(shaped(WorkloadSchema, await send("GET", `workloads/${workload.id}`))).toEqual(workload);
  });

  it("is not made of a job that would measure everything each time", async () => {
    const job = jobFile(api, { measureAgain: true });
    const reply = await send("POST", "workloads", { name: "measures", job, cron: "0 3 * * *" });
    expect(problem(reply, 422, "job-invalid").errors).toMatchObject([
      { field: "job.measureAgain", value: true, remedy: expect.stringContaining("leave it out") },
    ]);
    const without = jobFile(api, { measureAgain: false });
    shaped(
      WorkloadSchema,
      await send("POST", "workloads", { name: "measures", job: without, cron: "0 3 * * *" }),
    );
  });

  it("is not found, or keeps its name from others", async () => {
    problem(await send("PATCH", "workloads/nothing", { enabled: false }), 404, "not-found");
    const [one, other] = [await createNightly(), await createNightly()];
    problem(await send("PATCH", `workloads/${one.id}`, { name: other.name }), 409, "conflict");
  });
});
