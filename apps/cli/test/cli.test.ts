import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { JobDetail, JobStreamEvent } from "@internevo/contracts";
import { findShippedProfile } from "@internevo/cost-model";
import {
  clusterKey,
  constraintsOf,
  resolveJob,
  type Candidate,
  type JobState,
  type Measurement,
  type PlanningResult,
  type Profile,
  type Report,
  type Workload,
} from "@internevo/domain";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { planJob } from "@internevo/search";
import {
  createProposal,
  createTrials,
  ensureRun,
  finishAttempt,
  finishTrial,
  recordSteps,
  startAttempt,
  startTrial,
  storePlanning,
  storeProfile,
  transitionJob,
  updateJob,
} from "@internevo/store";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { run, start, startApiProcess, type ApiProcess, type Ended } from "./processes.ts";

let database: TestDatabase;
let api: ApiProcess;
let directory: string;
let env: NodeJS.ProcessEnv;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startApiProcess(database);
  directory = await mkdtemp(join(tmpdir(), "internevo-cli-"));
  env = { INTERNEVO_URL: api.url, INTERNEVO_TOKEN: api.token };
  await mkdir(join(directory, "data"));
  await writeFile(join(directory, "data", "text.txt"), "It was a bright cold day in April. ".repeat(100));
  await writeFile(join(directory, "job.yaml"), JOB);
});
afterAll(async () => {
  await api.stop();
  await database.drop();
  await rm(directory, { recursive: true });
});

// Its path is relative to the job file, not to whoever submits it.
const JOB = `
name: small
model: { name: tiny, hiddenSize: 64, layers: 2, heads: 4, vocabularySize: 256 }
sequenceLengthTokens: 128
globalBatchTokens: 512
precision: fp32
steps: 20
data: { format: text, paths: [data/text.txt] }
cluster: { name: here, nodes: 1, gpusPerNode: 2, memoryPerGpu: 1GiB }
`;
const internevo = (...args: string[]): Promise<Ended> => run(args, env);
const json = <T>(end: Ended): T => {
  expect(end.stderr).not.toContain("internevo:");
  return JSON.parse(end.stdout) as T;
};
const submit = async (): Promise<JobDetail> =>
  json<JobDetail>(await internevo("submit", join(directory, "job.yaml"), "--json"));

describe("token", () => {
  it("creates one that works by its role, lists it without its secret, and revokes it", async () => {
    const made = await internevo("token", "create", "ci", "--role", "viewer", "--valid-for", "30d");
    expect([made.status, made.stdout]).toEqual([0, expect.stringMatching(/^ivo_[\w-]{43}\n$/)]);
    expect(made.stderr).toMatch(
      /ci may use it as viewer until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+\. .* cannot be shown again/,
    );
    const as = { ...env, INTERNEVO_TOKEN: made.stdout.trim() };
    expect((await run(["whoami"], as)).stdout).toBe("ci viewer\n");
    const refused = await run(["submit", join(directory, "job.yaml")], as);
    expect([refused.status === 0, refused.stderr]).toEqual([
      false,
      expect.stringContaining("needs the role operator"),
    ]);
    const listed = await internevo("token", "list");
    expect(listed.stdout).toMatch(
      /ID +NAME +KIND +ROLE +PROJECT +CREATED +EXPIRES[\s\S]*ci +token +viewer +all/,
    );
    expect(listed.stdout).not.toContain("ivo_");
    expect((await internevo("token", "create", "ci", "--role", "operator")).stderr).toContain(
      "there is a token ci already",
    );
    expect((await internevo("token", "create", "x", "--role", "root")).status).toBe(2);
    expect(await internevo("token", "revoke", "ci")).toMatchObject({
      status: 0,
      stdout: expect.stringMatching(
        /^token ci is revoked \([0-9a-f-]{36}\): whoever uses it is refused from now on\n$/,
      ) as string,
    });
    expect((await run(["whoami"], as)).stderr).toContain("the token is not valid");
  });
});

