import { aPlan } from "@internevo/test-kit";
import { resolveJob, type Candidate, type Plan, type Trial } from "@internevo/domain";
import { WAITS_FOR_CLUSTER, type JobDetail, type JobSummary, type StageProgress } from "@internevo/contracts";
import picocolors from "picocolors";
import { describe, expect, it } from "vitest";
import { discardedWords, jobDocument, jobsTable, jobText, trialsTable } from "./views.ts";

const colors = picocolors.createColors(false);
const plan = aPlan({ microBatches: 4, dataParallel: 2 });
const candidate = (rank: number, over: Partial<Plan> = {}): Candidate =>
  ({
    rank,
    plan: { ...plan, ...over },
    predicted: { stepTimeSeconds: rank, tokensPerGpuPerSecond: 100, peakMemoryBytes: 1 << 20 },
  }) as Candidate;
const trial = (rank: number, stepTimeSeconds: number | null): Trial =>
  ({
    id: String(rank),
    candidate: candidate(rank),
    state: stepTimeSeconds === null ? "failed" : "succeeded",
    measured:
      stepTimeSeconds === null
        ? null
        : { stepTimeSeconds, tokensPerGpuPerSecond: 90, peakMemoryBytes: 1 << 20 },
    failure: null,
  }) as Trial;

