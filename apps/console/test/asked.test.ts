import { InternEvoClient } from "@internevo/client";
import { frontSample, planLabel } from "@internevo/domain";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { formatBytes, formatInteger } from "../src/text/format.ts";
import { whyFirstValues } from "../src/text/axis-values.ts";
import { readability } from "./readability.ts";
import { startConsoleStack, type ConsoleStack } from "./stack.ts";

let stack: ConsoleStack;
let client: InternEvoClient;
beforeAll(async () => {
  stack = await startConsoleStack();
  client = new InternEvoClient({ baseUrl: stack.url, token: stack.tokens.viewer });
}, 120_000);
afterAll(() => stack.close());

const until = <T>(read: () => Promise<T>) => expect.poll(read, { timeout: 60_000, interval: 50 });

const PROFILE = "a800-128";
const JOB = {
  name: "asked",
  model: { name: "small", hiddenSize: 512, layers: 8, heads: 8, vocabularySize: 32_000 },
  sequenceLengthTokens: 2048,
  globalBatchTokens: 65_536,
  cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "16GB" },
};

/** A page with a job written into it. */
async function open(path: "plan" | "what-if", job: object = JOB): Promise<Page> {
  const page = await stack.browser.newPage({ viewport: { width: 1280, height: 900 } });
  await page.goto(`${stack.url}/${path}#token=${stack.tokens.viewer}`);
  await page.getByLabel("Job, YAML or JSON").fill(JSON.stringify(job));
  await page.getByLabel("Profile").selectOption(PROFILE);
  return page;
}

it("plans are made with the published figures of a GPU", async () => {
  const page = await open("plan");
  const { items } = await client.listGivenProfiles();
  const h100 = items.find(({ name }) => name === "estimated:h100");
  await page.getByLabel("Profile").selectOption({ label: `${h100?.device} from published figures` });
  await page.getByRole("button", { name: "Show the plans" }).click();
  const { candidates } = await client.plan({ job: JOB, profile: "estimated:h100" });
  const rows = page.getByRole("table", { name: "Plans" }).locator("tbody tr[data-row]");
  await until(() => rows.count()).toBe(candidates.length);
  expect(await rows.first().getAttribute("data-row")).toBe(planLabel(candidates[0]!.plan));
  await page.close();
});

it("plans leave the headroom free that was asked for, here and in what is asked of them", async () => {
  const page = await open("plan");
  const headroom = page.getByLabel("Headroom");
  const show = page.getByRole("button", { name: "Show the plans" });
  await headroom.fill("5");
  await show.click();
  await page.getByText("Give a share below 100%, such as 5%").waitFor();
  expect(await page.getByRole("table", { name: "Plans" }).count()).toBe(0);
  const whole = await client.plan({ job: JOB, profile: PROFILE });
  // So much that the best plan no longer fits.
  const needed = whole.candidates[0]!.predicted.peakMemoryBytes;
  const share = `${(100 * (1 - (0.9 * needed) / whole.memoryLimitBytes)).toFixed(1)}%`;
  await headroom.fill(share);
  await show.click();
  const kept = await client.plan({ job: JOB, profile: PROFILE, headroom: share });
  const [best] = kept.candidates;
  expect(planLabel(best!.plan)).not.toBe(planLabel(whole.candidates[0]!.plan));
  const rows = page.getByRole("table", { name: "Plans" }).locator("tbody tr[data-row]");
  await until(() => rows.count()).toBe(kept.candidates.length);
  expect(await rows.first().getAttribute("data-row")).toBe(planLabel(best!.plan));
  await page
    .getByText(
      `against the ${formatBytes(kept.memoryLimitBytes)} that a rank may use: ${share} of its GPU stays free`,
    )
    .waitFor();
  // What no longer fits is said of the GPU with its headroom.
  await page.getByLabel("Plan", { exact: true }).selectOption("another");
  await page.getByLabel("The other plan").fill(planLabel(whole.candidates[0]!.plan));
  await page.getByRole("button", { name: "Ask" }).click();
  await page.getByText(/^It cannot run: /).waitFor();
  expect(await readability(page, "plan with headroom")).toEqual([]);
  await page.close();
});