describe("submit, ps, show, cancel", () => {
  it("write data to standard output and the rest to standard error", async () => {
    const plain = await internevo("submit", join(directory, "job.yaml"));
    expect([plain.status, plain.stdout]).toEqual([0, expect.stringMatching(/^[0-9a-f-]{36}\n$/)]);
    expect(plain.stderr).toContain("follow it with");
    const id = plain.stdout.trim();

    const [ps, psJson, show, showJson] = await Promise.all([
      internevo("ps"),
      internevo("--json", "ps", "-n", "1"),
      internevo("show", id),
      internevo("show", id, "--json"),
    ]);
    expect([ps.status, ps.stderr]).toEqual([0, ""]);
    expect(ps.stdout).toMatch(/^ID +NAME +STATE/);
    expect(ps.stdout).toContain(id.slice(0, 8));
    expect(ps.stdout + show.stdout).not.toMatch(/\u001b/);
    expect(json<{ id: string }[]>(psJson).map((job) => job.id)).toEqual([id]);
    expect(show.stdout).toContain("submitted → profiling");
    const job = json<JobDetail>(showJson);
    expect(job).toMatchObject({
      id,
      name: "small",
      spec: { data: { paths: [join(directory, "data", "text.txt")] } },
    });

    expect(json<JobDetail>(await internevo("show", id.slice(0, 13), "--json")).id).toBe(id);
    expect(json<JobDetail>(await internevo("show", "small", "--json")).id).toBe(id);
    const plans = ["b1 n2 a0 pp1 dp2 tp1 sp1 ps1 gs1 oss1", "b2 n1 a0 pp1 dp2 tp1 sp1 ps1 gs1 oss1"];
    const [why, difference, step] = await Promise.all([
      internevo("why-not", "small", plans[0]!, "--profile", "a800-128", "--json"),
      internevo("explain", id.slice(0, 13), ...plans, "--profile", "a800-128"),
      internevo("simulate", "small", "--profile", "a800-128"),
    ]);
    expect(json<{ measured: unknown }>(why).measured).toBeNull();
    expect([difference.status, difference.stdout]).toEqual([0, expect.stringContaining("By prediction ")]);
    expect([step.status, step.stderr]).toEqual([7, expect.stringContaining("small has chosen no plan yet")]);
    const cancelled = await internevo("cancel", id.slice(0, 13));
    expect([cancelled.status, cancelled.stdout]).toEqual([0, `${id} cancelled\n`]);
  });

  it("submit once with one key, and take the job from standard input", async () => {
    expect((await run(["submit", "-"], env, { input: "{" })).status).toBe(2);
    const { spec } = await submit();
    const again = await run(["submit", "-", "--json"], env, { input: JSON.stringify(spec) });
    expect(json<JobDetail>(again).spec).toEqual(spec);
    const large = await run(["submit", "-"], env, { input: JSON.stringify({ ...spec, model: "llama-7b" }) });
    expect([large.status, large.stderr]).toEqual([3, expect.stringMatching(/fits in 1\.00 GiB/)]);
    const args = ["submit", join(directory, "job.yaml"), "--idempotency-key", "once", "--json"];
    const [first, second] = await Promise.all([internevo(...args), internevo(...args)]);
    expect(json<JobDetail>(first).id).toBe(json<JobDetail>(second).id);
  });

  it("are checked where they would run, when a stack is at hand", async () => {
    const written = async (over: string): Promise<string> => {
      const path = join(directory, "data", "checked.yaml");
      await writeFile(path, JOB.replace("data/text.txt", "text.txt") + over);
      return path;
    };
    const good = await internevo("validate", await written(""));
    expect([good.status, good.stderr]).toEqual([0, expect.not.stringContaining("internevo:")]);
    expect(good.stderr).toMatch(/^valid: tiny at 128 tokens/m);
    const gpus = (await written("")).replace("checked", "gpus");
    await writeFile(gpus, JOB.replace("data/text.txt", "text.txt").replace("1GiB", "1GiB, device: cuda"));
    const refused = await internevo("validate", gpus);
    expect([refused.status, refused.stdout, refused.stderr]).toEqual([
      2,
      expect.stringContaining("device: cuda"),
      expect.stringMatching(/cluster\.(device|gpusPerNode) \(is .*\n +→ .*device: cpu/),
    ]);
    expect(refused.stderr).not.toContain("valid:");
    expect(refused.stderr).toMatch(/^the stack refuses this job, which can be planned: tiny at 128 tokens/);
    const offline = await internevo("validate", gpus, "--offline");
    expect([offline.status, offline.stderr]).toEqual([0, expect.stringMatching(/^valid: tiny/m)]);
    const large = (await written("")).replace("checked", "large");
    await writeFile(large, JOB.replace("data/text.txt", "text.txt").replace("1GiB", "800TiB"));
    expect((await internevo("validate", large)).stderr).toContain('cluster.memoryPerGpu (is "800TiB")');
    expect((await internevo("submit", gpus)).status).toBe(2);
  });

  it("are checked with the profile file that they name, with and without a stack", async () => {
    const path = join(directory, "profiled.yaml");
    await writeFile(path, JOB.replace("1GiB", "1GiB, profile: own.json"));
    const profile = join(directory, "own.json");
    const refused = `cluster.profile (is "${profile}")`;
    for (const options of [[], ["--offline"]]) {
      const said = () => internevo("validate", path, ...options);
      expect(await said()).toMatchObject({ status: 4, stderr: expect.stringContaining(refused) as string });
      await writeFile(profile, "{");
      expect((await said()).stderr).toContain("own.json is not JSON");
      await writeFile(profile, JSON.stringify(findShippedProfile("a800-128")));
      const { status, stderr } = await said();
      expect([status, stderr]).toEqual([0, expect.stringMatching(/^valid: tiny/m)]);
      expect(stderr).not.toContain("the cluster is measured");
      await rm(profile);
    }
    expect((await internevo("submit", path)).stderr).toContain(refused);
  });

  it("are planned with what the stack has measured of their cluster", async () => {
    const path = join(directory, "job.yaml");
    const before = await internevo("plan", path);
    expect([before.status, before.stderr]).toEqual([
      4,
      expect.stringMatching(/cluster here, 1 × 2, has not been measured\n +→ give .*--profile a800-128/),
    ]);
    const profile = { ...(findShippedProfile("a800-128") as Profile), name: "here 18:58Z" };
    const { db } = database.database;
    await storeProfile(db, {
      clusterKey: "local:here:1x4",
      profile: { ...profile, name: "here of four" },
      freshForSeconds: 60,
    });
    expect((await internevo("plan", path)).stderr).toContain("--profile 'here of four'");
    const id = await storeProfile(db, {
      clusterKey: clusterKey(resolveJob(parse(JOB)).cluster),
      profile,
      freshForSeconds: 60,
    });
    expect(json<PlanningResult>(await internevo("plan", path, "--json")).profile).toBe("here 18:58Z");
    await db.execute(`delete from profiles where id = '${id}' or cluster_key = 'local:here:1x4'`);
  });

  it("follow to the end, with a status that says how it ended", async () => {
    const following = start(["submit", "-f", join(directory, "job.yaml"), "--json"], env);
    await following.says("stderr", "▶ profiling");
    const id = /job ([0-9a-f-]{36})/.exec(following.stderr())?.[1] ?? "";
    expect((await internevo("cancel", id)).status).toBe(0);
    const end = await following.ended;
    expect([end.status, (JSON.parse(end.stdout) as JobDetail).state]).toEqual([8, "cancelled"]);
  });

  it("go on where they stopped, are followed again, and are not let go on twice", async () => {
    const { id } = await submit();
    expect((await internevo("cancel", id)).status).toBe(0);
    const resumed = await internevo("resume", id);
    expect([resumed.status, resumed.stdout]).toEqual([0, `${id} profiling\n`]);
    const again = await internevo("resume", id);
    expect([again.status, again.stderr]).toEqual([
      7,
      expect.stringMatching(/is profiling: it cannot be let go on[^]*it goes on already/),
    ]);
    const failure = { code: "too-many-restarts", message: "rank 1 was killed" } as const;
    await database.database.transaction((tx) =>
      transitionJob(tx, { jobId: id, from: "profiling", to: "held", failure }),
    );
    const following = start(["resume", "-f", id, "--json"], env);
    await following.says("stderr", "▶ profiling");
    await database.database.transaction((tx) =>
      transitionJob(tx, { jobId: id, from: "profiling", to: "held", failure }),
    );
    const end = await following.ended;
    expect(end.stderr).toContain("job held: rank 1 was killed");
    expect([end.status, (JSON.parse(end.stdout) as JobDetail).state]).toEqual([1, "held"]);
    expect((await internevo("cancel", id)).status).toBe(0);
  });
});

describe("a whole job", { timeout: 120_000 }, () => {
  let id: string;
  const spec = resolveJob({
    name: "whole",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 4 * 1024 * 1024,
    steps: 20,
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
  });
  /** What the services would write, through the same repositories. */
  async function live(): Promise<void> {
    const profile = findShippedProfile("a800-128");
    if (!profile) throw new Error("the profile ships with the project");
    const planning = planJob(spec, profile, { top: 3 });
    const { candidates } = planning;
    const go = (from: JobState, to: JobState, report?: Report) =>
      database.database.transaction((tx) =>
        transitionJob(tx, { jobId: id, from, to, ...(report ? { report } : {}) }),
      );
    await database.database.transaction(async (tx) => {
      const planningId = await storePlanning(tx, planning, { jobId: id });
      await updateJob(tx, id, { planningId, chosen: candidates[0] as Candidate });
    });
    await go("profiling", "planning");
    await go("planning", "trialling");
    const trials = await database.database.transaction((tx) => createTrials(tx, id, candidates));
    for (const [index, trial] of trials.entries()) {
      const { predicted } = trial.candidate;
      const measured: Measurement = {
        stepTimeSeconds: predicted.stepTimeSeconds * 1.1,
        stepTimeSecondsP10: 1,
        stepTimeSecondsP90: 1,
        steps: 5,
        tokensPerGpuPerSecond: predicted.tokensPerGpuPerSecond / 1.1,
        peakMemoryBytes: predicted.peakMemoryBytes,
        residentPeakBytes: 1,
        memory: predicted.memory,
        loss: 3,
        communicationSeconds: 0.1,
      };
      await database.database.transaction((tx) => startTrial(tx, trial.id));
      await database.database.transaction((tx) =>
        finishTrial(
          tx,
          trial.id,
          index === 2
            ? { failure: { code: "out-of-memory", message: "the arena is too small" } }
            : { measured },
        ),
      );
    }
    await go("trialling", "running");
    const candidate = candidates[0] as Candidate;
    const metric = {
      gradientNorm: 1,
      learningRate: 0.1,
      stepTimeSeconds: 0.25,
      tokensPerSecond: 2048,
      exposedCommunicationSeconds: 0,
      attempt: 1,
      at: new Date().toISOString(),
    };
    await database.database.transaction(async (tx) => {
      const { id: runId } = await ensureRun(tx, id, candidate);
      await startAttempt(tx, runId);
      await recordSteps(
        tx,
        { jobId: id, runId },
        Array.from({ length: 20 }, (_, index) => ({ ...metric, step: index + 1, loss: 5 - index / 10 })),
      );
      await finishAttempt(tx, runId, 1, { state: "succeeded" });
    });
    await go("running", "succeeded", {
      plan: candidate.plan,
      steps: 20,
      finalLossNats: 3.15,
      unigramEntropyNats: 3.2,
      meanStepTimeSeconds: 0.25,
      tokensPerGpuPerSecond: 1024,
      attempts: 1,
      timeErrorOverTrials: 0.091,
      memoryErrorOverTrials: 0,
      kendallTauOverTrials: 1,
    });
  }

  it("is followed by logs -f, each event once, and shown with predicted beside measured", async () => {
    ({ id } = await submit());
    const following = start(["logs", "-f", id, "--json"], env);
    await following.says("stdout", '"to":"profiling"');
    await live();
    const end = await following.ended;
    expect(end.status).toBe(0);
    const events = end.stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as JobStreamEvent);
    expect(events.filter((event) => event.type === "step")).toHaveLength(20);
    expect(events.filter((event) => event.type === "trial")).toHaveLength(6);
    expect(events.at(-1)).toMatchObject({ type: "state", data: { to: "succeeded" } });

    const again = await internevo("logs", id, "--after", String(events.at(-4)?.id), "--json");
    expect(
      again.stdout
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line) as JobStreamEvent),
    ).toEqual(events.slice(-3));
    const readable = await internevo("logs", id);
    expect(readable.stdout.trim().split("\n")).toHaveLength(events.length);
    expect(readable.stdout).toMatch(/step +20 loss 3\.1000/);
    expect(readable.stdout).toMatch(
      /report +20 steps in 1 attempt, .*; 3\.1500 nats a token, below the unigram entropy/,
    );

    const show = (await internevo("show", id)).stdout;
    expect(show).toMatch(/#1 +b\d.*−9\.1%.*(measured|chosen)/);
    expect(show).toMatch(/#3 +b\d.*out of memory/);
    expect(show).toContain("3.1500 nats a token, below the unigram entropy of the text, 3.2000");
    expect(show).toContain("20 steps in 1 attempt");
    expect((await internevo("cancel", id)).status).toBe(7);
  });

  it("goes on when whoever submitted and followed it presses Ctrl-C, and is said to", async () => {
    const following = start(["submit", "-f", join(directory, "job.yaml")], env);
    await following.says("stderr", "▶ profiling");
    following.child.kill("SIGINT");
    const { status, stderr } = await following.ended;
    const job = /job ([0-9a-f-]{36}) small/.exec(stderr)?.[1] ?? "";
    expect([status, stderr]).toEqual([
      130,
      expect.stringContaining(
        `job ${job} goes on. Follow it with: internevo logs -f ${job}\ncancel it with: internevo cancel ${job}\n`,
      ),
    ]);
    expect((await internevo("cancel", job)).stdout).toBe(`${job} cancelled\n`);
  });

  it("stops being followed at Ctrl-C, with 130", async () => {
    const { id: other } = await submit();
    const following = start(["logs", "-f", other], env);
    await following.says("stdout", "profiling");
    following.child.kill("SIGINT");
    expect((await following.ended).status).toBe(130);
    await internevo("cancel", other);
  });
});

