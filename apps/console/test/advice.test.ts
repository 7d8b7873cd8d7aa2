import { readFileSync } from "node:fs";
import type { JobDetail } from "@internevo/contracts";
import { InternEvoClient } from "@internevo/client";
import { planLabel, tieWords } from "@internevo/domain";
import type { Page } from "playwright-core";
import { parse } from "yaml";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { formatBytes, formatInteger, formatSeconds, formatSigned } from "../src/text/format.ts";
import { firstValues } from "../src/text/axis-values.ts";
import { builtFiles, missingStyles } from "./delivery.ts";
import { readability } from "./readability.ts";
import { seeder } from "./seed.ts";
import { startConsoleStack, type ConsoleStack } from "./stack.ts";

const PICTURES = process.env["INTERNEVO_PICTURES"];

describe("questions about plans", () => {
  let stack: ConsoleStack;
  let client: InternEvoClient;
  let job: JobDetail;
  let page: Page;
  /** What the page said on its console. */
  const complaints: string[] = [];
  const until = <T>(read: () => Promise<T>) => expect.poll(read, { timeout: 60_000, interval: 50 });
  const saved = async (button: string): Promise<{ name: string; content: Buffer }> => {
    const [file] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: button, exact: true }).click(),
    ]);
    return { name: file.suggestedFilename(), content: readFileSync(await file.path()) };
  };
  beforeAll(async () => {
    stack = await startConsoleStack();
    client = new InternEvoClient({ baseUrl: stack.url, token: stack.tokens.admin });
    const { id } = await seeder(stack.database).succeeded("tight-done", "tight");
    job = await client.getJob(id);
    page = await (
      await stack.browser.newContext({ viewport: { width: 1280, height: 900 }, locale: "en-GB" })
    ).newPage();
    page.on("pageerror", (error) => complaints.push(error.message));
    page.on("console", (message) => {
      // The browser reports refused requests itself; the test that provokes one looks at what the page makes
      // of it.
      if (/Failed to load resource: .*status of 400/.test(message.text())) return;
      if (message.type() === "error" || message.type() === "warning") complaints.push(message.text());
    });
    await page.goto(`${stack.url}/jobs/${job.id}?part=plans#token=${stack.tokens.viewer}`);
    await page.getByText("Why plans were rejected").waitFor();
  }, 120_000);
  afterAll(() => stack.close());

  it("loads little for the first page, and has a style for every component", async () => {
    const first = await (await stack.browser.newContext()).newPage();
    await first.goto(`${stack.url}/jobs#token=${stack.tokens.viewer}`);
    await first.getByRole("link", { name: "tight-done" }).waitFor();
    const sizes = await first.evaluate(() =>
      (performance.getEntriesByType("resource") as PerformanceResourceTiming[])
        .filter(({ name }) => /\.(js|css)$/.test(name))
        .map(({ encodedBodySize, decodedBodySize }) => [encodedBodySize, decodedBodySize] as const),
    );
    const sum = (of: 0 | 1): number => sizes.reduce((total, size) => total + size[of], 0);
    expect(sizes.length).toBeGreaterThan(2);
    expect(sum(0)).toBeLessThan(190_000);
    expect(sum(1)).toBeLessThan(660_000);
    await first.close();
    const files = await builtFiles(stack.url);
    expect(files.size).toBeGreaterThan(15);
    expect(missingStyles(files)).toEqual([]);
    // The shared schemas are for those who check, not for those who show.
    expect(
      [...files].filter(([, text]) => text.includes("additionalProperties")).map(([name]) => name),
    ).toEqual([]);
  });

  it("reads well where nothing is there yet", async () => {
    const empty = await (await stack.browser.newContext()).newPage();
    await empty.goto(`${stack.url}/workloads#token=${stack.tokens.viewer}`);
    await empty.getByText("No workload yet").waitFor();
    expect(await readability(empty, "no workload")).toEqual([]);
    await empty.close();
  });

  it("shows which plans tie by prediction", async () => {
    const shown = job.trials.map(({ candidate }) => candidate);
    const barred = (job.planning?.candidates ?? []).filter(({ runnable }) => !runnable);
    const all = [...shown, ...barred];
    const fastest = all.reduce((best, one) =>
      one.predicted.stepTimeSeconds < best.predicted.stepTimeSeconds ? one : best,
    );
    const ties = all.filter(
      ({ predicted }) => predicted.stepTimeRangeSeconds!.low <= fastest.predicted.stepTimeRangeSeconds!.high,
    );
    expect(ties.length).toBeGreaterThan(1);
    await until(() => page.locator(".plan-table .tie").count()).toBe(ties.length);
    await page.getByText(tieWords(ties.length, all.length) ?? "no words").waitFor();
  });

  it("explains two plans term by term, as the API does", async () => {
    const [a, b] = [
      job.chosen!.plan,
      job.trials.find(({ candidate }) => planLabel(candidate.plan) !== planLabel(job.chosen!.plan))!.candidate
        .plan,
    ];
    await page.getByLabel("Plan A").selectOption(planLabel(a));
    await page.getByLabel("Plan B").selectOption(planLabel(b));
    const answer = await client.explain({ jobId: job.id, a, b });
    await page.getByText(answer.summary).waitFor();
    const times = page.getByRole("table", { name: "Time of a step", exact: true });
    for (const { name, difference } of answer.time)
      expect(await times.locator(`tr[data-row="${name}"]`).innerText()).toContain(
        formatSigned(difference, formatSeconds),
      );
    const total = answer.b.predicted.stepTimeSeconds - answer.a.predicted.stepTimeSeconds;
    expect(await times.locator(".row-sum").innerText()).toContain(formatSigned(total, formatSeconds));
  });

  it("says why a plan of somebody's own is not chosen, and what would make it feasible", async () => {
    await page.getByLabel("Plan", { exact: true }).selectOption("another");
    const field = page.getByLabel("The other plan");
    await field.fill("the fastest one");
    await page.getByRole("button", { name: "Ask" }).click();
    await page.getByText("Write it as tables do").waitFor();
    const label = planLabel({ ...job.chosen!.plan, microBatchSize: 3 });
    await field.fill(label);
    await field.press("Enter");
    await page.getByText("It cannot run: batch not divisible").waitFor();
    const { smallestChange } = await client.whyNot({ jobId: job.id, plan: label });
    const list = page.getByRole("list", { name: "To change" });
    expect(await list.getByRole("listitem").count()).toBe(smallestChange!.changes.length);
    await page.getByLabel("Plan", { exact: true }).selectOption(planLabel(job.chosen!.plan));
    await page.getByText(/^It (can run|fits in memory)\. By prediction it /).waitFor();
    const slower = job.trials.find(({ candidate }) => candidate.rank > 1)!.candidate.plan;
    await page.getByLabel("Plan", { exact: true }).selectOption(planLabel(slower));
    await page.getByText("Differences from your plan", { exact: true }).waitFor();
  });

  it("shows a rank's memory by stage and line", async () => {
    await page.getByText("Memory", { exact: true }).click();
    const figure = page.getByRole("figure", { name: "Memory of a rank by stage and line" });
    await figure.waitFor();
    const { stages, fullestStage } = await client.planMemory({ jobId: job.id, plan: job.chosen!.plan });
    expect(await figure.innerText()).toContain(formatBytes(stages[fullestStage]!.bytes));
  });

  it("gives the configurations of other frameworks, after what they cannot express", async () => {
    await page
      .getByRole("radiogroup", { name: "What to know of it" })
      .getByText("Configuration", { exact: true })
      .click();
    for (const framework of ["internevo", "megatron", "deepspeed", "torchtitan"] as const) {
      await page.getByLabel("Framework").selectOption(framework);
      const { files, inexpressible, version } = await client.exportPlan({
        jobId: job.id,
        plan: job.chosen!.plan,
        framework,
      });
      await page.getByText(version).waitFor();
      for (const { reason } of inexpressible)
        await page.locator(".plain-list li").filter({ hasText: reason }).first().waitFor();
      for (const { name, text: content } of files)
        expect((await saved(`Download ${name}`)).content.toString()).toBe(content);
      if (files.length === 1) continue;
      const archive = await saved("Download all, zip");
      expect([archive.name, archive.content.subarray(0, 2).toString()]).toEqual([
        `tight-done-${framework}.zip`,
        "PK",
      ]);
    }
  });

  it("offers the best plan that a framework can say, and writes it", async () => {
    const offers = await Promise.all(
      (["internevo", "megatron", "deepspeed", "torchtitan"] as const).map(async (framework) => ({
        framework,
        answer: await client.exportPlan({ jobId: job.id, plan: job.chosen!.plan, framework }),
      })),
    );
    const { framework, answer } = offers.find(
      ({ answer: { best, plan } }) => best && planLabel(best.plan) !== planLabel(plan),
    )!;
    const label = planLabel(answer.best!.plan);
    await page.getByLabel("Framework").selectOption(framework);
    await page.getByText(label).waitFor();
    if (PICTURES) await page.screenshot({ path: `${PICTURES}/offered.png`, fullPage: true });
    await page.getByRole("button", { name: "Write this plan" }).click();
    const best = await client.exportPlan({ jobId: job.id, framework });
    const back = page.getByRole("button", { name: "Back to the plan shown" });
    await back.waitFor();
    const [{ name, text: content }] = best.files as [{ name: string; text: string }];
    await until(async () => (await saved(`Download ${name}`)).content.toString()).toBe(content);
    if (PICTURES) await page.screenshot({ path: `${PICTURES}/taken.png`, fullPage: true });
    await back.click();
    await page.getByRole("button", { name: "Write this plan" }).waitFor();
  });

  it("answers what would be if, with a picture and a table to take along", async () => {
    await page.getByRole("link", { name: "What if…" }).click();
    await page.getByRole("heading", { name: "What if" }).waitFor();
    expect(await page.getByLabel("Job", { exact: true }).inputValue()).toBe(job.id);
    const values = page.getByLabel("Values");
    await until(() => values.inputValue()).toBe(
      firstValues("sequence", { ...job.spec, nodes: 1, memoryPerGpuBytes: undefined }),
    );
    await values.fill("128, none");
    await page.getByRole("button", { name: "Ask" }).click();
    await page.getByText("“none” is no value here").waitFor();
    await values.fill("128, 256, 300");
    await page.getByRole("button", { name: "Ask" }).click();
    const { rows } = await client.sweep({ jobId: job.id, axis: "sequence", values: [128, 256, 300] });
    const table = page.getByRole("table", { name: "The best plan at each value" });
    await table.waitFor();
    for (const { value, best, reason } of rows) {
      const shown = await table.locator(`tr[data-row="${value}"]`).innerText();
      expect(shown).toContain(best ? formatSeconds(best.predicted.stepTimeSeconds) : reason);
    }
    expect(await page.locator(".xy-chart .xy-dot circle").count()).toBe(
      2 * rows.filter(({ best }) => best).length,
    );
    const csv = await saved("CSV");
    expect(csv.name).toBe("tight-done-sequence.csv");
    expect(csv.content.toString().trim().split("\r\n")).toHaveLength(rows.length + 1);
    const svg = await saved("SVG");
    expect(svg.content.toString()).toMatch(/^<svg xmlns=.*<\/svg>$/s);
    expect(svg.content.toString()).not.toContain("var(");
    for (const [kind, label] of [
      ["pareto", "Plans of the front"],
      ["cluster", "Clusters considered"],
    ] as const) {
      await page.getByLabel("Question").selectOption(kind);
      await page.getByRole("button", { name: "Ask" }).click();
      await page.getByRole("table", { name: label }).waitFor();
    }
    await page.getByLabel("Question").selectOption("largest");
    await page.getByLabel("Multiple of").fill("256");
    await page.getByRole("button", { name: "Ask" }).click();
    const { sequenceLengthTokens } = await client.largestSequence({ jobId: job.id, unitTokens: 256 });
    await page.getByText(`${formatInteger(sequenceLengthTokens)} tokens`, { exact: true }).waitFor();
  });

  it("reads well wide and light, narrow and dark, whatever was asked", async () => {
    const findings: string[] = [];
    for (const kind of ["sweep", "pareto", "cluster"]) {
      await page.setViewportSize({ width: 1280, height: 900 });
      await page.getByLabel("Question").selectOption(kind);
      await page.getByRole("button", { name: "Ask" }).click();
      await page.locator(".xy-chart svg").first().waitFor();
      findings.push(...(await readability(page, kind)));
    }
    // Where it is narrow, the section is folded.
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.goto(`${stack.url}/jobs/${job.id}?part=plans`);
    await page
      .getByRole("radiogroup", { name: "What to know of it" })
      .getByText("Configuration", { exact: true })
      .click();
    await page.getByText("Option names are those of").waitFor();
    findings.push(...(await readability(page, "configuration")));
    expect(findings).toEqual([]);
  }, 180_000);

  it("says how good a configuration of another framework is", async () => {
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.getByRole("link", { name: "Import" }).click();
    await page.getByRole("heading", { name: "Import" }).waitFor();
    await page.getByLabel("Framework").selectOption("deepspeed");
    await page.getByRole("button", { name: "Insert an example" }).click();
    const [script, json] = [page.getByLabel("pretrain.sh"), page.getByLabel("ds_config.json")];
    await until(() => json.inputValue()).toContain("zero_optimization");
    // The example says its own ranks, and is not put over what somebody wrote.
    for (const label of ["Nodes", "GPUs a node"]) expect(await page.getByLabel(label).inputValue()).toBe("");
    const again = page.getByRole("button", { name: "Insert an example" });
    const inserted = await script.inputValue();
    await script.fill(`${inserted}# mine`);
    expect(await again.isDisabled()).toBe(true);
    await script.fill("");
    // The answer waits until somebody has written, which the browser does in two steps.
    const written = Promise.withResolvers<undefined>();
    await page.route("**/api/v1/plans/export", async (route) => {
      await written.promise;
      await route.continue();
    });
    await again.click();
    await script.fill("# mine");
    written.resolve(undefined);
    await again.and(page.locator(":not([data-loading])")).waitFor();
    await page.unroute("**/api/v1/plans/export");
    expect(await script.inputValue()).toBe("# mine");
    await script.fill(inserted);
    const files = [
      { name: "pretrain.sh", text: await script.inputValue() },
      { name: "ds_config.json", text: await json.inputValue() },
    ];
    await script.fill(files[0]!.text.replace("--hidden-size", "--hiden-size"));
    await page.getByRole("button", { name: "How good is it?" }).click();
    await page.getByRole("alert").getByText("--hiden-size").first().waitFor();
    // As it is picked from a disk, with a JSON of another name.
    await page.locator('input[type="file"]').setInputFiles([
      { name: "other.json", mimeType: "application/json", buffer: Buffer.from(files[1]!.text) },
      { name: "pretrain.sh", mimeType: "text/x-sh", buffer: Buffer.from(files[0]!.text) },
    ]);
    await until(() => script.inputValue()).toBe(files[0]!.text);
    await page.getByRole("button", { name: "How good is it?" }).click();
    const {
      imported,
      job: document,
      planning,
    } = await client.importConfiguration({ framework: "deepspeed", files, profile: "a800-128" });
    const said = page.getByRole("region", { name: "What it says" });
    await said.getByText(imported.version).waitFor();
    for (const { as } of imported.takenAs) await said.getByText(as).first().waitFor();
    await page.getByText(`Rank ${formatInteger(planning.located!.rank!)} of the`).waitFor();
    expect(await page.getByRole("region", { name: "How good it is" }).innerText()).toContain(
      formatBytes(planning.located!.predicted!.peakMemoryBytes),
    );
    // The example can be improved.
    expect(planLabel(planning.candidates[0]!.plan)).not.toBe(planLabel(imported.plan));
    expect(await page.getByRole("region", { name: "Beside the best plan" }).count()).toBe(1);
    const file = await saved("Job file");
    expect(file.name).toBe("imported.yaml");
    expect(parse(file.content.toString())).toEqual(document);
    await said.getByText("Read with 128 GPUs (16 × 8) as the file says.").waitFor();
    expect(await readability(page, "import")).toEqual([]);
    // Ranks that were typed are named beside those of the file, and so is what the framework refuses.
    await script.fill(
      files[0]!.text.replace(/--max-position-embeddings \d+/, "--max-position-embeddings 2048"),
    );
    await page.getByLabel("Nodes").fill("32");
    await page.getByLabel("GPUs a node").fill("4");
    await page.getByRole("button", { name: "How good is it?" }).click();
    await said
      .getByText("Read with 128 GPUs (32 × 4) as you gave, where the file says 128 GPUs (16 × 8).")
      .waitFor();
    const warning = said.getByRole("alert");
    expect(await warning.innerText()).toMatch(
      /--max-position-embeddings\s+2048\s+is less than --seq-length 4096, which Megatron-DeepSpeed refuses/,
    );
    expect(await readability(page, "import with a warning")).toEqual([]);
  }, 60_000);

  it("says nothing on the browser's console", () => {
    expect(complaints).toEqual([]);
  });
});
