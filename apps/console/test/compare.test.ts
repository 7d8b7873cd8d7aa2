import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { readability } from "./readability.ts";
import { seeder } from "./seed.ts";
import { startConsoleStack, type ConsoleStack } from "./stack.ts";

const PICTURES = process.env["INTERNEVO_PICTURES"];

let stack: ConsoleStack;
let ids: [string, string, string];
beforeAll(async () => {
  stack = await startConsoleStack();
  const seed = seeder(stack.database);
  const first = await seed.succeeded("first");
  const tight = await seed.succeeded("tight-cluster", "tight");
  const running = await seed.running("at-work");
  await seed.steps(running.id, running.runId, 1, 90);
  ids = [first.id, tight.id, running.id];
}, 120_000);
afterAll(() => stack.close());

async function open(path: string): Promise<Page> {
  const page = await stack.browser.newPage({ viewport: { width: 1280, height: 900 } });
  await page.goto(`${stack.url}${path}#token=${stack.tokens.admin}`);
  await page.locator("h1").waitFor();
  return page;
}

async function pictures(page: Page, name: string): Promise<void> {
  if (PICTURES === undefined) return;
  await mkdir(PICTURES, { recursive: true });
  for (const [width, colorScheme] of [
    [1440, "light"],
    [1440, "dark"],
    [390, "light"],
    [390, "dark"],
  ] as const) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme });
    // Charts are drawn again when their box is measured, which no event of the page tells.
    await wait(300);
    await page.screenshot({ path: join(PICTURES, `${name}-${width}-${colorScheme}.png`), fullPage: true });
  }
}

it("compares jobs that are chosen one by one, under an address that keeps them", async () => {
  const page = await open(`/jobs/${ids[0]}`);
  await page.getByRole("link", { name: "Compare…" }).click();
  await page.getByRole("heading", { name: "Compare jobs" }).waitFor();
  await page.getByText("is compared with those that you add").waitFor();
  for (const [count, id] of [ids[1], ids[2]].entries()) {
    await page.getByLabel("Add a job").selectOption(id);
    await page
      .getByRole("table", { name: "Compared jobs" })
      .locator("tbody tr")
      .nth(count + 1)
      .waitFor();
  }
  expect(new URL(page.url()).search).toBe(`?${ids.map((id) => `job=${id}`).join("&")}`);
  const cell = (table: string, row: string, index: number) =>
    page.getByRole("table", { name: table }).locator(`tr[data-row="${row}"] td`).nth(index).innerText();
  expect(await cell("Job file", "model.hiddenSize", 0)).toBe("128");
  expect(await cell("Job file", "model.hiddenSize", 1)).toBe("96");
  expect(await cell("Cluster", "memoryPerGpu", 1)).toBe("46MiB");
  expect(await cell("Figures", "Step time", 0)).toMatch(/^110\.0 ms$/);
  expect(await cell("Figures", "Step time", 1)).toMatch(/^110\.0 ms ±0\.0%$/);
  expect(await cell("Figures", "Validation loss", 2)).toBe("–");
  await page.getByRole("img", { name: /^Training loss over steps/ }).waitFor();
  await page.getByRole("img", { name: /^Validation loss over steps/ }).waitFor();
  expect(await readability(page, "/compare")).toEqual([]);
  await pictures(page, "compare");
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.reload();
  await page.getByRole("button", { name: "Remove tight-cluster" }).click();
  await page.getByRole("button", { name: "Remove tight-cluster" }).waitFor({ state: "detached" });
  expect(new URL(page.url()).search).toBe(`?job=${ids[0]}&job=${ids[2]}`);
  await page.goto(`${stack.url}/compare?job=${ids[0]}&job=${crypto.randomUUID()}`);
  await page.getByText("There is no such job").waitFor();
  await page.close();
});

it("downloads what a job leaves", async () => {
  const checkpoint = join(stack.dataDirectory, "jobs", ids[0], "checkpoints", "step-200");
  const page = await open(`/jobs/${ids[0]}?part=files`);
  const files = page.getByRole("region", { name: "Files", exact: true });
  await files.getByText("Files of its ranks are not listed").waitFor();
  await mkdir(checkpoint, { recursive: true });
  await writeFile(join(checkpoint, "manifest.json"), "{}");
  await page.reload();
  const row = files.locator('tr[data-row="checkpoint-step-200.tar"]');
  await row.getByText("Checkpoint", { exact: true }).waitFor();
  await pictures(page, "job-files");
  await page.setViewportSize({ width: 1280, height: 900 });
  for (const name of ["steps.csv", "checkpoint-step-200.tar"]) {
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      files.getByRole("button", { name: `Download ${name}` }).click(),
    ]);
    expect(download.suggestedFilename()).toBe(name);
  }
  expect(await readability(page, "/jobs/$jobId")).toEqual([]);
  await page.close();
});
