import { followJobs } from "@internevo/store";
import { storedRun } from "@internevo/test-kit/stored-run";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { mlflow, trackersOf, type MlflowSettings, type Tracker } from "../src/index.ts";
import { Following } from "./following.ts";
import { RecordingServer } from "./recording-server.ts";

let test: TestDatabase;
let server: RecordingServer;
let following: Following;
let url: string;
beforeAll(async () => void (test = await createTestDatabase()));
afterAll(() => test.drop());
beforeEach(async () => {
  await test.database.db.execute("truncate trackers cascade");
  server = new RecordingServer();
  url = await server.listen();
  following = new Following(test.database);
});
afterEach(async () => {
  await following.stop();
  await server.close();
});

const tracker = (over: Partial<MlflowSettings> = {}) =>
  mlflow({ url, experiment: "team/{project}", timeoutSeconds: 5, ...over });
/** How often a step came, for each step. */
function timesOf(runId: string, last: number): number[] {
  const steps = server.metrics(runId, "train/loss").map(({ step }) => step);
  return Array.from({ length: last }, (_, index) => steps.filter((step) => step === index + 1).length);
}
const once = (last: number): number[] => Array.from({ length: last }, () => 1);

it("sends a run in MLflow's words: experiment, parameters, metrics, trials, status", async () => {
  await following.start(tracker({ user: "ada", password: "sesame" }));
  const run = await storedRun(test.database, "words");
  await run.step(1, 300);
  await run.end("succeeded");
  await following.untilEnded(run.jobId);
  expect(following.failures).toEqual([]);
  expect(server.bodies("experiments/create")).toEqual([{ name: "team/default" }]);
  const [mine, trial] = server.bodies("runs/create");
  expect(mine).toMatchObject({ experiment_id: "7", run_name: "words" });
  expect(mine?.["tags"]).toContainEqual({ key: "internevo.job_id", value: run.jobId });
  expect(trial?.["tags"]).toContainEqual({ key: "mlflow.parentRunId", value: "run-1" });
  expect(timesOf("run-1", 300)).toEqual(once(300));
  expect(server.metrics("run-1", "train/loss")[1]).toEqual({
    key: "train/loss",
    value: 5.5,
    step: 2,
    timestamp: 1_700_000_000_002,
  });
  const batches = server.bodies("runs/log-batch");
  for (const batch of batches)
    expect(((batch["metrics"] ?? []) as unknown[]).length).toBeLessThanOrEqual(1000);
  expect(batches.flatMap((batch) => batch["params"] ?? [])).toContainEqual({
    key: "plan.dataParallel",
    value: "2",
  });
  expect(server.bodies("runs/update").map((body) => [body["run_id"], body["status"]])).toEqual(
    expect.arrayContaining([
      ["run-2", "FINISHED"],
      ["run-1", "FINISHED"],
    ]),
  );
  expect(server.requests[0]?.headers.authorization).toBe(`Basic ${btoa("ada:sesame")}`);
});

it("sends what failed again, and nothing that was taken", async () => {
  let batches = 0;
  server.instead = ({ body }) =>
    JSON.stringify(body).includes("train/loss") && (batches += 1) === 1
      ? { status: 503, body: "{}", headers: { "retry-after": "2" } }
      : undefined;
  await following.start(tracker());
  const run = await storedRun(test.database, "fails");
  await run.step(1, 20);
  await run.end("failed");
  await following.untilEnded(run.jobId);
  expect(following.failures).toEqual(["MLflow answered runs/log-batch with 503: {}"]);
  expect(server.bodies("runs/create")).toHaveLength(2);
  expect(Math.max(...timesOf("run-1", 20))).toBeLessThanOrEqual(2);
});

it("sends everything once more when the server has lost it", async () => {
  let isLost = true;
  server.instead = ({ path }) => {
    if (path !== "metrics/get-history" || !isLost) return undefined;
    isLost = false;
    return { status: 404, body: { error_code: "RESOURCE_DOES_NOT_EXIST", message: "no run" } };
  };
  await following.start(tracker());
  const run = await storedRun(test.database, "lost");
  await run.step(1, 20);
  await run.end("succeeded");
  await following.untilEnded(run.jobId);
  expect(following.failures[0]).toContain("MLflow has lost what was sent");
  // To the run that is found by its tag: MLflow keeps equal points once.
  expect(server.bodies("runs/create")).toHaveLength(2);
  expect(timesOf("run-1", 20)).toEqual(once(20).map(() => 2));
});

it("lets others go first while a job has much to send", async () => {
  const whole = tracker();
  /** Whose events were sent, in their order. */
  const order: string[] = [];
  const one: Tracker = {
    ...whole,
    concurrency: 1,
    send: (batch, place, signal) => {
      order.push(batch.job.name);
      return whole.send(batch, place, signal);
    },
  };
  const long = await storedRun(test.database, "long");
  await long.step(1, 3000);
  // It has waited longer.
  await followJobs(test.database, one.key);
  const short = await storedRun(test.database, "short");
  await short.step(1, 10);
  await following.start(one);
  for (const run of [long, short]) {
    await run.end("succeeded");
    await following.untilEnded(run.jobId);
  }
  expect(following.failures).toEqual([]);
  expect(order[0]).toBe("long");
  expect(order.indexOf("short")).toBeLessThan(order.lastIndexOf("long"));
  for (const [run, last] of [
    ["run-1", 3000],
    ["run-3", 10],
  ] as const)
    expect(server.metrics(run, "train/loss").map(({ step }) => step)).toEqual(
      Array.from({ length: last }, (_, index) => index + 1),
    );
});

it.each([
  ["a page for signing in", 200, "<html>Sign in</html>", {}, "is it MLflow"],
  ["a list", 200, "[]", {}, "is it MLflow"],
  ["a redirect", 302, "", { location: "http://127.0.0.1:1/" }, "redirects are not followed"],
  ["a refused token", 401, "{}", {}, "check token, or user and password"],
  ["an experiment without its number", 200, "{}", {}, "MLflow's answer has no"],
])("takes %s for a failure, and says so", async (_name, status, body, headers, said) => {
  let refused = 0;
  server.instead = () => ((refused += 1) === 1 ? { status, body, headers } : undefined);
  await following.start(tracker({ token: "t" }));
  const run = await storedRun(test.database, "refused");
  await run.end("cancelled");
  await following.untilEnded(run.jobId);
  expect(following.failures).toHaveLength(1);
  expect(following.failures[0]).toContain(said);
  expect(server.requests[0]?.headers.authorization).toBe("Bearer t");
});

describe("settings", () => {
  const settings = (value: string) =>
    trackersOf({
      INTERNEVO_REPLANNER_MLFLOW_URL: value,
      INTERNEVO_REPLANNER_MLFLOW_EXPERIMENT: "x",
      INTERNEVO_REPLANNER_MLFLOW_TIMEOUT_SECONDS: 5,
    });

  it.each([
    ["ftp://example.org", "is no https or http URL"],
    ["mlflow", "is no https or http URL"],
    ["https://ada:secret@example.org", "has a user or a password in it"],
    ["https://example.org/?a=b", "has a part behind ? or #"],
  ])("%s is refused: %s", (value, why) => {
    expect(() => settings(value)).toThrow(why);
  });

  it("are the tracker's name, with or without a slash at the end", () => {
    expect(settings("https://example.org/mlflow/").map(({ key }) => key)).toEqual([
      "mlflow:https://example.org/mlflow",
    ]);
  });
});
