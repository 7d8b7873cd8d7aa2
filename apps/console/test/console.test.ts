import { readFileSync } from "node:fs";
import type { JobDetail } from "@internevo/contracts";
import { InternEvoClient } from "@internevo/client";
import { choiceOf, choiceWords, memoryLineLook, planLabel, SERIES_COLOURS } from "@internevo/domain";
import { shippedProfile } from "@internevo/cost-model";
import { startAttempt, storeProfile, transitionJob } from "@internevo/store";
import type { BrowserContext, Page, Request } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  formatBytes,
  formatInteger,
  formatLoss,
  formatRate,
  formatSeconds,
  formatSecondsRange,
  formatSignedPercent,
  relativeError,
} from "../src/text/format.ts";
import { REJECTION_WORDS } from "../src/text/words.ts";
import { showPart } from "./parts.ts";
import { overflow, readability } from "./readability.ts";
import { OUT_OF_MEMORY, seeder, UNIGRAM_ENTROPY_NATS } from "./seed.ts";
import { startConsoleStack, type ConsoleStack } from "./stack.ts";

let stack: ConsoleStack;
let seed: ReturnType<typeof seeder>;
let client: InternEvoClient;
let context: BrowserContext;
/** What any page said on its console that nobody expected. */
const complaints: string[] = [];
/** Set while the API is down on purpose. */
let outage = false;

function watch(page: Page): Page {
  page.on("pageerror", (error) => complaints.push(`${page.url()}: ${error.message}`));
  page.on("console", (message) => {
    // The browser reports refused requests itself; the tests that provoke them look at what the page makes of
    // them.
    const expected =
      /Failed to load resource: the server responded with a status of (401|403|404|409|422|400)/.test(
        message.text(),
      ) || outage;
    if ((message.type() === "error" || message.type() === "warning") && !expected)
      complaints.push(`${page.url()}: ${message.text()}`);
  });
  return page;
}

async function open(path: string): Promise<Page> {
  const page = watch(await context.newPage());
  await page.goto(`${stack.url}${path}#token=${stack.tokens.admin}`);
  await page.locator("h1").waitFor();
  return page;
}

const row = (page: Page, name: string) => page.locator(`tr[data-row="${name}"]`);
const text = async (page: Page, name: string, column: string): Promise<string> =>
  (await row(page, name).locator(`td[data-column="${column}"]`).innerText()).trim();
const until = <T>(read: () => Promise<T>) => expect.poll(read, { timeout: 60_000, interval: 50 });

beforeAll(async () => {
  stack = await startConsoleStack();
  seed = seeder(stack.database);
  client = new InternEvoClient({ baseUrl: stack.url, token: stack.tokens.admin });
  context = await stack.browser.newContext({ viewport: { width: 1280, height: 900 }, locale: "en-GB" });
}, 120_000);

afterAll(async () => {
  await stack.close();
});

