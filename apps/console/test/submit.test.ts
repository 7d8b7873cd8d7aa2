import { InternEvoClient } from "@internevo/client";
import { startAttempt } from "@internevo/store";
import { WIDE_HEADS_ON_GPUS } from "@internevo/test-kit";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { parse } from "yaml";
import { jobFile, seeder } from "./seed.ts";
import { startConsoleStack, type ConsoleStack } from "./stack.ts";

let stack: ConsoleStack;
let client: InternEvoClient;
beforeAll(async () => {
  stack = await startConsoleStack();
  client = new InternEvoClient({ baseUrl: stack.url, token: stack.tokens.admin });
}, 120_000);
afterAll(() => stack.close());

const until = <T>(read: () => Promise<T>) => expect.poll(read, { timeout: 60_000, interval: 50 });

/** The page in a browser of its own, where nobody has written anything. */
async function open(path = "/submit"): Promise<Page> {
  const page = await stack.browser.newPage();
  await page.goto(`${stack.url}${path}#token=${stack.tokens.admin}`);
  await page.locator("h1").waitFor();
  return page;
}

it("is refused by line and field with a remedy, then submitted", async () => {
  const page = await open();
  const field = page.getByLabel("Job, YAML or JSON");
  await field.fill("name: [");
  await page.getByRole("button", { name: "Submit" }).click();
  await page.getByText("This is not YAML or JSON yet").waitFor();
  await field.fill("name: x\nsteps: 5\n seed: 3\n");
  await page.getByRole("button", { name: "Submit" }).click();
  await page.getByText("Line 3 is indented one column too far:").waitFor();
  expect(await page.getByRole("alert").locator("pre").innerText()).toBe(" seed: 3\n ^");
  await field.fill(
    JSON.stringify(
      { ...jobFile("pasted"), model: { hiddenSize: 128, layers: 4, heads: 7, vocabularySize: 256 } },
      null,
      1,
    ),
  );
  await page.getByRole("button", { name: "Submit" }).click();
  const fault = page.getByRole("listitem").filter({ hasText: "model.heads" });
  await fault.waitFor();
  expect(await fault.innerText()).toMatch(/line 6.*does not divide hiddenSize 128.*Choose heads/s);
  expect((await page.getByRole("alert").innerText()).match(/does not divide/g)).toHaveLength(1);
  await field.fill(JSON.stringify({ ...jobFile("pasted"), data: undefined }));
  await page.getByRole("button", { name: "Submit" }).click();
  await page.getByRole("alert").locator("code").getByText("internevo plan", { exact: true }).waitFor();
  expect(await page.getByRole("alert").innerText()).not.toContain("`");
  await field.fill(JSON.stringify(jobFile("pasted")));
  await page.getByRole("button", { name: "Submit" }).click();
  await page.getByRole("heading", { name: "pasted" }).waitFor();
  await page.close();
});

