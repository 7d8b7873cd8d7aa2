import { join } from "node:path";
import { WAITS_FOR_CLUSTER } from "@internevo/contracts";
import { planLabel, resolveJob } from "@internevo/domain";
import {
  appendJobEvents,
  beginPlanChange,
  changeRunPlan,
  claimHosts,
  endPlanChange,
  jobLease,
  newTraceparent,
  startAttempt,
  storePlanChange,
  submitJob,
} from "@internevo/store";
import { afterAll, beforeAll, expect, it } from "vitest";
import { jobFile, seeder } from "./seed.ts";
import { startConsoleStack, type ConsoleStack } from "./stack.ts";

const PICTURES = process.env["INTERNEVO_PICTURES"];

let stack: ConsoleStack;
beforeAll(async () => {
  stack = await startConsoleStack();
}, 120_000);
afterAll(() => stack.close());

it("says with which nodes and plan each attempt ran, when that changed", async () => {
  const { id, runId, chosen } = await seeder(stack.database).running("lost-nodes");
  const other = { ...chosen, plan: { ...chosen.plan, recompute: !chosen.plan.recompute } };
  const begin = () => stack.database.transaction((tx) => startAttempt(tx, runId));
  await begin();
  const page = await stack.browser.newPage();
  await page.goto(`${stack.url}/jobs/${id}#token=${stack.tokens.viewer}`);
  const attempts = page.getByRole("table", { name: "Attempts" });
  await attempts.waitFor({ state: "attached" });
  expect(await attempts.textContent()).not.toContain(planLabel(chosen.plan));
  await stack.database.transaction((tx) => changeRunPlan(tx, runId, other));
  await begin();
  await page.reload();
  for (const { plan } of [chosen, other])
    await attempts.getByText(planLabel(plan)).waitFor({ state: "attached" });
  expect(await attempts.locator("td", { hasText: planLabel(other.plan) }).textContent()).toMatch(
    /1 of 1 node:/,
  );
  await page.close();
});

it("changes the plan of a job that trains, and shows what becomes of it", async () => {
  const { database } = stack;
  const { id, runId, chosen } = await seeder(database).running("changing");
  await database.transaction((tx) => startAttempt(tx, runId));
  const checkpointing = JSON.stringify({ everySteps: 20, keepLast: 2 });
  await database.db.execute(
    `update jobs set spec = jsonb_set(spec, '{checkpointing}', '${checkpointing}') where id = '${id}'`,
  );
  const to = { ...chosen, plan: { ...chosen.plan, recompute: !chosen.plan.recompute } };
  const run = { id: runId, jobId: id };
  const page = await stack.browser.newPage();
  await page.goto(`${stack.url}/jobs/${id}#token=${stack.tokens.admin}`);
  const section = page.locator("section", { has: page.getByRole("heading", { name: /^Plan change/ }) });
  await section.getByRole("button", { name: "Change the plan…" }).click();
  const dialog = page.getByRole("dialog", { name: "Train under another plan?" });
  await dialog.getByLabel("Least gain").fill("5");
  if (PICTURES) await page.screenshot({ path: join(PICTURES, "plan-change-dialog.png") });
  await dialog.getByRole("button", { name: "Leave it" }).click();
  const change = await database.transaction((tx) =>
    storePlanChange(tx, run, {
      origin: "person",
      askedBy: "operator",
      from: chosen,
      to,
      predictedGain: 0.2,
      gainThreshold: 0.05,
      compareSteps: 10,
    }),
  );
  await page.reload();
  await section.getByText("Waits for a checkpoint; predicted to gain +20.0%").waitFor();
  await section.getByText("Asked for", { exact: true }).first().waitFor();
  await section.getByRole("button", { name: "Dismiss this plan change" }).waitFor();
  if (PICTURES) await page.screenshot({ path: join(PICTURES, "plan-change.png"), fullPage: true });
  await database.transaction(async (tx) => {
    await beginPlanChange(tx, change, { atStep: 40, attempt: 2 });
    const comparison = { secondsBefore: 2, secondsAfter: 2.5, measuredGain: -0.25, steps: 10 };
    await endPlanChange(tx, change, { state: "returned", reason: "a step takes longer", comparison });
  });
  await page.reload();
  await section.getByText("Taken back", { exact: true }).first().waitFor();
  await section.getByText("A step takes longer").waitFor();
  await section.getByText("−25.0%").waitFor();
  await page.close();
});

it("lists how far a job is before it has trials or steps", async () => {
  const { database } = stack;
  const id = await database.transaction((tx) => submitJob(tx, resolveJob(jobFile("measured"))));
  const say = (message: string, done: number, total: number) =>
    database.transaction((tx) =>
      appendJobEvents(tx, id, [
        {
          type: "progress",
          data: { stage: "profiling", message, done, total, waits: message === WAITS_FOR_CLUSTER },
        },
      ]),
    );
  const page = await stack.browser.newPage();
  await page.goto(`${stack.url}/jobs#token=${stack.tokens.viewer}`);
  const row = page.locator(`tr[data-row="${id}"]`);
  await row.waitFor();
  await say(WAITS_FOR_CLUSTER, 0, 1);
  await row.getByText("queued", { exact: true }).waitFor();
  await say("linear, forward", 12, 40);
  await row.getByText("12 / 40 runs").waitFor();
  await page.close();
});

it("shows where a job stands in the queue, and behind whom", async () => {
  const { database } = stack;
  const submitted = (name: string) => database.transaction((tx) => submitJob(tx, resolveJob(jobFile(name))));
  const [holder, waiter] = [await submitted("holder"), await submitted("waiter")];
  for (const jobId of [holder, waiter])
    await database.transaction((tx) =>
      claimHosts(tx, {
        owner: jobLease(jobId),
        hosts: ["node-7"],
        submittedAt: new Date(),
        command: { type: "job.profile", data: { jobId }, traceparent: newTraceparent() },
      }),
    );
  const page = await stack.browser.newPage();
  await page.goto(`${stack.url}/jobs#token=${stack.tokens.viewer}`);
  await page.locator(`tr[data-row="${waiter}"]`).getByText("next", { exact: true }).waitFor();
  await page.goto(`${stack.url}/jobs/${waiter}`);
  await page.getByText("queued: next for node-7, behind job holder (has them)").waitFor();
  await page.close();
});