describe("a job that has ended", () => {
  let job: JobDetail;
  let page: Page;
  /** `Last-Event-ID` of every stream that the page opened. */
  const resumedFrom: (string | undefined)[] = [];
  beforeAll(async () => {
    const { id } = await seed.succeeded("tight-done", "tight");
    job = await client.getJob(id);
    const noteStream = (request: Request): void => {
      if (request.url().endsWith(`/jobs/${id}/events`)) resumedFrom.push(request.headers()["last-event-id"]);
    };
    context.on("request", noteStream);
    page = await open(`/jobs/${id}?part=plans`);
    await page.getByText("Why plans were rejected").waitFor();
  });
  afterAll(() => page.close());

  it("shows for every trial what the API says, predicted beside measured", async () => {
    expect(job.trials).toHaveLength(10);
    for (const { candidate, measured } of job.trials) {
      const name = planLabel(candidate.plan);
      const { predicted } = candidate;
      expect(await text(page, name, "rank")).toMatch(new RegExp(`${candidate.rank}$`));
      expect((await text(page, name, "plannedTime")).replace(/^tie /, "").split("\n")).toEqual([
        formatSeconds(predicted.stepTimeSeconds),
        formatSecondsRange(predicted.stepTimeRangeSeconds!),
      ]);
      expect(await text(page, name, "measuredTime")).toBe(
        measured ? formatSeconds(measured.stepTimeSeconds) : "–",
      );
      expect(await text(page, name, "timeError")).toBe(
        measured
          ? formatSignedPercent(relativeError(predicted.stepTimeSeconds, measured.stepTimeSeconds))
          : "–",
      );
      expect(await text(page, name, "plannedRate")).toBe(formatRate(predicted.tokensPerGpuPerSecond));
      expect(await text(page, name, "measuredRate")).toBe(
        measured ? formatRate(measured.tokensPerGpuPerSecond) : "–",
      );
      expect(await text(page, name, "plannedMemory")).toBe(formatBytes(predicted.peakMemoryBytes));
      expect(await text(page, name, "measuredMemory")).toBe(
        measured ? formatBytes(measured.peakMemoryBytes) : "–",
      );
      expect(await text(page, name, "dataParallel")).toBe(String(candidate.plan.dataParallel));
    }
  });

  it("reads what is stored by pages, and streams what comes after only, whatever part is shown", async () => {
    await showPart(page, "log");
    await page.getByRole("log").getByText("training starts").waitFor();
    expect(new URL(page.url()).search).toBe("?part=log");
    await until(async () => resumedFrom).toEqual([String(job.lastEventId)]);
    await page.goBack();
    await page.getByText("Why plans were rejected").waitFor();
    expect(resumedFrom).toHaveLength(1);
  });

  it("numbers plans by their rank, in its order, with the place by measurement beside it", async () => {
    const ranks = (await page.locator('tbody tr td[data-column="rank"]').allInnerTexts()).map((rank) =>
      Number(/\d+$/.exec(rank.trim())?.[0]),
    );
    expect(ranks).toEqual([...ranks].sort((a, b) => a - b));
    expect(ranks).toEqual(expect.arrayContaining(job.trials.map(({ candidate }) => candidate.rank)));
    expect(new Set(ranks).size).toBe(ranks.length);
    const times = job.trials.flatMap(({ measured }) => measured?.stepTimeSeconds ?? []).sort((a, b) => a - b);
    for (const { candidate, measured } of job.trials)
      expect(await text(page, planLabel(candidate.plan), "place")).toBe(
        measured ? String(times.indexOf(measured.stepTimeSeconds) + 1) : "–",
      );
  });

  it("gives every part of a bar a look of its own, the legend's", async () => {
    await showPart(page, "memory");
    for (const title of ["Predicted memory by line", "Predicted time of a step by cause"]) {
      const figure = page.getByRole("figure", { name: title });
      const look = (elements: Element[]) =>
        elements.map((element) => {
          const { backgroundColor, backgroundImage } = getComputedStyle(element);
          return `${backgroundColor} ${backgroundImage}`;
        });
      const legend = await figure
        .locator(".legend .swatch:not(.swatch-limit):not(.swatch-mark)")
        .evaluateAll(look);
      expect(legend.length).toBeGreaterThan(3);
      expect(new Set(legend).size).toBe(legend.length);
      for (const shown of await figure.locator(".bar-segment").evaluateAll(look))
        expect(legend).toContain(shown);
      expect(
        await figure
          .locator(".bar-label")
          .evaluateAll((labels) =>
            labels
              .filter((label) => label.scrollWidth > label.clientWidth || label.clientHeight > 24)
              .map(
                (label) =>
                  `${(label as HTMLElement).innerText}: ${label.scrollWidth} in ${label.clientWidth}, ${label.clientHeight} high`,
              ),
          ),
      ).toEqual([]);
      const own = await figure.locator(".bar-label").allInnerTexts();
      expect(new Set(own).size).toBe(own.length);
    }
  });

  it("draws a line of memory in one colour in every chart", async () => {
    const swatches = (name: string) =>
      page
        .getByRole("figure", { name })
        .locator(".legend-item")
        .evaluateAll((items) =>
          items.flatMap((item): [string, string][] => {
            const swatch = item.querySelector(".swatch:not(.swatch-limit):not(.swatch-mark)");
            if (!swatch) return [];
            const { backgroundColor, backgroundImage } = getComputedStyle(swatch);
            return [[item.textContent ?? "", `${backgroundColor} ${backgroundImage}`]];
          }),
        );
    const all = new Map(await swatches("Predicted memory by line"));
    await showPart(page, "plans");
    await page
      .getByRole("radiogroup", { name: "What to know of it" })
      .getByText("Memory", { exact: true })
      .click();
    await page.getByRole("figure", { name: "Memory of a rank by stage and line" }).waitFor();
    const asked = new Map(await swatches("Memory of a rank by stage and line"));
    expect(all.size).toBeGreaterThan(3);
    expect([...asked.keys()]).toEqual(expect.arrayContaining(["Optimizer states", "Activations", "Runtime"]));
    for (const [line, look] of asked) if (all.has(line)) expect(look, line).toBe(all.get(line));
    const { colour } = memoryLineLook("optimizerStates");
    const [r, g, b] = [1, 3, 5].map((at) =>
      Number.parseInt((SERIES_COLOURS.light[colour] ?? "").slice(at, at + 2), 16),
    );
    expect(asked.get("Optimizer states")).toBe(`rgb(${r}, ${g}, ${b}) none`);
  });

  it("says why a trial failed, and which better plans cannot be run yet", async () => {
    await page.getByText(OUT_OF_MEMORY.message).waitFor();
    const barred = (job.planning?.candidates ?? []).filter(({ runnable }) => !runnable);
    expect(barred.length).toBeGreaterThan(0);
    for (const { plan, notRunnableReason } of barred) {
      expect(await text(page, planLabel(plan), "state")).toBe("Not runnable");
      await page
        .getByText(notRunnableReason ?? "")
        .first()
        .waitFor();
    }
  });

  it("marks the chosen plan and explains it", async () => {
    const name = planLabel(job.chosen?.plan ?? job.trials[0]!.candidate.plan);
    expect(await text(page, name, "state")).toBe("Chosen");
    const choice = choiceOf(job.trials)!;
    expect(job.chosen?.plan).toEqual(choice.chosen.plan);
    const words = choiceWords(choice);
    await showPart(page, "overview");
    await page.getByText(`${words.charAt(0).toUpperCase()}${words.slice(1)}.`).waitFor();
  });

  it("counts the rejected plans by reason", async () => {
    await showPart(page, "plans");
    const counts = job.planning!.counts;
    for (const [reason, count] of Object.entries(counts.rejected)) {
      const line = page.locator(`li[data-reason="${reason}"]`);
      expect(await line.count()).toBe(count > 0 ? 1 : 0);
      if (count === 0) continue;
      expect(await line.innerText()).toContain(REJECTION_WORDS[reason as keyof typeof REJECTION_WORDS].name);
      expect(await line.innerText()).toContain(formatInteger(count));
    }
    expect(counts.rejected["memory-exceeded"]).toBeGreaterThan(0);
  });

  it("opens a plan to all its figures, and sorts by what was measured", async () => {
    const [first] = job.trials;
    await row(page, planLabel(first!.candidate.plan)).getByRole("button").click();
    await page.getByRole("table", { name: "Memory of the fullest rank" }).waitFor();
    await page.getByRole("button", { name: "Step time, measured" }).click();
    const shown = await page.locator('tbody tr td[data-column="measuredTime"]').allInnerTexts();
    const measured = job.trials
      .flatMap((trial) => trial.measured?.stepTimeSeconds ?? [])
      .sort((a, b) => a - b)
      .map(formatSeconds);
    expect(shown.slice(0, measured.length)).toEqual(measured);
  });

  it("reports loss and entropy, attempts and the log", async () => {
    await showPart(page, "overview");
    expect(new URL(page.url()).search).toBe("");
    await page
      .getByText(`${formatLoss(job.report!.finalLossNats)} nats`)
      .first()
      .waitFor();
    await page
      .getByRole("img", {
        name: new RegExp(
          `Loss over 200 steps.*; Validation loss, last 2\\.0286 nats.*Unigram entropy ${formatLoss(UNIGRAM_ENTROPY_NATS)}`,
        ),
      })
      .waitFor();
    await page.getByText("A rank was lost: rank 1 was ended by signal 9").waitFor();
    await showPart(page, "log");
    await page.getByRole("log").getByText("training starts").waitFor();
    expect(await page.locator('[data-stage="running"]').getAttribute("data-phase")).toBe("done");
  });
});