it("lists trials by their predicted rank, with their place by measurement beside it", () => {
  const [head, ...rows] = trialsTable(
    [trial(7, 1.5), trial(1, 3), trial(4, null), trial(2, 2)],
    colors,
  ).split("\n");
  expect(head).toMatch(/^RANK +PLAN/);
  expect(rows.map((row) => /#\d+/.exec(row)?.[0])).toEqual(["#1", "#2", "#4", "#7"]);
  const at = (head as string).indexOf("place");
  expect(rows.map((row) => row.slice(at, at + 5).trim())).toEqual(["3", "2", "–", "1"]);
});

it("marks times that other work disturbed, and says what the mark means", () => {
  const disturbed = trial(2, 2);
  const run = { stepTimeSeconds: 2, disturbances: ["here: others took 45% of the processor time"] };
  const measured = { ...disturbed.measured, runs: [run] } as Trial["measured"];
  const lines = trialsTable([trial(1, 3), { ...disturbed, measured }], colors).split("\n");
  expect(lines[1]).toMatch(/ 3\.00 s {2} /);
  expect(lines[2]).toMatch(/ 2\.00 s \* /);
  expect(lines[1]?.indexOf("3.00 s")).toBe(lines[2]?.indexOf("2.00 s *"));
  expect(lines.at(-1)).toBe("* Other work ran beside every run of this plan, so its time says little.");
  expect(trialsTable([trial(1, 3)], colors)).not.toContain("*");
});

it("puts the plan of a trial below its figures where a terminal is narrow", () => {
  const lines = trialsTable([trial(1, 3), trial(2, 2)], { ...colors, width: 120 }).split("\n");
  expect(lines.filter((line) => line.length > 120)).toEqual([]);
  expect(lines).toContain("    b1 n4 a0 pp1 dp2 tp1 sp1 ps1 gs1 oss1");
  expect(trialsTable([trial(1, 3)], { ...colors, width: 200 }).split("\n")).toHaveLength(2);
  const [head, ...narrow] = trialsTable([trial(1, 3), trial(2, 2)], { ...colors, width: 80 }).split("\n");
  expect([head as string, ...narrow].filter((line) => line.length > 80)).toEqual([]);
  // What is left out is told elsewhere; the error of step times and the result are not.
  expect(head).toMatch(/^RANK +STEP pred\. +meas\. +place +error +MEMORY pred\. +meas\. +error +RESULT$/);
});

it("leaves out the columns of one figure together where a terminal is narrow", () => {
  const [head] = trialsTable([trial(1, 3), trial(2, 2)], { ...colors, width: 60 }).split("\n");
  expect(head).toMatch(/^RANK +STEP pred\. +meas\. +place +error +RESULT$/);
});

/** A job as lists show it, with what its stage said of how far it is. */
function summary(state: JobSummary["state"], said: Partial<StageProgress> | null): JobSummary {
  const progress =
    said === null
      ? null
      : {
          stage: state,
          message: "",
          done: null,
          total: null,
          waits: false,
          at: "2026-01-31T03:00:00.000Z",
          ...said,
        };
  return {
    id: "11112222",
    name: "a",
    state,
    reason: null,
    version: 1,
    createdAt: "2026-01-31T03:00:00.000Z",
    updatedAt: "2026-01-31T03:00:00.000Z",
    endedAt: null,
    model: "m",
    cluster: "c",
    project: "default",
    steps: 100,
    lastStep: 7,
    lastLoss: null,
    trialsDone: 2,
    trialsTotal: 10,
    queue: null,
    priority: "normal",
    preemptible: false,
    labels: {},
    owner: null,
    progress,
  };
}

it.each([
  ["profiling", null, "–"],
  ["profiling", { done: 12, total: 40 }, "run 12/40"],
  ["profiling", { message: WAITS_FOR_CLUSTER, done: 0, total: 1, waits: true }, "waits"],
  ["planning", { stage: "profiling", done: 40, total: 40 }, "–"],
  ["planning", { done: 3, total: 9 }, "batch 3/9"],
  ["trialling", { done: 2, total: 10 }, "trial 2/10"],
  ["running", { message: "starts the ranks", done: 0, total: 100 }, "step 7/100"],
] as const)("shows in the list how far a job is: %s, %o", (state, said, shown) => {
  const job = summary(state, said);
  const [head = "", row = ""] = jobsTable([job], colors).split("\n");
  expect(row.slice(head.indexOf("PROGRESS"), head.indexOf("LOSS")).trim()).toMatch(
    new RegExp(`^${shown}( |$)`),
  );
});

it("shows where a job stands in the queue, and behind whom", () => {
  const waitingSince = "2026-01-31T03:00:00.000Z";
  const job = {
    ...summary("profiling", null),
    queue: { position: 1, waitingSince, limit: null, gaveWayTo: null },
  };
  expect(jobsTable([job], colors)).toMatch(/queued +next/);
  expect(
    jobsTable([{ ...job, queue: { position: 23, waitingSince, limit: null, gaveWayTo: null } }], colors),
  ).toMatch(/queued +23rd in the queue/);
  const limit = "project nlp uses 8 of 8 GPUs";
  expect(
    jobsTable([{ ...job, queue: { position: 2, waitingSince, limit, gaveWayTo: null } }], colors),
  ).toContain(limit);
  const gaveWayTo = "job urgent";
  expect(
    jobsTable([{ ...job, queue: { position: 1, waitingSince, limit: null, gaveWayTo } }], colors),
  ).toMatch(/queued +next, gave way to job urgent/);
});

it("tells why a job failed once, in words, and nothing of a progress that it lacks", () => {
  const message = "no plan fits in 80 B a rank";
  const job = {
    id: "j",
    name: "a",
    state: "failed",
    reason: message,
    steps: 10,
    lastStep: 0,
    model: "m",
    cluster: "site",
    createdAt: "2026-01-31T03:00:00.000Z",
    endedAt: null,
    traceId: "t",
    progress: null,
    planning: null,
    trials: [],
    chosen: null,
    report: null,
    attempts: [],
    failure: { code: "no-feasible-plan", message, remedy: "give ranks more" },
    transitions: [
      { from: null, to: "profiling", at: "2026-01-31T03:00:00.000Z", reason: null },
      { from: "planning", to: "failed", at: "2026-01-31T03:00:01.000Z", reason: message },
    ],
    spec: {
      model: { name: "m" },
      sequenceLengthTokens: 1,
      globalBatchTokens: 1_048_576,
      precision: "fp32",
      cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpuBytes: 80, launcher: "local" },
    },
  } as unknown as JobDetail;
  const text = jobText(job, colors);
  expect(text.split(message)).toHaveLength(2);
  expect(text).toMatch(/^state +failed$/m);
  expect(text).toMatch(/^failure +no plan fits: no plan fits in 80 B a rank\n +→ give ranks more$/m);
  expect(text).toMatch(/^model +m, 1 token a sequence, 1,048,576 a step, fp32$/m);
  const windowed = { ...job.spec, model: { ...job.spec.model, slidingWindowTokens: 4096 } };
  expect(jobText({ ...job, spec: windowed }, colors)).toMatch(
    /^model +m, a window of 4,096 tokens, 1 token/m,
  );
  const training = jobText({ ...job, state: "running", failure: null, reason: null }, colors);
  expect(training).toMatch(/^state +training, step 0\/10$/m);
});

it("bounds long names, and keeps a terminal's width", () => {
  const job = (name: string): JobSummary => ({
    id: "11112222",
    name,
    state: "succeeded",
    reason: null,
    version: 1,
    createdAt: "2026-01-31T03:00:00.000Z",
    updatedAt: "2026-01-31T03:00:00.000Z",
    endedAt: null,
    model: `${name}-model`,
    cluster: name,
    project: "default",
    steps: 100,
    lastStep: 100,
    lastLoss: 1.5,
    trialsDone: 2,
    trialsTotal: 10,
    queue: null,
    priority: "normal",
    preemptible: false,
    labels: {},
    owner: null,
    progress: null,
  });
  const jobs = [job(`begin-${"x".repeat(300)}-end`), job("short")];
  const piped = jobsTable(jobs, colors).split("\n");
  expect(Math.max(...piped.map((line) => line.length))).toBeLessThan(200);
  expect(piped[1]).toMatch(/ begin-x+…x+-end /);
  for (const width of [120, 100, 80, 66]) {
    const lines = jobsTable(jobs, { ...colors, width }).split("\n");
    expect(
      lines.filter((line) => line.length > width),
      String(width),
    ).toEqual([]);
    expect(lines[0]).toMatch(/^ID +NAME +STATE +PROGRESS/);
  }
});

it("says with which nodes and plan attempts ran, where nodes were lost", () => {
  const job = (plans: readonly (Plan | undefined)[]) =>
    ({
      id: "j",
      name: "a",
      state: "running",
      reason: null,
      steps: 10,
      lastStep: 5,
      model: "m",
      cluster: "site",
      createdAt: "2026-01-31T03:00:00.000Z",
      endedAt: null,
      traceId: "t",
      failure: null,
      progress: null,
      transitions: [],
      planning: null,
      trials: [],
      chosen: null,
      report: null,
      spec: {
        model: { name: "m" },
        sequenceLengthTokens: 1,
        globalBatchTokens: 1,
        precision: "fp32",
        cluster: { nodes: 2, gpusPerNode: 1, memoryPerGpuBytes: 1, launcher: "slurm", minNodes: 1 },
      },
      attempts: plans.map((each, index) => ({
        number: index + 1,
        state: "failed",
        resumedFromStep: 0,
        lastStep: 5,
        failure: null,
        ...(each ? { plan: each } : {}),
      })),
    }) as unknown as JobDetail;
  const lines = jobText(job([plan, { ...plan, dataParallel: 1, microBatches: 8 }]), colors).split("\n");
  expect(lines).toContain("  1: failed, steps 0 to 5, 2 of 2 nodes, b1 n4 a0 pp1 dp2 tp1 sp1 ps1 gs1 oss1");
  expect(lines).toContain("  2: failed, steps 0 to 5, 1 of 2 nodes, b1 n8 a0 pp1 dp1 tp1 sp1 ps1 gs1 oss1");
  expect(lines.find((line) => line.startsWith("cluster"))).toMatch(
    /slurm, with 1 or more when nodes are lost$/,
  );
  expect(jobText(job([undefined, plan, plan]), colors).split("\n")).toContain("  3: failed, steps 0 to 5");
  expect(jobText(job([undefined, plan, plan]), colors)).not.toContain("of 2 nodes");
});

it("says where a job's checkpoints and timelines are, once there are some, and how to take its weights", () => {
  const files = { checkpoints: "/a data/jobs/1/checkpoints", timelines: "/a data/jobs/1/timelines" };
  const job = (over: object): JobDetail =>
    ({
      id: "1",
      name: "job",
      state: "running",
      reason: null,
      model: "m",
      cluster: "c",
      progress: null,
      givesWayTo: null,
      lastStep: 1,
      steps: 2,
      createdAt: "2026-01-31T03:00:00.000Z",
      endedAt: null,
      traceId: "t",
      files,
      spec: {
        model: { name: "m" },
        sequenceLengthTokens: 1,
        globalBatchTokens: 1,
        precision: "fp32",
        checkpointing: { everySteps: 1, keepLast: 1 },
        timeline: { firstStep: 1, steps: 1 },
        cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpuBytes: 1, launcher: "local" },
      },
      transitions: [],
      trials: [],
      attempts: [{ number: 1, state: "running", resumedFromStep: 0, lastStep: 1, plan: null, failure: null }],
      planning: null,
      chosen: null,
      failure: null,
      report: null,
      ...over,
    }) as unknown as JobDetail;
  const text = jobText(job({}), colors);
  expect(text).toContain("checkpoints   /a data/jobs/1/checkpoints");
  expect(text).toContain("internevo checkpoint export '/a data/jobs/1/checkpoints' FOLDER");
  expect(text).toContain("timelines     /a data/jobs/1/timelines");
  for (const over of [{ attempts: [] }, { files: undefined }])
    expect(jobText(job(over), colors)).not.toMatch(/checkpoint|timelines/);
  // No architecture of Hugging Face has both, so that the command would refuse.
  const { spec } = job({});
  const model = { ...spec.model, queryKeyNorm: true, queryKeyValueBias: true };
  const other = jobText(job({ spec: { ...spec, model } }), colors);
  expect(other).toContain("checkpoints   /a data/jobs/1/checkpoints");
  expect(other).not.toContain("checkpoint export");
});

