import { planLabel } from "@internevo/domain";
import { changeRunPlan, startAttempt } from "@internevo/store";
import { afterAll, beforeAll, expect, it } from "vitest";
import { seeder } from "./seed.ts";
import { startConsoleStack, type ConsoleStack } from "./stack.ts";

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
  for (const { plan } of [chosen, other]) await attempts.getByText(planLabel(plan)).waitFor({ state: "attached" });
  expect(await attempts.locator("td", { hasText: planLabel(other.plan) }).textContent()).toMatch(/1 of 1 nodes/);
  await page.close();
});