describe("a job at work", () => {
  it("shows each stage's news as it happens, without a reload", async () => {
    const submitted = await seed.submit("live-profiling");
    const early = await open(`/jobs/${submitted.id}`);
    await seed.progress(submitted.id, "profiling", "all-gather over 2 ranks", 3, 12);
    await early.getByText("3 of 12").waitFor();
    await early.close();

    const job = await seed.trialling("live");
    const page = await open(`/jobs/${job.id}?part=plans`);
    await page.evaluate(() => Object.assign(window, { notReloaded: true }));
    const trial = job.trials[2]!;
    const name = planLabel(trial.candidate.plan);
    expect(await text(page, name, "state")).toBe("Waiting");
    await seed.runTrial(trial);
    await until(() => text(page, name, "state")).toBe("Measured");
    const measured = (await client.getJob(job.id)).trials[2]!.measured!;
    expect(await text(page, name, "measuredTime")).toBe(formatSeconds(measured.stepTimeSeconds));
    await until(() => page.locator('[data-stage="trialling"]').innerText()).toContain("1 of 10 trials");
    await stack.database.transaction((tx) =>
      transitionJob(tx, { jobId: job.id, from: "trialling", to: "cancelled", reason: "seen enough" }),
    );
    await page.getByText("seen enough").waitFor();

    const training = await seed.running("live-training");
    await page.getByRole("link", { name: "Jobs", exact: true }).click();
    await page.getByRole("link", { name: "live-training" }).click();
    await stack.database.transaction((tx) => startAttempt(tx, training.runId));
    await seed.steps(training.id, training.runId, 1, 5);
    await until(() => page.locator('[data-stage="running"]').innerText()).toContain("5 of 200 steps");
    await seed.steps(training.id, training.runId, 6, 42);
    await page.getByRole("img", { name: /Loss over 42 steps/ }).waitFor();
    await showPart(page, "log");
    await seed.log(training.id, "trainer", "a line that was just written");
    await page.getByRole("log").getByText("a line that was just written").waitFor();
    expect(await page.evaluate(() => (window as unknown as { notReloaded?: boolean }).notReloaded)).toBe(
      true,
    );
    await page.close();
  });

  it("is cancelled by a button, after a question", async () => {
    const { id } = await seed.submit("to-cancel");
    const page = await open(`/jobs/${id}`);
    await page.getByRole("button", { name: "Cancel the job" }).click();
    const question = page.getByRole("dialog");
    await question
      .getByText("Measurements and checkpoints are kept, and you can let it go on later.")
      .waitFor();
    await question.getByRole("button", { name: "Cancel the job" }).click();
    await page.locator(".job-lead").getByText("Cancelled").waitFor();
    expect((await client.getJob(id)).state).toBe("cancelled");
    expect(await page.getByRole("button", { name: "Cancel the job" }).count()).toBe(0);
    await page.close();
  });

  it("says why it is held, and goes on by a button, with its feed", async () => {
    const { id, runId } = await seed.running("to-go-on");
    const page = await open(`/jobs/${id}`);
    await page.locator(".job-lead").getByText("Training").waitFor();
    const failure = { code: "too-many-restarts", message: "rank 1 was killed 5 times" } as const;
    await stack.database.transaction((tx) =>
      transitionJob(tx, { jobId: id, from: "running", to: "held", failure }),
    );
    await page.getByText("Rank 1 was killed 5 times").waitFor();
    await page.locator(".job-lead").getByText("Held").waitFor();
    expect(await page.getByRole("button", { name: "Cancel the job" }).count()).toBe(1);
    await page.getByRole("button", { name: "Let it go on" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Let it go on" }).click();
    await page.locator(".job-lead").getByText("Training").waitFor();
    expect((await client.getJob(id)).state).toBe("running");
    expect(await page.getByRole("button", { name: "Let it go on" }).count()).toBe(0);
    await seed.log(id, "trainer", "a line from after it went on");
    await showPart(page, "log");
    await page.getByRole("log").getByText("a line from after it went on").waitFor();
    await stack.database.transaction((tx) => startAttempt(tx, runId));
    await seed.steps(id, runId, 1, 5);
    await until(() => page.locator('[data-stage="running"]').innerText()).toContain("5 of 200 steps");
    await page.close();
  });

  it("goes on by itself after the API was away", async () => {
    const job = await seed.trialling("outage");
    const name = planLabel(job.trials[0]!.candidate.plan);
    const page = await open(`/jobs/${job.id}?part=plans`);
    await row(page, name).waitFor();
    outage = true;
    await stack.killApi();
    await page.getByText("Connection lost").waitFor();
    await seed.runTrial(job.trials[0]!);
    await stack.restartApi();
    await until(() => text(page, name, "state")).toBe("Measured");
    await page.getByText("Connection lost").waitFor({ state: "detached" });
    outage = false;
    await page.close();
  });
});

describe("the list of jobs", () => {
  it("filters by state, and pages", async () => {
    for (let index = 0; index < 26; index += 1)
      await seed.failed(`failed-${index}`, { code: "no-feasible-plan", message: "nothing fits in 1.00 MiB" });
    const page = await open("/jobs");
    await page.getByLabel("State").selectOption("failed");
    await page.getByText("25 jobs shown").waitFor();
    expect(new URL(page.url()).search).toBe("?state=failed");
    await page.getByRole("button", { name: "Show older jobs" }).click();
    await page.getByText("26 jobs, newest first").waitFor();
    await page.getByLabel("State").selectOption("succeeded");
    const done = (await client.listJobs({ state: "succeeded" })).items;
    await row(page, done[0]!.id).waitFor();
    expect(await row(page, done[0]!.id).innerText()).toContain(`${formatLoss(done[0]!.lastLoss!)} nats`);
    expect(await page.locator("tbody tr").count()).toBe(done.length);
    await page.close();
  });
});

describe("a job that is pasted", () => {
  it("is planned without running, on a cluster that is not here", async () => {
    const page = await open("/plan");
    await page
      .getByLabel("Job, YAML or JSON")
      .fill(readFileSync(new URL("../../../examples/paper/7b-4k.yaml", import.meta.url), "utf8"));
    await page.getByLabel("Profile").selectOption("a800-128");
    await page.setViewportSize({ width: 390, height: 844 });
    await page.getByRole("button", { name: "Show the plans" }).click();
    await page.getByRole("table", { name: "Plans" }).waitFor({ timeout: 45_000 });
    expect(await page.getByRole("table", { name: "Plans" }).locator("tbody tr[data-row]").count()).toBe(10);
    expect(await overflow(page)).toBeLessThanOrEqual(0);
    const fold = page.getByRole("button", { name: "Memory by line" });
    expect(await fold.getAttribute("aria-expanded")).toBe("false");
    await fold.click();
    const memory = page.getByRole("figure", { name: "Predicted memory by line" });
    await memory.waitFor();
    // Turned to its side and back, a screen keeps what was opened.
    await page.setViewportSize({ width: 1280, height: 844 });
    await page.setViewportSize({ width: 390, height: 844 });
    expect(await fold.getAttribute("aria-expanded")).toBe("true");
    expect(await memory.isVisible()).toBe(true);
    expect((await client.listJobs({ limit: 200 })).items.some(({ model }) => model === "llama-7b")).toBe(
      false,
    );
    await page.close();
  });
});

describe("clusters, workloads and dead letters", () => {
  it("draws one line a measured curve, and lists modules and slow-downs", async () => {
    const record = (await client.listProfiles()).items.find(({ name }) => name === "this-machine")!;
    const { profile } = await client.getProfile(record.id);
    const page = await open(`/clusters/${record.id}`);
    for (const op of ["all-gather", "all-to-all"] as const) {
      await page.getByLabel("Operation").selectOption(op);
      const curves = profile.collectives.filter((curve) => curve.op === op);
      await until(() => page.locator(".curve-chart .curve-line path").count()).toBe(curves.length);
      expect(
        await page.locator(".curve-chart text").filter({ hasText: /B\/s$/ }).count(),
      ).toBeGreaterThanOrEqual(3);
      expect(await page.locator(".curve-chart .curve-dot circle").count()).toBe(
        curves.flatMap(({ points }) => points).length,
      );
    }
    await page.getByText("Time", { exact: true }).click();
    await page.locator('.curve-chart[data-measure="time"]').waitFor();
    expect(await page.getByRole("table", { name: "Modules" }).locator("tbody tr").count()).toBe(
      Math.min(40, profile.modules.length),
    );
    await page.getByText("1.31 ×").waitFor();
    await page.getByText(profile.provenance.notes[0]!).waitFor();
    await page.close();
  });

  it("marks a profile that nobody measured, in the list and on its page", async () => {
    await storeProfile(stack.database.db, {
      clusterKey: "local:bought:1x8",
      profile: { ...shippedProfile("estimated:h100"), name: "to be bought" },
      freshForSeconds: 600,
    });
    const page = await open("/clusters");
    const row = page.getByRole("row", { name: /to be bought/ });
    await row.getByText("Estimated", { exact: true }).waitFor();
    await row.getByRole("link").click();
    await page.getByRole("alert").filter({ hasText: "Estimated, not measured" }).waitFor();
    await page.close();
  });

  it("says that a profile is noisy, and discards it after a question", async () => {
    const profile = {
      ...shippedProfile("a800-128"),
      name: "measured under load",
      quality: {
        verdict: "noisy" as const,
        points: 100,
        noisyPoints: 40,
        mostSpreadPercent: 50,
        mostOthersPercent: 10,
        worstSpreadPercent: 180,
        measuredAgain: 7,
        disturbances: ["here: others took 45% of the processor time"],
        hosts: [],
      },
    };
    const id = await storeProfile(stack.database.db, {
      clusterKey: "local:busy:1x2",
      profile,
      freshForSeconds: 600,
    });
    const page = await open("/clusters");
    const row = page.getByRole("row", { name: /measured under load/ });
    await row.getByText("40 of 100 points").waitFor();
    await row.getByRole("link").click();
    const notice = page.getByRole("alert").filter({ hasText: "Measured while the machine was busy" });
    await notice.getByText(/40 of 100 points are noisy, after 7 repeated measurements.*180%/).waitFor();
    await notice.getByText("here: others took 45% of the processor time.").waitFor();
    await page.getByRole("button", { name: "Discard", exact: true }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Keep it" }).click();
    await page.getByRole("button", { name: "Discard", exact: true }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Discard the profile" }).click();
    await page.waitForURL(/\/clusters$/);
    await until(async () => page.getByRole("row", { name: /measured under load/ }).count()).toBe(0);
    expect((await client.getProfile(id)).discardedAt).not.toBeNull();
    await page.goto(page.url() + "/" + id);
    await page.getByText(/no new job uses it/).waitFor();
    await page.close();
  });

  it("shows a workload's runs and proposals, and runs it now", async () => {
    const job = (await client.listJobs({ state: "succeeded" })).items[0]!;
    const id = await seed.workload("nightly", (await client.getJob(job.id)).planning!);
    const page = await open("/workloads");
    await row(page, id).getByText("proposed a plan").waitFor();
    await row(page, id).getByRole("button", { name: "Run now: nightly" }).click();
    await row(page, id).getByText("Queued", { exact: true }).waitFor();
    await page.getByRole("columnheader", { name: "Minimum gain" }).waitFor();
    await row(page, id).getByRole("link", { name: "nightly" }).click();
    await page.getByText("Catch-up window", { exact: true }).waitFor();
    const [proposal] = (await client.listProposals(id)).items;
    const card = page.locator(`[data-proposal="${proposal!.id}"]`);
    await card.waitFor();
    expect(await card.locator(".differences li").count()).toBe(proposal!.differences.length);
    const first = await seed.workload("first-plan", (await client.getJob(job.id)).planning!, { first: true });
    await page.goto(`${stack.url}/workloads/${first}`);
    await page.getByText("First plan: none was in use").waitFor();
    expect(await page.locator("main").innerText()).not.toMatch(/null|0\.0%/);
    const { id: fresh } = await seed.register("never-planned");
    await page.goto(`${stack.url}/workloads/${fresh}`);
    await page.getByText("None yet: the workload has not been planned").waitFor();
    await page.getByRole("button", { name: "Run now: never-planned" }).click();
    await page.getByText("None yet: a run is queued or running").waitFor();
    await page.close();
  });

  it("takes an answer to a proposal, and edits, pauses and resumes a workload", async () => {
    const job = (await client.listJobs({ state: "succeeded" })).items[0]!;
    // No job does the same work.
    const { planning } = await client.getJob(job.id);
    const id = await seed.workload("answered", planning!, { headroom: "1%" });
    const page = await open(`/workloads/${id}`);
    const [proposal] = (await client.listProposals(id)).items;
    const card = page.locator(`[data-proposal="${proposal!.id}"]`);
    await card.getByText("Proposed", { exact: true }).first().waitFor();
    await card.getByRole("button", { name: "Try this proposal" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Try" }).click();
    await page.getByRole("dialog").getByText("no job of the workload trains now").waitFor();
    await page.getByRole("button", { name: "Leave it" }).click();
    await card.getByRole("button", { name: "Dismiss this proposal" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Dismiss" }).click();
    await card.getByText("Dismissed", { exact: true }).waitFor();
    expect(await card.getByRole("button").count()).toBe(0);
    expect((await client.listProposals(id)).items[0]).toMatchObject({ state: "dismissed" });

    await page.getByRole("button", { name: "Edit…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("A better plan").selectOption("apply");
    await dialog.getByText("The threshold of 2.0% is less than a run can show.").waitFor();
    await dialog.getByLabel("Stop runs within some hours of the day only").check();
    await dialog.getByLabel("From").fill("21:30");
    await dialog.getByRole("button", { name: "Save" }).click();
    await page.getByText("21:30 to 06:00, Europe/Berlin").waitFor();
    expect(await client.getWorkload(id)).toMatchObject({
      policy: "apply",
      changeWindow: { from: "21:30", to: "06:00" },
    });
    await page.getByLabel("By schedule").click();
    await page.getByText("It is paused").waitFor();
    await page.getByLabel("By schedule").click();
    await page.getByText("It is paused").waitFor({ state: "detached" });
    expect(await client.getWorkload(id)).toMatchObject({ enabled: true });
    await page.close();
  });

  it("replays and discards dead letters", async () => {
    const { id: jobId } = await seed.submit("of-a-letter");
    const replayed = await seed.deadLetter({
      messageType: "job.profile",
      payload: {
        type: "job.profile",
        data: { jobId },
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
      },
    });
    const discarded = await seed.deadLetter();
    const page = await open("/dead-letters");
    await page
      .locator(`[data-letter="${replayed}"]`)
      .getByRole("button", { name: /^Replay/ })
      .click();
    await page.locator(`[data-letter="${replayed}"]`).getByText("Replayed").waitFor();
    await page
      .locator(`[data-letter="${discarded}"]`)
      .getByRole("button", { name: /^Discard/ })
      .click();
    await page.locator(`[data-letter="${discarded}"]`).getByText("Discarded").waitFor();
    await page.close();
  });
});

describe("every page", () => {
  it("reads well wide and light, narrow and dark", async () => {
    await storeProfile(stack.database.db, {
      clusterKey: "slurm:a800:16x8",
      profile: shippedProfile("a800-128"),
      freshForSeconds: 0,
    });
    const byState = async (state: "succeeded" | "failed" | "running" | "trialling") =>
      `/jobs/${(await client.listJobs({ state })).items[0]!.id}`;
    const profiles = (await client.listProfiles()).items;
    const workload = (await client.listWorkloads()).items[0]!;
    const done = (await client.listJobs({ state: "succeeded" })).items[0]!;
    const paths = [
      "/jobs",
      "/submit",
      "/plan",
      "/what-if",
      "/workloads",
      `/workloads/${workload.id}`,
      "/clusters",
      `/clusters/${profiles[0]!.id}`,
      "/dead-letters",
      "/nowhere",
      "/jobs/00000000-0000-4000-8000-000000000000",
      await byState("succeeded"),
      ...["plans", "memory", "log", "files", "configuration"].map((part) => `/jobs/${done.id}?part=${part}`),
      await byState("failed"),
      await byState("running"),
      await byState("trialling"),
    ];
    const findings: string[] = [];
    for (const path of paths) {
      const page = await open(path);
      await until(() => page.locator('[role="status"][aria-label^="Loading"]').count()).toBe(0);
      findings.push(...(await readability(page, path)));
      await page.close();
    }
    expect(findings).toEqual([]);
  }, 180_000);

  it("said nothing on the browser's console", () => {
    expect(complaints).toEqual([]);
  });
});