describe("a discarded profile", () => {
  const at = (day: number) => `2026-11-0${day}T00:00:00.000Z`;
  const profile = (day: number) => ({
    id: `${day}`.repeat(8),
    name: `profile ${day}`,
    clusterKey: "local:here:1x2",
    createdAt: at(day),
  });

  it("is measured again where nothing newer is left, and an older one is named", () => {
    expect(discardedWords(profile(2), [])).toBe("the next job of its cluster measures it again");
    expect(discardedWords(profile(2), [profile(1)])).toMatch(
      /measures it again\. An older .* profile 1 \(11111111\): a job uses it only if it names it/,
    );
  });

  it("leaves jobs with the newer one where there is one", () => {
    expect(discardedWords(profile(2), [profile(3), profile(1)])).toBe(
      "jobs of its cluster go on with the newer profile 3 (33333333)",
    );
  });
});

it("shows the spec of a job or a workload to programs as a job file", () => {
  const file = {
    name: "small",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 65_536,
    cluster: { name: "here", nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB" },
  };
  const spec = resolveJob(file);
  const shown = jobDocument({ name: "workload", spec });
  expect(shown.name).toBe("workload");
  expect(shown.spec.cluster).toMatchObject({ memoryPerGpu: "80GB" });
  expect(shown.spec.cluster).not.toHaveProperty("memoryPerGpuBytes");
  expect(resolveJob(shown.spec)).toEqual(spec);
});
