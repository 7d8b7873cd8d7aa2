import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { resolveJob } from "@internevo/domain";
import {
  claimHosts,
  createWebhook,
  jobLease,
  newToken,
  newTraceparent,
  recordAudit,
  storeToken,
  submitJob,
  testWebhook,
} from "@internevo/store";
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

const withoutReceiver = { name: "chat", url: "https://example.org/events", events: ["trial.ended"] } as const;

it("creates a webhook, shows its secret once, tries, disables and removes it", async () => {
  const page = await open("/webhooks");
  await page.getByText("Nobody is told of what happens.").waitFor();
  await page.getByRole("button", { name: "Create a webhook" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("ci");
  await dialog.getByLabel("URL").fill("https://localhost/events");
  await dialog.getByRole("button", { name: "Create the webhook" }).click();
  await dialog.getByRole("alert").getByText("is not on the public Internet").waitFor();
  await dialog.getByLabel("URL").fill(withoutReceiver.url);
  await dialog.getByLabel("trial.ended").check();
  await dialog.getByRole("button", { name: "Create the webhook" }).click();
  await page.getByText("ci is told of what happens in project default").waitFor();
  const secret = (await page.getByRole("status").locator("pre").textContent())?.trim() ?? "";
  expect(secret).toMatch(/^whsec_/);
  await page.getByRole("button", { name: "I have it" }).click();
  expect(await page.content()).not.toContain(secret);
  await page.getByRole("link", { name: "ci", exact: true }).click();
  await page.getByRole("button", { name: "Send a test event" }).click();
  const delivery = page.getByRole("table", { name: "Deliveries" }).locator("tbody tr");
  await delivery.getByText("On its way").waitFor();
  await page.getByRole("button", { name: "Disable", exact: true }).click();
  await delivery.getByText("Given up").waitFor();
  await page.getByRole("button", { name: "Enable", exact: true }).click();
  await page.getByRole("button", { name: "Disable", exact: true }).waitFor();
  await page.getByRole("button", { name: "Replay webhook.test" }).click();
  await delivery.getByText("On its way").waitFor();
  await page.getByRole("button", { name: "Remove ci" }).click();
  await page.getByRole("button", { name: "Remove the webhook" }).click();
  await page.getByText("Nobody is told of what happens.").waitFor();
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
        submittedAt: new Date(),
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
        submittedAt: new Date(Date.UTC(2026, 0, 1, 0, minute)),
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

/** A job that has held its host for so many hours. */
async function heldFor(hours: number, project: string, owner: string): Promise<void> {
  const jobId = await stack.database.transaction((tx) =>
    submitJob(tx, resolveJob(jobFile(`${project}-${hours}`, { project })), { owner }),
  );
  await stack.database.transaction((tx) =>
    claimHosts(tx, {
      owner: jobLease(jobId),
      hosts: [`${project}-${hours}`],
      submittedAt: new Date(),
      command: { type: "job.profile", data: { jobId }, traceparent: newTraceparent() },
    }),
  );
  await stack.database.db.execute(
    `update host_holds set began_at = now() - make_interval(hours => ${hours}) where owner = '${jobLease(jobId)}'`,
  );
}

it("creates a project by the keyboard, gives it quotas, and shows what is used of them", async () => {
  const page = await open("/projects");
  await page.getByRole("button", { name: "Create a project" }).focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").waitFor();
  await page.waitForFunction(() => document.activeElement?.tagName === "INPUT");
  await page.keyboard.type("vision");
  await page.keyboard.press("Tab");
  await page.keyboard.type("Pictures");
  await page.keyboard.press("Tab");
  await page.keyboard.type("4");
  await page.keyboard.press("Enter");
  await dialog.waitFor({ state: "detached" });
  const row = page.getByRole("table", { name: "Projects" }).locator('tr[data-row="vision"]');
  await row.getByText("0 of 4", { exact: true }).waitFor();
  await heldFor(2, "vision", "grace");
  await row.getByText("4 of 4", { exact: true }).waitFor();
  await row.getByRole("button", { name: "Edit vision" }).click();
  await page.getByLabel("GPUs at once").fill("");
  await page.getByLabel("GPU-hours a month").fill("100");
  await page.getByRole("button", { name: "Save" }).click();
  await row.getByText("of 100").waitFor();
  await row.getByText("no limit").waitFor();
  await row.getByRole("link", { name: "vision" }).click();
  await page.waitForURL(/jobs\?project=vision/);
  await page.locator("tbody tr").filter({ hasText: "vision-2" }).waitFor();
  expect(await page.locator("tbody tr").count()).toBe(1);
  await page.close();
});

it("sums what was used, as the address says, and hands it over as CSV", async () => {
  await heldFor(5, "default", "ada");
  await heldFor(30, "vision", "grace");
  const from = new Date(Date.now() - 3 * 86_400_000).toISOString();
  const page = await open(`/usage?from=${from}`);
  const rows = page.getByRole("table", { name: "Usage" }).locator("tbody tr");
  await rows.nth(1).waitFor();
  expect(await rows.allTextContents()).toEqual([
    expect.stringMatching(/^vision12[89]/),
    expect.stringMatching(/^default[2-9]\d/),
  ]);
  await page.getByLabel("By").selectOption("owner");
  await page.waitForURL(/by=owner/);
  await rows.filter({ hasText: "grace" }).waitFor();
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download CSV" }).click(),
  ]);
  expect(file.suggestedFilename()).toMatch(/^usage-by-owner-\d{4}-\d\d-\d\d-\d{4}-\d\d-\d\d\.csv$/);
  expect(readFileSync(await file.path(), "utf8")).toMatch(/^owner,gpuHours,jobs\r\ngrace,128\.\d+,2\r\n/);
  await page.close();
});

it("previews other days, keeps what is asked for so long, and shows it to those who may not change it", async () => {
  const id = await stack.database.transaction((tx) =>
    submitJob(tx, resolveJob(jobFile("long-ended")), { owner: "ada" }),
  );
  await stack.database.db.execute(
    `update jobs set state = 'failed', updated_at = now() - interval '100 days', ended_at = now() - interval '100 days' where id = '${id}'`,
  );
  await stack.database.db.execute(
    `insert into job_log (job_id, type, data, at) values ('${id}', 'log', '{"message": "a word"}', now() - interval '100 days')`,
  );
  const page = await open("/retention");
  const kept = page.getByLabel("Log lines and progress: days");
  await kept.fill("90");
  await page.getByRole("button", { name: "Preview" }).click();
  const would = page.getByRole("table", { name: "Jobs of which something would go" });
  await would
    .locator('tr[data-row="long-ended"]')
    .getByText(/Log lines and progress: \d+ row/)
    .waitFor();
  await kept.fill("4000");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("alert").waitFor();
  await kept.fill("90");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("button", { name: "Remove what is due" }).click();
  await page.getByRole("button", { name: "Remove it" }).click();
  await page.getByText(/A run waits for a replanner since .*, for ada/i).waitFor();
  await page.reload();
  await kept.waitFor();
  expect(await kept.inputValue()).toBe("90 days");
  await page.close();
  const reader = await stack.browser.newPage();
  await reader.goto(`${stack.url}/retention#token=${stack.tokens.viewer}`);
  await reader.getByText("90 days after the job's end").waitFor();
  expect(await reader.getByRole("button", { name: /Save|Preview|Remove/ }).count()).toBe(0);
  await reader.close();
});

it("shows a project's people nothing of others, and no way to change quotas", async () => {
  const token = newToken();
  await storeToken(stack.database.db, "lin", "admin", token, "vision");
  const page = await stack.browser.newPage();
  await page.goto(`${stack.url}/projects#token=${token}`);
  const rows = page.locator("tbody tr");
  await rows.first().waitFor();
  expect(await rows.count()).toBe(1);
  expect(await page.getByRole("button", { name: /Create|Edit/ }).count()).toBe(0);
  await page.getByRole("button", { name: "Signed in as lin, admin in project vision" }).waitFor();
  await page.getByRole("link", { name: "Jobs", exact: true }).click();
  await page.getByRole("table", { name: "Jobs" }).locator("tbody tr").nth(1).waitFor();
  expect(await page.locator('[data-label="Project"]').allTextContents()).toEqual(["vision", "vision"]);
  await page.close();
});

it("can be read at a desk and on a phone, light and dark", async () => {
  const { webhook } = await stack.database.transaction((tx) =>
    createWebhook(tx, { ...withoutReceiver, events: [...withoutReceiver.events], project: "default" }),
  );
  await stack.database.transaction((tx) => testWebhook(tx, webhook.id, "test"));
  for (const path of [
    "/tokens",
    "/webhooks",
    `/webhooks/${webhook.id}`,
    "/audit",
    "/jobs",
    "/clusters",
    "/projects",
    "/usage",
    "/usage?by=day",
    "/retention",
  ]) {
    const page = await open(path);
    await page.locator("tbody tr").first().waitFor();
    expect(await readability(page, path)).toEqual([]);
    const pictures = process.env["INTERNEVO_PICTURES"];
    if (pictures !== undefined)
      for (const [width, colorScheme] of [
        [1440, "light"],
        [1440, "dark"],
        [390, "light"],
        [390, "dark"],
      ] as const) {
        await page.setViewportSize({ width, height: 900 });
        await page.emulateMedia({ colorScheme });
        await page.screenshot({
          path: `${pictures}${path.replace("?", "-")}-${width}-${colorScheme}.png`,
          fullPage: true,
        });
      }
    await page.close();
  }
});