it("is checked and planned before it is submitted, from a file that is chosen", async () => {
  const page = await open();
  const field = page.getByLabel("Job, YAML or JSON");
  const job = {
    ...jobFile("chosen"),
    sequenceLengthTokens: "0.125k",
    globalBatchTokens: 512,
    cluster: { name: "unmeasured", nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB" },
  };
  const [chooser] = await Promise.all([
    page.waitForEvent("filechooser"),
    page.getByRole("button", { name: "Choose a file…" }).click(),
  ]);
  await chooser.setFiles({
    name: "job.json",
    mimeType: "application/json",
    buffer: Buffer.from(JSON.stringify(job)),
  });
  await until(() => field.inputValue()).toContain("unmeasured");
  await page.getByRole("button", { name: "Check" }).click();
  await page.getByRole("region", { name: "Checked" }).getByText("It would be accepted").waitFor();
  expect(await page.getByRole("region", { name: "Checked" }).locator("pre").textContent()).toContain(
    "memoryPerGpu: 1GiB",
  );
  await page
    .getByRole("region", { name: "Checked" })
    .getByText(/^Before it is planned, the cluster is measured: [\d,]+ points\.$/)
    .waitFor();
  await page.getByRole("button", { name: "Plan first" }).click();
  await page.getByRole("alert").getByText("has not been measured").waitFor();
  await field.fill(
    JSON.stringify({ ...job, cluster: { ...job.cluster, memoryPerGpu: "4GiB", profile: "a800-128" } }),
  );
  await page.getByRole("button", { name: "Plan first" }).click();
  await page.getByRole("table", { name: "Plans" }).waitFor({ timeout: 45_000 });
  await page.getByText("Nothing is measured before it is planned: profile a800-128 is used.").waitFor();
  await field.fill(
    JSON.stringify({ ...job, ...WIDE_HEADS_ON_GPUS, data: { format: "text", paths: ["mine.txt"] } }),
  );
  await page.getByRole("button", { name: "Check" }).click();
  const fault = page.getByRole("listitem").filter({ hasText: "model.heads" });
  expect(await fault.innerText()).toMatch(/InternEvo's own trainer cannot run it.*Use 4 heads or more/s);
  expect(await page.getByRole("listitem").filter({ hasText: "data.paths.0" }).innerText()).toMatch(
    /relative path.*on the machine where the services run/s,
  );
  expect((await client.listJobs({ limit: 200 })).items.some(({ name }) => name === "chosen")).toBe(false);
  await page.close();
});

it("is kept when its page is left, replaced only when its writer says so, and forgotten once submitted", async () => {
  const page = await open();
  const field = page.getByLabel("Job, YAML or JSON");
  const insert = page.getByRole("button", { name: "Insert the example" });
  await insert.click();
  expect(await field.inputValue()).toContain("name: quickstart");
  const mine = JSON.stringify(jobFile("a-draft"));
  await field.fill(mine);
  await insert.click();
  await page.getByText("Replace what you wrote?").waitFor();
  expect(await field.inputValue()).toBe(mine);
  await page.getByRole("button", { name: "Keep it" }).click();
  await page.getByRole("link", { name: "← Jobs" }).click();
  await page.getByRole("heading", { name: "Jobs", exact: true }).waitFor();
  await page.goBack();
  await until(() => field.inputValue()).toBe(mine);
  await insert.click();
  await page.getByRole("button", { name: "Replace it" }).click();
  expect(await field.inputValue()).toContain("name: quickstart");
  await field.fill(mine);
  await page.getByRole("button", { name: "Submit" }).click();
  await page.getByRole("heading", { name: "a-draft" }).waitFor();
  await page.goto(`${stack.url}/submit`);
  await field.waitFor();
  expect(await field.inputValue()).toBe("");
  await page.close();
});

it("says where its checkpoints are once it trains, and how its weights are taken from there", async () => {
  const { id, runId } = await seeder(stack.database).running("with-checkpoints");
  const page = await open(`/jobs/${id}?part=configuration`);
  await page.getByText("Identity").waitFor();
  expect(await page.getByText("checkpoint export").count()).toBe(0);
  await stack.database.transaction((tx) => startAttempt(tx, runId));
  await page.reload();
  await page
    .getByText(`npx internevo checkpoint export ${stack.dataDirectory}/jobs/${id}/checkpoints FOLDER`)
    .waitFor();
  await page.getByText("The whole job, as it was resolved").click();
  const document = await page.locator("details pre.document").innerText();
  const again = await client.checkJob(parse(document));
  expect(again.job).toEqual(parse(document));
  await page.close();
});

it("begins with the file of a job that is submitted again", async () => {
  const { id } = await seeder(stack.database).running("again");
  const page = await open(`/jobs/${id}`);
  await page.getByRole("link", { name: "Submit again…" }).click();
  await page.getByRole("heading", { name: "Submit a job" }).waitFor();
  const field = page.getByLabel("Job, YAML or JSON");
  await until(() => field.inputValue()).toContain("name: again");
  const file = await field.inputValue();
  expect(file).not.toContain("decaySteps");
  await page.getByText("From job again").waitFor();
  await field.fill(file.replace("name: again", "name: once-more").replace("steps: 200", "steps: 300"));
  await page.getByRole("button", { name: "Submit" }).click();
  await page.getByRole("heading", { name: "once-more" }).waitFor();
  const made = (await client.listJobs({ name: "once-more" })).items[0];
  expect((await client.getJob(made?.id ?? "")).spec).toMatchObject({
    steps: 300,
    optimizer: { decaySteps: 300 },
  });
  // What somebody wrote is not lost to another job's file.
  await page.goto(`${stack.url}/submit`);
  await field.fill("name: mine");
  await page.goto(`${stack.url}/submit?job=${id}`);
  await page.getByText("Replace what you wrote?").waitFor();
  expect(await field.inputValue()).toBe("name: mine");
  await page.getByRole("button", { name: "Replace it" }).click();
  await until(() => field.inputValue()).toBe(file);
  await page.goto(`${stack.url}/submit?job=${crypto.randomUUID()}`);
  await page.getByText("There is no such job").waitFor();
  await page.close();
});