describe("profile and replan", () => {
  it("show what was measured, and keep workloads", async () => {
    const none = await internevo("profile", "list");
    expect(none.stderr).toContain("no profiles yet");
    expect(none.stdout).toMatch(/\n– +a800-128 +– +shipped +–/);
    const profile = findShippedProfile("a800-128");
    if (!profile) throw new Error("the profile ships with the project");
    const id = await storeProfile(database.database.db, {
      clusterKey: "local:here:1x2",
      profile,
      freshForSeconds: 60,
    });
    const [list, show, document] = await Promise.all([
      internevo("profile"),
      internevo("profile", "show", id),
      internevo("profile", "show", id, "--json"),
    ]);
    expect(list.stdout).toMatch(new RegExp(`${id.slice(0, 8)} +\\S+ +all `));
    expect(show.stdout).toMatch(/all-gather +\d+/);
    expect(json(document)).toEqual(profile);
    expect((await internevo("profile", "show", "here")).stdout).toContain(id);
    const planned = json<{ profile: string }>(
      await internevo(
        "plan",
        fileURLToPath(new URL("../../../examples/paper/7b-32k.yaml", import.meta.url)),
        "--top=1",
        "--profile",
        "here",
        "--json",
      ),
    );
    expect(planned.profile).toBe("a800-128");

    const added = json<Workload>(
      await internevo(
        "replan",
        "add",
        join(directory, "job.yaml"),
        "--cron",
        "0 4 * * *",
        "--time-zone",
        "Europe/Berlin",
        "--gain-threshold",
        "0.1",
        "--json",
      ),
    );
    expect(added).toMatchObject({
      name: "small",
      cron: "0 4 * * *",
      timeZone: "Europe/Berlin",
      gainThreshold: 0.1,
    });
    const { spec: job, ...lean } = added;
    expect(job.cluster).not.toHaveProperty("memoryPerGpuBytes");
    expect(json(await internevo("replan", "list", "--json"))).toEqual([lean]);
    const edited = await internevo("replan", "edit", "small", "--policy=apply", "--gain-threshold=2%");
    expect(edited.stderr).toMatch(/^note: The threshold of 2\.0% is less than/m);
    expect((await internevo("replan", "add", join(directory, "job.yaml"))).status).toBe(7);
    expect((await internevo("replan")).stdout).toContain("0 4 * * * Europe/Berlin");
    expect((await internevo("replan", "proposals", "small")).stderr).toContain("it has not been planned yet");
    const ran = await internevo("replan", "run", "small");
    expect([ran.stdout, ran.stderr]).toEqual([
      expect.stringContaining("queued or running"),
      expect.stringMatching(/^queued: /),
    ]);
    expect((await internevo("replan", "proposals", added.id.slice(0, 8))).stderr).toContain(
      "is queued or running",
    );
    expect((await internevo("replan", "run", added.id)).status).toBe(7);
    expect(json(await internevo("replan", "proposals", added.id, "--json"))).toEqual([]);

    // A proposal carries the job that takes it up, which can be submitted as it is.
    const spec = resolveJob(parse(JOB.replace("1GiB", "80GB")));
    const [proposed] = planJob(spec, profile, { top: 1 }).candidates as [Candidate];
    const { db } = database.database;
    const { rows } = await db.execute<{ id: string }>(
      `select id from workload_firings where workload_id = '${added.id}'`,
    );
    await database.database.transaction((tx) =>
      createProposal(tx, {
        workloadId: added.id,
        firingId: rows[0]?.id as string,
        planningId: null,
        current: null,
        proposed,
        predictedGain: 1,
        differences: [],
      }),
    );
    const [found] = json<{ job: unknown }[]>(await internevo("replan", "proposals", added.id, "--json"));
    const submitted = await run(["submit", "-", "--json"], env, { input: JSON.stringify(found?.job) });
    const { id: jobId, name, spec: own } = json<JobDetail>(submitted);
    expect([name, own.plan]).toEqual(["small", constraintsOf(proposed.plan)]);
    await internevo("cancel", jobId, "--no-wait");
    expect((await internevo("replan", "remove", added.id)).stdout).toBe(`${added.id}\n`);
    expect(json(await internevo("replan", "list", "--json"))).toEqual([]);
  });

  it("measure the cluster of a job that names a profile", async () => {
    const path = join(directory, "named.yaml");
    await writeFile(path, JOB.replace("memoryPerGpu: 1GiB }", "memoryPerGpu: 1GiB, profile: a800-128 }"));
    const measuring = start(["profile", "measure", path], env);
    await measuring.says("stderr", "job ");
    const id = (/job ([0-9a-f-]{36}) /.exec(measuring.stderr()) as RegExpExecArray)[1] as string;
    measuring.child.kill("SIGINT");
    await measuring.ended;
    const { spec } = json<JobDetail>(await internevo("show", id, "--json"));
    expect(spec.cluster).not.toHaveProperty("profile");
    expect(spec).toMatchObject({ name: "measure small", measureAgain: true, until: "profiling" });
  });

  it("send the content of a profile file, which the services do not read", async () => {
    const profile = { ...findShippedProfile("a800-128"), name: "mine" };
    await writeFile(join(directory, "mine.json"), JSON.stringify(profile));
    const withProfile = async (name: string): Promise<string> => {
      const path = join(directory, `with-${name.replaceAll("/", "-")}.yaml`);
      await writeFile(path, JOB.replace("memoryPerGpu: 1GiB }", `memoryPerGpu: 4GiB, profile: ${name} }`));
      return path;
    };
    const first = json<JobDetail>(await internevo("submit", await withProfile("./mine.json"), "--json"));
    const second = json<JobDetail>(await internevo("submit", await withProfile("mine.json"), "--json"));
    const id = first.spec.cluster.profile ?? "";
    expect(second.spec.cluster.profile).toBe(id);
    expect(json(await internevo("profile", "show", id, "--json"))).toEqual(profile);
    expect(
      json<JobDetail>(await internevo("submit", await withProfile("a800-128"), "--json")).spec.cluster
        .profile,
    ).toBe("a800-128");
    expect(
      json<Workload>(
        await internevo("replan", "add", await withProfile("mine.json"), "--name", "of a file", "--json"),
      ).spec.cluster.profile,
    ).toBe(id);
    for (const command of [["submit"], ["replan", "add"]]) {
      const absent = await internevo(...command, await withProfile("absent.json"));
      expect([absent.status, absent.stderr]).toEqual([
        4,
        expect.stringContaining(`cluster.profile (is "${join(directory, "absent.json")}"): does not exist`),
      ]);
    }
  });
});

