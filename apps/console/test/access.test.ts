import { hostname } from "node:os";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { resolveJob } from "@internevo/domain";
import { claimHosts, jobLease, newTraceparent, recordAudit, submitJob } from "@internevo/store";
import { readability } from "./readability.ts";
import { jobFile } from "./seed.ts";
import { startConsoleStack, type ConsoleStack } from "./stack.ts";

let stack: ConsoleStack;
beforeAll(async () => {
  stack = await startConsoleStack();
}, 120_000);
afterAll(() => stack.close());

async function open(path: string): Promise<Page> {
  const page = await stack.browser.newPage();
  await page.goto(`${stack.url}${path}#token=${stack.tokens.admin}`);
  await page.locator("h1").waitFor();
  return page;
}

it("creates a token, shows it once, and revokes it", async () => {
  const page = await open("/tokens");
  await page.getByRole("button", { name: "Create a token" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("nightly");
  await dialog.getByLabel("Role").selectOption("operator");
  await dialog.getByRole("button", { name: "Create the token" }).click();
  await page.getByText("nightly may use the API as operator").waitFor();
  const token = (await page.getByRole("status").locator("pre").textContent())?.trim() ?? "";
  const asks = () => fetch(`${stack.url}/api/v1/whoami`, { headers: { authorization: `Bearer ${token}` } });
  expect((await asks()).status).toBe(200);
  await page.getByRole("button", { name: "I have it" }).click();
  expect(await page.content()).not.toContain(token);
  await page.getByRole("button", { name: "Revoke nightly" }).click();
  await page.getByRole("button", { name: "Revoke the token" }).click();
  await page.getByRole("rowheader", { name: "nightly" }).waitFor({ state: "detached" });
  expect((await asks()).status).toBe(401);
  await page.close();
});

it("shows who did what, narrowed by what the address says", async () => {
  for (const [actor, status] of [
    ["ada", 202],
    ["grace", 403],
  ] as const)
    await recordAudit(stack.database.db, {
      actor,
      role: "operator",
      action: "POST /api/v1/jobs/:id/cancel",
      target: null,
      status,
    });
  const page = await open("/audit?action=cancel");
  const rows = page.getByRole("table", { name: "Actions" }).locator("tbody tr");
  await rows.nth(1).waitFor();
  expect(await rows.allTextContents()).toEqual([
    expect.stringContaining("grace"),
    expect.stringContaining("ada"),
  ]);
  await page.getByLabel("Who").fill("grace");
  await page.waitForURL(/actor=grace/);
  await rows.filter({ hasText: "ada" }).waitFor({ state: "detached" });
  expect(await rows.count()).toBe(1);
  await page.close();
});

it("lists queued jobs as such, and narrows the list by name and owner", async () => {
  const submitted = (name: string, owner: string) =>
    stack.database.transaction((tx) => submitJob(tx, resolveJob(jobFile(name)), { owner }));
  const ids = [await submitted("alpha", "ada"), await submitted("beta", "grace")];
  for (const jobId of ids)
    await stack.database.transaction((tx) =>
      claimHosts(tx, {
        owner: jobLease(jobId),
        hosts: ["node-1"],
        place: new Date(),
        command: { type: "job.profile", data: { jobId }, traceparent: newTraceparent() },
      }),
    );
  const page = await open("/jobs");
  const rowOf = (name: string) => page.locator("tbody tr").filter({ hasText: name });
  await rowOf("beta").getByText("Queued").waitFor();
  await rowOf("alpha").getByText("Profiling", { exact: true }).waitFor();
  await page.getByLabel("State").selectOption("queued");
  await rowOf("alpha").waitFor({ state: "detached" });
  await page.getByLabel("State").selectOption("");
  await page.getByLabel("Owner").fill("ada");
  await rowOf("beta").waitFor({ state: "detached" });
  await page.getByLabel("Name").fill("nothing like it");
  await page.getByText("No job matches").waitFor();
  await page.close();
});

it("shows who has a cluster's hosts, and who waits for them", async () => {
  const ids: string[] = [];
  for (const [minute, name] of ["has them", "first behind", "second behind"].entries()) {
    const jobId = await stack.database.transaction((tx) => submitJob(tx, resolveJob(jobFile(name))));
    ids.push(jobId);
    await stack.database.transaction((tx) =>
      claimHosts(tx, {
        owner: jobLease(jobId),
        hosts: [hostname()],
        place: new Date(Date.UTC(2026, 0, 1, 0, minute)),
        command: { type: "job.profile", data: { jobId }, traceparent: newTraceparent() },
      }),
    );
  }
  const page = await open("/clusters");
  const row = page.getByRole("table", { name: "Clusters" }).locator("tbody tr");
  await row.getByText("Ready").waitFor();
  expect(await row.locator('[data-label="Used by"]').textContent()).toMatch(/^has them\s*Profiling$/);
  const waiting = await row.locator('[data-label="Waiting"]').textContent();
  expect(waiting).toMatch(/^first behind next, since .*second behind 2nd in the queue, since /);
  await row.getByRole("link", { name: "second behind" }).click();
  await page.waitForURL(new RegExp(`/jobs/${ids[2] ?? ""}`));
  await page.close();
});

it("can be read at a desk and on a phone, light and dark", async () => {
  for (const path of ["/tokens", "/audit", "/jobs", "/clusters"]) {
    const page = await open(path);
    await page.locator("tbody tr").first().waitFor();
    expect(await readability(page, path)).toEqual([]);
    const pictures = process.env["INTERNEVO_PICTURES"];
    if (pictures !== undefined)
      for (const [width, colorScheme] of [
        [1440, "light"],
        [390, "dark"],
      ] as const) {
        await page.setViewportSize({ width, height: 900 });
        await page.emulateMedia({ colorScheme });
        await page.screenshot({ path: `${pictures}${path}-${width}.png`, fullPage: true });
      }
    await page.close();
  }
});