it("plans that the trainer does not run say so once, and can still be asked about", async () => {
  const job = { ...JOB, model: { ...JOB.model, heads: 1 }, cluster: { ...JOB.cluster, device: "cuda" } };
  const page = await open("plan", job);
  await page.getByRole("button", { name: "Show the plans" }).click();
  const { candidates, runnableCandidates } = await client.plan({ job, profile: PROFILE });
  expect([candidates.length, runnableCandidates.length]).toEqual([10, 0]);
  const reason = page
    .getByRole("region", { name: "Plans by predicted step time" })
    .getByText(/own trainer can run none of these: heads of 512 elements on GPUs/);
  await until(() => reason.count()).toBe(1);
  await page.getByText(/^It fits in memory/).waitFor();
  await page.close();
});

it("what-if says why its values are there, and keeps headroom free", async () => {
  const page = await open("what-if");
  const values = page.getByLabel("Values");
  const sizes = {
    sequenceLengthTokens: JOB.sequenceLengthTokens,
    globalBatchTokens: JOB.globalBatchTokens,
    nodes: 1,
    memoryPerGpuBytes: 16e9,
  };
  const why = whyFirstValues("sequence", sizes);
  await page.getByText(why).waitFor();
  await values.fill("2k");
  await until(() => page.getByText(why).count()).toBe(0);
  const headroom = page.getByLabel("Headroom");
  await headroom.fill("25%");
  await page.getByLabel("Question").selectOption("largest");
  await page.getByRole("button", { name: "Ask" }).click();
  const { best, sequenceLengthTokens } = await client.largestSequence({
    job: JOB,
    profile: PROFILE,
    headroom: "25%",
  });
  await page.getByText(`${formatInteger(sequenceLengthTokens)} tokens`, { exact: true }).waitFor();
  await page
    .getByText(
      `${formatBytes(12e9 - best!.predicted.peakMemoryBytes)} left, beside ${formatBytes(4e9)} of headroom`,
    )
    .waitFor();
  // A sweep of memory varies what it would keep free.
  await page.getByLabel("Question").selectOption("sweep");
  await page.getByLabel("Axis").selectOption("memory");
  expect(await headroom.count()).toBe(0);
  await values.fill("8GB");
  await page.getByRole("button", { name: "Ask" }).click();
  await page.getByRole("table", { name: "The best plan at each value" }).waitFor();
  expect(await readability(page, "what-if with headroom")).toEqual([]);
  await page.close();
});

it("what-if names the fewest sequences where the job's plan does not divide a step of one", async () => {
  const page = await open("what-if", { ...JOB, plan: "dp2" });
  await page.getByLabel("Question").selectOption("largest");
  await page.getByRole("button", { name: "Ask" }).click();
  await page.getByText(/plan \(dataParallel 2\) does not divide .* Give 2 as Sequences/).waitFor();
  await page.close();
});

it("a long front shows some of its plans, and all on request", async () => {
  const page = await open("what-if");
  await page.getByLabel("Question").selectOption("pareto");
  await page.getByRole("button", { name: "Ask" }).click();
  const { front } = await client.paretoFront({ job: JOB, profile: PROFILE });
  const sample = frontSample(front, 20);
  expect(front.length).toBeGreaterThan(sample.length);
  const rows = page.getByRole("table", { name: "Plans of the front" }).locator("tbody tr");
  await until(() => rows.count()).toBe(sample.length);
  await page.getByRole("button", { name: `Show all ${front.length}` }).click();
  await until(() => rows.count()).toBe(front.length);
  // It scrolls by itself: the page grows no further.
  expect(
    await page.locator(".tall-table .scroll-box").evaluate((box) => box.clientHeight),
  ).toBeLessThanOrEqual(630);
  await page.getByRole("button", { name: `Show ${sample.length}`, exact: true }).click();
  await until(() => rows.count()).toBe(sample.length);
  await page.close();
});
