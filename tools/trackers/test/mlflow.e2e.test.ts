import { sql } from "drizzle-orm";
import { eventually } from "@internevo/test-kit";
import { createWorld, type ServiceProcess, type World } from "@internevo/test-kit/world";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { storedRun, type StoredRun } from "@internevo/test-kit/stored-run";
import { FaultyProxy, freePort, MlflowServer, type Fault, type MlflowRunView } from "./servers.ts";

let world: World;
let server: MlflowServer;
let proxy: FaultyProxy;
let port: number;
let running: ServiceProcess[] = [];
beforeAll(async () => {
  server = await new MlflowServer(await freePort()).untilUp();
  world = await createWorld();
}, 600_000);
afterAll(async () => {
  await world.close();
  await server.stop();
});
beforeEach(async () => {
  proxy = new FaultyProxy(server.port);
  port = await freePort();
});
afterEach(async () => {
  for (const one of running) await one.kill();
  running = [];
  await proxy.close();
});

const PASS: Fault = { kind: "pass" };
const settings = (): Record<string, string> => ({
  INTERNEVO_REPLANNER_MLFLOW_URL: `http://127.0.0.1:${port}`,
  INTERNEVO_REPLANNER_MLFLOW_TIMEOUT_SECONDS: "2",
});
async function startTracking(): Promise<ServiceProcess> {
  const one = await world.startProcess("replanner", settings());
  running.push(one);
  return one;
}
/** What waits, or is claimed by a process that died, is due now. */
const hurry = (): Promise<unknown> =>
  world.database.db.execute(
    sql`update tracker_cursors set claimed_until = null, next_at = now() where ended_at is null`,
  );
const ended = (run: StoredRun, seconds = 120): Promise<unknown> =>
  eventually(
    `everything of ${run.jobId}`,
    async () => {
      const { rows } = await world.database.db.execute(
        sql`select 1 from tracker_cursors where job_id = ${run.jobId} and ended_at is not null`,
      );
      return rows.length > 0;
    },
    seconds,
    world.logs,
  );
async function runOf(run: StoredRun): Promise<MlflowRunView> {
  const [found, ...others] = await server.runs("internevo.job_id", run.jobId);
  expect(others).toEqual([]);
  if (!found) throw new Error("MLflow has no such run");
  return found;
}
const range = (first: number, last: number): number[] =>
  Array.from({ length: last - first + 1 }, (_, index) => first + index);

/** Every step is there once, with the value, the step and the time that the platform measured. */
async function expectAll(run: StoredRun, last: number): Promise<MlflowRunView> {
  const view = await runOf(run);
  const points = await server.history(view.id, "train/loss");
  expect(points).toEqual(
    range(1, last).map((step) => ({ step, value: 5 + 1 / step, timestamp: 1_700_000_000_000 + step })),
  );
  for (const key of view.metrics.filter((each) => each.startsWith("speed/")))
    expect((await server.history(view.id, key)).map(({ step }) => step)).toEqual(range(1, last));
  return view;
}

it("has what happened while the server was down, as soon as it is up: run, plan, trials, figures", async () => {
  await startTracking();
  const run = await storedRun(world.database, "down at start");
  await run.validate(0);
  await run.step(1, 250);
  await eventually("a failure", () => world.logs().includes("a job's metrics wait"), 60, world.logs);
  await run.end("succeeded");
  await proxy.listen(port);
  await ended(run);
  const view = await expectAll(run, 250);
  expect(view).toMatchObject({ name: "down at start", status: "FINISHED" });
  expect(view.params).toMatchObject({
    steps: "100",
    "plan.dataParallel": "2",
    model: expect.any(String) as string,
  });
  expect(view.tags).toMatchObject({ "internevo.state": "succeeded", "mlflow.user": "ada" });
  expect(view.metrics).toContain("validation/loss");
  const trials = await server.runs("mlflow.parentRunId", view.id);
  expect(trials.map(({ status }) => status)).toEqual(["FINISHED"]);
  expect(trials[0]?.metrics).toContain("step_time_seconds");
  expect(trials[0]?.params).toMatchObject({ rank: "1" });
});

it("loses and doubles nothing where the server is slow, silent, fails, loses answers or answers with pages", async () => {
  await proxy.listen(port);
  let asked = 0;
  const faults: readonly Fault[] = [
    { kind: "answer", status: 500, body: "{}" },
    { kind: "lose-answer" },
    { kind: "answer", status: 200, body: "<html>Sign in</html>" },
    { kind: "delay", seconds: 1 },
    { kind: "silence" },
    { kind: "answer", status: 429, body: '{"error_code":"REQUEST_LIMIT_EXCEEDED"}' },
  ];
  // Every fourth request is met by one of them.
  proxy.fault = () => ((asked += 1) % 4 === 0 ? (faults[(asked / 4) % faults.length] ?? PASS) : PASS);
  await startTracking();
  const run = await storedRun(world.database, "faults");
  const began = performance.now();
  for (let from = 1; from <= 400; from += 40) await run.step(from, from + 39);
  // Who trains does not know of trackers.
  const seconds = (performance.now() - began) / 1000;
  await run.end("failed");
  const urge = setInterval(() => void hurry(), 3000);
  await ended(run, 200).finally(() => clearInterval(urge));
  const view = await expectAll(run, 400);
  expect(view.status).toBe("FAILED");
  const kinds = new Set(proxy.requests.map(({ fault }) => fault));
  expect([...kinds].sort()).toEqual(["answer", "delay", "lose-answer", "pass", "silence"]);
  console.log(`400 steps were stored in ${seconds.toFixed(1)} s; ${proxy.requests.length} requests`);
}, 900_000);

it("goes on after kill -9 between a request and its answer, with nothing lost and nothing twice", async () => {
  await proxy.listen(port);
  const killAt = ["runs/create", "runs/log-batch", "runs/log-batch", "runs/update"];
  let current: ServiceProcess | undefined;
  let kills = 0;
  proxy.fault = async (path): Promise<Fault> => {
    if (current === undefined || path !== killAt[0]) return PASS;
    killAt.shift();
    const killed = current;
    current = undefined;
    await killed.kill();
    kills += 1;
    return { kind: "lose-answer" };
  };
  const run = await storedRun(world.database, "killed");
  await run.step(1, 300);
  for (let round = 0; round < 4; round += 1) {
    current = await startTracking();
    await hurry();
    await run.step(301 + 20 * round, 320 + 20 * round);
    await eventually(`kill ${round + 1}`, () => kills === round + 1, 60, world.logs);
  }
  await run.end("cancelled");
  await startTracking();
  await hurry();
  await ended(run);
  expect((await expectAll(run, 380)).status).toBe("KILLED");
}, 900_000);

it("sends once more what a server said yes to and did not keep", async () => {
  await proxy.listen(port);
  let lies = 0;
  proxy.fault = (_path, body) =>
    body.includes("train/loss") && body.includes("run_id") && lies < 1
      ? ((lies += 1), { kind: "answer", status: 200, body: "{}" })
      : PASS;
  await startTracking();
  const run = await storedRun(world.database, "lied to");
  await run.step(1, 30);
  await run.end("succeeded");
  await ended(run);
  expect((await expectAll(run, 30)).status).toBe("FINISHED");
  expect(world.logs()).toContain("everything is sent once more");
}, 900_000);
