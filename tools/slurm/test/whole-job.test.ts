import { eventually } from "@internevo/test-kit";
import { join } from "node:path";
import { readSlurmRecord } from "@internevo/launcher";
import { launchDirectory } from "@internevo/stages";
import { isLeaseLive, jobLease, listTrials, requestCancel, resumeJob } from "@internevo/store";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { JOB_FILES } from "@internevo/launcher";
import { whyImpossible } from "../src/stand.ts";
import { progressOf, stepEvent, upTo } from "@internevo/test-kit/job-told";
import { createJobWorld, type JobWorld } from "./job-world.ts";
import { linesOf } from "./slurm-world.ts";

const impossible = whyImpossible();
if (impossible !== undefined) console.warn(`The tests of whole jobs on Slurm are skipped: ${impossible}`);

describe.skipIf(impossible !== undefined)("a job on a Slurm cluster", () => {
  let jobs: JobWorld;
  beforeAll(async () => {
    jobs = await createJobWorld();
  });
  afterAll(() => jobs?.close());
  afterEach(() => jobs.tidy());

  it("is profiled, planned, tried and trained, each of it as a Slurm job of its own", async () => {
    const { world } = jobs;
    await jobs.executor();
    const id = await jobs.submit(
      { memoryPerGpu: "512MiB", profile: undefined },
      { steps: 30, trials: { count: 2, warmupSteps: 1, steps: 2, repeats: 0 } },
    );
    await world.untilState(id, "succeeded", 300);
    expect(await listTrials(world.database.db, id)).toMatchObject([
      { state: "succeeded" },
      { state: "succeeded" },
    ]);
    const { steps, attempts } = await jobs.runOf(id);
    expect(steps.map(({ step }) => step)).toEqual(upTo(30));
    expect(attempts).toMatchObject([{ number: 1, state: "succeeded", resumedFromStep: 0 }]);
    // The trainer's own memory, the probe, two trials and the run.
    expect((await jobs.slurmJobs()).map(({ state }) => state)).toEqual([
      "COMPLETED",
      "COMPLETED",
      "COMPLETED",
      "COMPLETED",
      "COMPLETED",
    ]);
    await world.untilEvent(id, progressOf(/^waits in Slurm's queue as job \d+: /), 5);
    await world.untilEvent(id, progressOf(/^Slurm job \d+ runs on n\[1-2\]$/), 5);
  }, 900_000);

  it("goes on with the same ranks when its supervisor is killed, or told to stop, and is submitted once", async () => {
    const { world, site } = jobs;
    const before = (await jobs.slurmJobs()).length;
    let service = await jobs.executor();
    // Ranks that wait at a gate for as long as it takes have not died.
    const id = await jobs.submit({ name: "held" }, { steps: 400, watchdog: false });
    await world.untilEvent(id, stepEvent(5), 120);
    const ranks = world.rankPids();
    expect(ranks).toHaveLength(2);
    const submission =
      readSlurmRecord(launchDirectory(world.dataDirectory, { name: "held", launcher: "slurm" }, id, "run"))
        ?.directory ?? "";
    await service.kill();
    // They go on with nobody who looks.
    site.held.open("first");
    await eventually(
      "the ranks have gone on",
      () => linesOf(join(submission, JOB_FILES.events)).length >= 2 * site.held.lines,
      60,
    );
    expect(world.rankPids()).toEqual(ranks);
    expect((await jobs.runOf(id)).steps.length).toBeLessThan(site.held.lines);
    service = await jobs.executor();
    await world.untilEvent(id, stepEvent(site.held.lines + 10), 60);
    process.kill(service.pid, "SIGTERM");
    await service.gone;
    expect(world.rankPids()).toEqual(ranks);
    site.held.open("second");
    service = await jobs.executor();
    await world.untilState(id, "succeeded", 200);
    const { steps, attempts } = await jobs.runOf(id);
    expect(steps.map(({ step }) => step)).toEqual(upTo(400));
    expect(attempts).toMatchObject([{ number: 1, state: "succeeded", resumedFromStep: 0 }]);
    // A trial and the run.
    expect((await jobs.slurmJobs()).length - before).toBe(2);
  }, 900_000);

  it("is ended in Slurm when it is cancelled while nobody looks after it", async () => {
    const { world } = jobs;
    const service = await jobs.executor();
    const id = await jobs.submit({}, { steps: 100_000 });
    await world.untilEvent(id, stepEvent(3), 120);
    await service.kill();
    // The dead supervisor's lease has to end first: until then it counts as alive.
    await eventually(
      "the lease has ended",
      async () => !(await isLeaseLive(world.database.db, jobLease(id))),
      30,
    );
    expect(await world.database.transaction((tx) => requestCancel(tx, id))).toBe("cancelled");
    expect(world.rankPids()).toHaveLength(2);
    await jobs.executor();
    await world.untilNoRanks(20);
    await eventually(
      "Slurm says that it was cancelled",
      async () => (await jobs.slurmJobs()).at(-1)?.state === "CANCELLED",
      20,
    );
  }, 900_000);

  it("fails when somebody cancels its Slurm job by hand while it trains, is not submitted again, and goes on when it is resumed", async () => {
    const { world, site } = jobs;
    await jobs.supervise();
    const id = await jobs.submit({ name: "slowed" }, { steps: 200 });
    await world.untilEvent(id, stepEvent(12), 120);
    const before = await jobs.slurmJobs();
    await site.slurm.slurm("scancel", String(before.at(-1)?.id));
    await world.untilState(id, "failed", 120);
    expect((await world.job(id)).failure).toMatchObject({
      code: "cancelled",
      message: expect.stringMatching(
        /^Slurm job \d+ has ended in order, with a checkpoint; cancelled in Slurm, and not by InternEvo$/,
      ),
      remedy: expect.stringContaining("internevo resume"),
    });
    const after = await jobs.slurmJobs();
    expect(after.map((job) => job.id)).toEqual(before.map((job) => job.id));
    expect(after.at(-1)?.state).toBe("CANCELLED");
    const stopped = (await jobs.runOf(id)).steps.length;
    site.slowed.open("first", "second");
    await world.database.transaction((tx) => resumeJob(tx, id, "resumed"));
    await eventually("it has succeeded", async () => (await world.job(id)).state === "succeeded", 120);
    const { steps, attempts } = await jobs.runOf(id);
    expect(attempts.at(-1)?.resumedFromStep).toBe(stopped);
    expect(steps.map(({ step }) => step)).toEqual(upTo(200));
  }, 900_000);

  it("is cancelled while it waits in the queue, and while it runs", async () => {
    const { world, site } = jobs;
    await jobs.supervise();
    const leave = await site.occupy();
    const id = await jobs.submit({});
    await world.untilEvent(
      id,
      progressOf(/waits in Slurm's queue as job \d+: the nodes that it needs are busy/),
      60,
    );
    expect(await world.database.transaction((tx) => requestCancel(tx, id))).toBe("cancelling");
    await world.untilState(id, "cancelled", 30);
    expect((await jobs.slurmJobs()).at(-1)?.state).toBe("CANCELLED");
    await leave();
    const running = await jobs.submit({}, { steps: 100_000 });
    await world.untilEvent(running, stepEvent(3), 120);
    expect(await world.database.transaction((tx) => requestCancel(tx, running))).toBe("cancelling");
    await world.untilState(running, "cancelled", 60);
    await world.untilNoRanks();
    expect((await jobs.runOf(running)).attempts).toMatchObject([{ state: "stopped" }]);
  }, 900_000);
});
