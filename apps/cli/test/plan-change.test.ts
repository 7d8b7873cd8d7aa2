import { findShippedProfile } from "@internevo/cost-model";
import { planLabel, type Candidate } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { beginPlanChange, endPlanChange, ensureRun, openPlanChange, submitJob } from "@internevo/store";
import { shippedProfileSpec } from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
import { run, startApiProcess, type ApiProcess, type Ended } from "./processes.ts";

let test: TestDatabase;
let api: ApiProcess;
beforeAll(async () => {
  test = await createTestDatabase();
  api = await startApiProcess(test);
});
afterAll(async () => {
  await api.stop();
  await test.drop();
});

const internevo = (...args: string[]): Promise<Ended> =>
  run(args, { INTERNEVO_URL: api.url, INTERNEVO_TOKEN: api.token });

/** A job that trains with the best plan. */
async function training(): Promise<{ id: string; runId: string; plans: Candidate[] }> {
  const profile = findShippedProfile("a800-128");
  if (!profile) throw new Error("the profile ships with the project");
  const job = shippedProfileSpec();
  const { candidates } = planJob(job, profile, { top: 5 });
  const { database } = test;
  const id = await database.transaction((tx) => submitJob(tx, job));
  const made = await database.transaction((tx) => ensureRun(tx, id, candidates[0] as Candidate));
  await database.db.execute(`update jobs set state = 'running' where id = '${id}'`);
  return { id, runId: made.id, plans: candidates };
}

it("asks for a change, waits for what becomes of it, and shows it", async () => {
  const { id, runId, plans } = await training();
  const { database } = test;
  expect((await internevo("plan-change", "changing")).stdout).toBe("no plan changes\n");
  const asked = await internevo("plan-change", "ask", "changing", "2", "--threshold", "5%");
  expect([asked.status, asked.stdout]).toEqual([
    0,
    expect.stringMatching(/^plan change [^]*asked for: waits for a checkpoint; predicted to gain −/),
  ]);
  const again = await internevo("plan-change", "ask", "changing", "3");
  expect([again.status === 0, again.stderr]).toEqual([false, expect.stringContaining("dismiss it first")]);
  const [, changeId = ""] = /^plan change (\S+)/.exec(asked.stdout) ?? [];
  const unknown = await internevo("plan-change", "dismiss", id, "nothing");
  expect([unknown.status, unknown.stderr]).toEqual([
    4,
    expect.stringContaining("there is no plan change nothing"),
  ]);
  const dismissed = await internevo("plan-change", "dismiss", id, changeId.slice(0, 8));
  expect(dismissed.stdout).toContain("dismissed: dismissed by");
  const waiting = internevo("plan-change", "ask", id, planLabel((plans[1] as Candidate).plan), "--wait");
  const change = await (async () => {
    for (;;) {
      const open = await openPlanChange(database.db, { id: runId, jobId: id });
      if (open) return open;
    }
  })();
  await database.transaction(async (tx) => {
    await beginPlanChange(tx, change, { atStep: 40, attempt: 2 });
    const comparison = { secondsBefore: 2, secondsAfter: 1.5, measuredGain: 0.25, steps: 10 };
    await endPlanChange(tx, change, { state: "kept", reason: "a step took less", comparison });
  });
  expect((await waiting).stdout).toContain("kept: a step took less since step 40");
  expect((await internevo("plan-change", "list", id)).stdout).toMatch(
    /kept +40 +−\S+ +\+25\.0%[^]*dismissed/,
  );
  expect((await internevo("show", id)).stdout).toContain("plan change\n  from ");
  const wrong = await internevo("plan-change", "ask", id, "2", "--threshold", "7");
  expect([wrong.status, wrong.stderr]).toEqual([2, expect.stringContaining("from -100% to 100%")]);
  const none = await internevo("plan-change", "ask", id, "nothing.json");
  expect([none.status === 0, none.stderr]).toEqual([false, expect.stringContaining("nothing.json")]);
});
