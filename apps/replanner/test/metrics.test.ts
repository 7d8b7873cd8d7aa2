import { readFileSync } from "node:fs";
import { join } from "node:path";
import { eventually } from "@internevo/test-kit";
import { createWorld, type World } from "@internevo/test-kit/world";
import { afterAll, beforeAll, expect, it } from "vitest";
import { parse } from "yaml";
import { storedRun } from "@internevo/test-kit/stored-run";
import { replanner } from "../src/app.ts";

const MONITORING = join(import.meta.dirname, "..", "..", "..", "infra", "monitoring");

let world: World;
beforeAll(async () => void (world = await createWorld()));
afterAll(() => world.close());

interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** The samples of Prometheus's text format. */
const samplesIn = (text: string): Sample[] =>
  text.split("\n").flatMap((line) => {
    const [, name, labels = "", value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (name === undefined) return [];
    const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key = "", text = ""]) => [
      key,
      text,
    ]);
    return [{ name, labels: Object.fromEntries(pairs) as Record<string, string>, value: Number(value) }];
  });

it("has figures of the jobs that train, and all that the dashboard and the alerts ask for", async () => {
  const { healthUrl } = await world.start(replanner, {
    INTERNEVO_REPLANNER_TENSORBOARD_DIRECTORY: join(world.dataDirectory, "tensorboard"),
  });
  const run = await storedRun(world.database, "trains");
  const scrape = async (): Promise<Sample[]> => samplesIn(await (await fetch(`${healthUrl}/metrics`)).text());
  const ofJob = (samples: readonly Sample[]): Record<string, number> =>
    Object.fromEntries(
      samples
        .filter(({ name, labels }) => name.startsWith("internevo_job_") && labels["job_id"] === run.jobId)
        .map(({ name, value }) => [name, value]),
    );
  const until = (what: string, isThere: (figures: Record<string, number>) => boolean) =>
    eventually(what, async () => {
      const samples = await scrape();
      return isThere(ofJob(samples)) && samples;
    });
  await world.database.db.execute("update attempts set started_at = now() - interval '1000 s'");
  await run.step(1, 8);
  await run.validate(8);
  const first = await until("eight steps", (figures) => figures["internevo_job_step"] === 8);
  expect(ofJob(first)).toMatchObject({
    internevo_job_steps: 100,
    internevo_job_loss: 5.125,
    internevo_job_validation_loss: 14,
    internevo_job_step_time_seconds: 1,
    internevo_job_tokens_per_second: 1024,
    internevo_job_mfu: 0.5,
    internevo_job_restarts: 0,
  });
  const labels = first.find(({ name }) => name === "internevo_job_step")?.labels;
  expect(labels).toMatchObject({
    job_name: "trains",
    project: "default",
    plan: expect.stringContaining("dp2") as string,
  });
  // Steps that ran twice count once: twelve seconds of steps, not fifteen.
  await run.restart(5);
  await run.step(6, 7);
  const again = await until("the steps again", (figures) => figures["internevo_job_step"] === 7);
  const lost = ofJob(again)["internevo_job_goodput_ratio"];
  expect(lost).toBeLessThanOrEqual(7 / 1000);
  expect(lost).toBeGreaterThan(7 / 1100);
  await run.step(8, 12);
  const second = await until("the restart", (figures) => figures["internevo_job_step"] === 12);
  // Of a thousand seconds, and of a hundred more that this machine may have taken meanwhile.
  const goodput = ofJob(second)["internevo_job_goodput_ratio"];
  expect(goodput).toBeLessThanOrEqual(12 / 1000);
  expect(goodput).toBeGreaterThan(12 / 1100);
  expect(ofJob(second)["internevo_job_restarts"]).toBe(1);

  const there = new Set(second.map(({ name }) => name));
  const asked = ["dashboard.json", "alerts.yaml"].flatMap((file) => [
    ...readFileSync(join(MONITORING, file), "utf8").matchAll(/\binternevo_\w+/g),
  ]);
  expect(asked.length).toBeGreaterThan(20);
  for (const [name] of asked) expect(there, `${name} is no metric`).toContain(name);
  const { groups } = parse(readFileSync(join(MONITORING, "alerts.yaml"), "utf8")) as {
    groups: { rules: { alert: string; expr: string }[] }[];
  };
  for (const { rules } of groups) for (const { alert, expr } of rules) expect(expr, alert).toMatch(/max by/);

  await run.end("succeeded");
  await until("the job's end", (figures) => Object.keys(figures).length === 0);
});
