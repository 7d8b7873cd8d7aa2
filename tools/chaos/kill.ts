// Kills (SIGKILL) one process of the product in every stage of a job, one job a target, and checks that the
// job succeeds all the same and that each trial and each training step is counted once. usage: npm run chaos
// -- kill [--targets api,nats,rank] prints JSON
import { parseArgs } from "node:util";
import { allPages } from "@internevo/client";
import { isAtRest, type JobState } from "@internevo/domain";
import { SERVICE_NAMES, type LocalStack } from "@internevo/local-stack";
import pg from "pg";
import {
  chaosJob,
  insist,
  rankPids,
  STAGES,
  until,
  withStack,
  type Stage,
  type TestedStack,
} from "./src/harness.ts";

const TARGETS = [...SERVICE_NAMES, "nats", "postgres", "rank"] as const;
const { values } = parseArgs({ options: { targets: { type: "string", default: TARGETS.join(",") } } });
const targets = values.targets.split(",");
for (const target of targets)
  if (!(TARGETS as readonly string[]).includes(target))
    throw new Error(`--targets ${target}: is not one of ${TARGETS.join(", ")}`);

/** Kills the target once; true when something was killed. */
function kill({ stack, dataDirectory }: TestedStack, target: string): boolean {
  const pid = target === "rank" ? rankPids(dataDirectory).at(-1) : stack.pidOf(target);
  if (pid === undefined) return false;
  process.kill(pid, "SIGKILL");
  return true;
}

/**
 * The planner is quick: held still, it keeps the job in the stages around it long enough to kill another
 * process there.
 */
async function holdPlanner(stack: LocalStack): Promise<() => void> {
  await until("the planner runs", () => stack.pidOf("planner") !== undefined, 30);
  const pid = stack.pidOf("planner") as number;
  process.kill(pid, "SIGSTOP");
  return () => {
    if (stack.pidOf("planner") === pid) process.kill(pid, "SIGCONT");
  };
}

async function killInStage(tested: TestedStack, jobId: string, target: string, stage: Stage): Promise<void> {
  const { client } = tested;
  const state = async (): Promise<JobState> => (await insist(() => client.getJob(jobId))).state;
  await until(
    `${stage} begins`,
    async () => {
      const now = await state();
      if (isAtRest(now)) throw new Error(`the job ended as ${now} before ${stage}`);
      return now === stage;
    },
    180,
  );
  if (stage === "planning" && target === "rank") return; // planning has no ranks
  // Somewhere inside the stage: after its first sign of work, where it has one.
  if (stage === "profiling")
    await until("the probe runs", () => rankPids(tested.dataDirectory).length > 0, 60);
  if (stage === "running")
    await until("the first steps", async () => (await insist(() => client.getJob(jobId))).lastStep >= 8, 120);
  if (stage === "trialling")
    await until(
      "the second trial",
      async () => (await insist(() => client.getJob(jobId))).trialsDone >= 1,
      120,
    );
  await until(`${target} is there to be killed`, () => kill(tested, target), 60);
}

interface Count {
  readonly trials: number;
  readonly measuredTrials: number;
  readonly steps: number;
  readonly distinctSteps: number;
  readonly attempts: number;
}

async function countsOf(databaseUrl: string, jobId: string): Promise<Count> {
  const db = new pg.Client({ connectionString: databaseUrl });
  await db.connect();
  try {
    const { rows } = await db.query<Record<keyof Count, string>>(
      `select (select count(*) from trials where job_id = $1) as "trials",
              (select count(*) from trials where job_id = $1 and measured is not null) as "measuredTrials",
              (select count(*) from step_metrics m join runs r on r.id = m.run_id where r.job_id = $1) as "steps",
              (select count(distinct step) from step_metrics m join runs r on r.id = m.run_id where r.job_id = $1) as "distinctSteps",
              (select count(*) from attempts a join runs r on r.id = a.run_id where r.job_id = $1) as "attempts"`,
      [jobId],
    );
    const row = rows[0] as Record<keyof Count, string>;
    return {
      trials: Number(row.trials),
      measuredTrials: Number(row.measuredTrials),
      steps: Number(row.steps),
      distinctSteps: Number(row.distinctSteps),
      attempts: Number(row.attempts),
    };
  } finally {
    await db.end();
  }
}

const results = [];
for (const target of targets) {
  console.error(`▸ ${target}`);
  const begin = performance.now();
  results.push(
    await withStack(async (tested) => {
      const { stack, client } = tested;
      let letPlannerGo: (() => void) | undefined;
      const job = await client.submitJob(await chaosJob(`kill-${target}`));
      for (const stage of STAGES) {
        const since = performance.now();
        await killInStage(tested, job.id, target, stage);
        console.error(`  ${stage}: killed after ${((performance.now() - since) / 1000).toFixed(1)} s`);
        if (stage === "profiling") letPlannerGo = await holdPlanner(stack);
        if (stage === "planning") letPlannerGo?.();
      }
      await until(
        "the job ends",
        async () => isAtRest((await insist(() => client.getJob(job.id))).state),
        300,
      );
      const ended = await insist(() => client.getJob(job.id));
      const counts = await countsOf(stack.info().databaseUrl, job.id);
      const steps: number[] = [];
      for await (const metric of allPages((cursor) =>
        client.jobMetrics(job.id, cursor === undefined ? {} : { cursor }),
      ))
        steps.push(metric.step);
      const once =
        counts.trials === 10 &&
        counts.measuredTrials === 10 &&
        counts.steps === 60 &&
        counts.distinctSteps === 60 &&
        steps.join() === Array.from({ length: 60 }, (_, i) => i + 1).join();
      const ok = ended.state === "succeeded" && once;
      console.error(`  ${ok ? "✓" : "✗"} ${ended.state} ${ended.reason ?? ""} ${JSON.stringify(counts)}`);
      return {
        target,
        state: ended.state,
        reason: ended.reason,
        ...counts,
        countedOnce: once,
        seconds: (performance.now() - begin) / 1000,
      };
    }),
  );
}
console.log(JSON.stringify({ chaos: "kill", stages: STAGES, results }, null, 2));
process.exitCode = results.every((result) => result.state === "succeeded" && result.countedOnce) ? 0 : 1;