describe("what is wrong", { timeout: 120_000 }, () => {
  it("has a status of its own, and names field, value and remedy on standard error", async () => {
    await writeFile(join(directory, "unknown-field.yaml"), `${JOB}learningRate: 1\n`);
    await writeFile(join(directory, "no-data.yaml"), JOB.replace("data/text.txt", "data/absent.txt"));
    await writeFile(join(directory, "broken.yaml"), "name: [");
    const cases: [string[], NodeJS.ProcessEnv, number, RegExp][] = [
      [["bogus"], env, 2, /unknown command 'bogus'/],
      [["ps", "--limit", "0"], env, 2, /integer from 1/],
      [["submit", join(directory, "absent.yaml")], env, 2, /absent\.yaml does not exist/],
      [["submit", join(directory, "broken.yaml")], env, 2, /line 1/],
      [
        ["submit", join(directory, "unknown-field.yaml")],
        env,
        2,
        /learningRate \(is 1\): unknown field\n +→ remove it/,
      ],
      [
        ["submit", join(directory, "no-data.yaml")],
        env,
        2,
        /data\.paths\.0 .*absent\.txt"\): does not exist/,
      ],
      [["show", "nobody"], env, 4, /there is no job nobody/],
      [["logs", "-f", "nobody"], env, 4, /there is no job nobody/],
      [["show", "00000000-0000-4000-8000-000000000000"], env, 4, /there is no job 00000000/],
      [
        ["cancel", "small"],
        env,
        2,
        /small names \d+ jobs.*\n +job: may be small of .*\n +→ give [0-9a-f]{8}/,
      ],
      [["ps"], { ...env, INTERNEVO_TOKEN: "ivo_wrong" }, 6, /token is not valid/],
      [["ps", "--token", "a\nb"], env, 6, /the token is not one\n +--token: is empty, or has characters/],
      [["ps"], { ...env, INTERNEVO_URL: "http://127.0.0.1:1" }, 5, /cannot reach http:\/\/127\.0\.0\.1:1/],
      [["ps"], { ...env, INTERNEVO_URL: "ftp://x" }, 2, /--url/],
      [["ps", "--data-directory", join(directory, "none")], {}, 5, /internevo up/],
      [["ps", "--url", "nonsense"], {}, 2, /--url \(is "nonsense"\): is not an http or https URL\n +→ give/],
      [
        ["replan", "run", "nobody"],
        env,
        4,
        /workload \(is "nobody"\): is neither an id.*\n +→ see `internevo replan list`/,
      ],
      [
        ["replan", "proposals", "nobody"],
        env,
        4,
        /workload \(is "nobody"\): is neither an id.*\n +→ see `internevo replan list`/,
      ],
      [
        ["replan", "remove", "nobody"],
        env,
        4,
        /workload \(is "nobody"\): is neither an id.*\n +→ see `internevo replan list`/,
      ],
      [
        ["profile", "show", "nobody"],
        env,
        4,
        /profile \(is "nobody"\): is neither an id.*\n +→ see `internevo profile list`/,
      ],
      [
        ["up", "--data-directory", "/proc/internevo"],
        {},
        2,
        /dataDirectory \(is "\/proc\/internevo"\): is in a file system that refuses new directories\n +→ choose/,
      ],
      [
        ["up", "--data-directory", "/etc/passwd"],
        {},
        2,
        /dataDirectory \(is "\/etc\/passwd"\): leads through something that is no directory\n +→ choose/,
      ],
      [["ps", "--data-directory", "/etc/passwd"], {}, 5, /no local stack runs in \/etc\/passwd/],
    ];
    for (const [args, environment, status, message] of cases) {
      const end = await run(args, environment);
      expect([args, end.status, end.stdout]).toEqual([args, status, ""]);
      expect(end.stderr).toMatch(message);
    }
  });

  it("is one JSON value on standard error with --json", async () => {
    const end = await internevo("--json", "show", "nobody");
    expect(end.status).toBe(4);
    expect(JSON.parse(end.stderr)).toMatchObject({
      error: { code: "not-found", errors: [{ field: "job", value: "nobody" }] },
    });
  });
});
