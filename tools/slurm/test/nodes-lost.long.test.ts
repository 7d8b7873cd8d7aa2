import { eventually } from "@internevo/test-kit";
import { worldSize } from "@internevo/domain";
import { sql } from "drizzle-orm";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { whyImpossible } from "../src/stand.ts";
import { stepEvent, upTo } from "@internevo/test-kit/job-told";
import { createJobWorld, type JobWorld } from "./job-world.ts";

const impossible = whyImpossible();
if (impossible !== undefined) console.warn(`The tests of lost nodes on Slurm are skipped: ${impossible}`);

/** All stay: ranks behind a brake write more than they have told of. */
const checkpointing = { everySteps: 10, keepLast: 100 };

describe.skipIf(impossible !== undefined)("a job on a Slurm cluster that loses nodes", () => {
  let jobs: JobWorld;
  beforeAll(async () => {
    jobs = await createJobWorld({ nodeTimeoutSeconds: 6 });
  });
  afterAll(() => jobs?.close());
  afterEach(() => jobs.tidy());

  it("goes on from its checkpoint on the nodes that are left", async () => {
    const { world, site } = jobs;
    await jobs.supervise();
    const id = await jobs.submit({ name: "slowed" }, { steps: 400, checkpointing });
    await world.untilEvent(id, stepEvent(21), 120);
    await jobs.killNode("n2");
    site.slowed.open("first", "second");
    await world.untilState(id, "succeeded", 200);
    const { steps, attempts } = await jobs.runOf(id);
    expect(attempts, attempts[0]?.failure?.message).toMatchObject([
      { state: "failed", failure: { code: "rank-lost" } },
      { state: "succeeded" },
    ]);
    expect(attempts[1]?.resumedFromStep).toBeGreaterThanOrEqual(20);
    expect(steps.map(({ step }) => step)).toEqual(upTo(400));
    expect((await jobs.slurmJobs()).at(-1)).toMatchObject({ state: "COMPLETED", nodes: "n[1,3]" });
  }, 900_000);

  it("fails in words when those that are left are too few, and it does not allow fewer", async () => {
    const { world } = jobs;
    await jobs.supervise();
    const id = await jobs.submit({ nodes: 3 }, { globalBatchTokens: 384, steps: 100_000 });
    await world.untilEvent(id, stepEvent(12), 120);
    await jobs.killNode("n3");
    await world.untilState(id, "failed", 120);
    expect((await world.job(id)).failure).toMatchObject({
      code: "not-started",
      message: expect.stringMatching(
        /^Slurm job \d+ needs 3 nodes, and 2 of partition main can take jobs since .*: n3 is \S*(down|not_responding)/,
      ),
      remedy: expect.stringContaining("nodes: 2 or fewer"),
    });
    expect(
      (await jobs.slurmJobs()).filter(({ state }) => state === "PENDING" || state === "RUNNING"),
    ).toEqual([]);
  }, 900_000);

  it("is planned again for those that are left where it allows that, once, though its supervisor is killed in the middle of it", async () => {
    const { world, site } = jobs;
    const { db } = world.database;
    // Whoever changes the plan of a run waits for this lock.
    await db.execute(
      sql.raw(
        "create function wait_for_test() returns trigger language plpgsql " +
          "as $$ begin perform pg_advisory_xact_lock(4711); return new; end $$",
      ),
    );
    await db.execute(
      sql.raw(
        "create trigger waits_for_test before update on runs for each row when " +
          "(new.candidate is distinct from old.candidate) execute function wait_for_test()",
      ),
    );
    const work = { globalBatchTokens: 384, steps: 400, checkpointing };
    const undisturbed = await jobs.submit(
      { name: "undisturbed", launcher: "local", nodes: 1, gpusPerNode: 3 },
      work,
    );
    let service = await jobs.executor();
    await world.untilState(undisturbed, "succeeded", 120);
    const before = (await jobs.slurmJobs()).length;
    const id = await jobs.submit({ name: "slowed", nodes: 3, minNodes: 1 }, work);
    await world.untilEvent(id, stepEvent(21), 120);
    await world.database.transaction(async (tx) => {
      await tx.execute(sql.raw("select pg_advisory_xact_lock(4711)"));
      await jobs.killNode("n3");
      site.slowed.open("first", "second");
      // In this transaction, which would be ended, and the lock with it, were it idle for long.
      await eventually(
        "the plan is being changed",
        async () =>
          (
            await tx.execute(
              sql.raw("select 1 from pg_locks where locktype = 'advisory' and not granted and objid = 4711"),
            )
          ).rows.length > 0,
        120,
        world.logs,
      );
      await service.kill();
    });
    service = await jobs.executor();
    await world.untilState(id, "succeeded", 200);

    const { steps, attempts } = await jobs.runOf(id);
    expect(attempts).toMatchObject([
      { state: "failed", failure: { code: "rank-lost" } },
      { state: "lost" },
      { state: "failed", failure: { code: "not-started" } },
      { state: "succeeded" },
    ]);
    expect(attempts.map(({ plan }) => plan && worldSize(plan))).toEqual([3, 3, 3, 2]);
    expect(attempts[3]?.resumedFromStep).toBeGreaterThanOrEqual(20);
    expect(steps.map(({ step }) => step)).toEqual(upTo(400));
    const reference = (await jobs.runOf(undisturbed)).steps;
    // Later the order of sums is told by the losses, of any two plans.
    for (const [index, { loss }] of steps.entries())
      expect(loss / (reference[index]?.loss as number), `step ${index + 1}`).toBeCloseTo(
        1,
        index < 100 ? 5 : 3,
      );
    // A trial, and each attempt.
    const ours = (await jobs.slurmJobs()).slice(before);
    expect(ours).toHaveLength(5);
    expect(ours.at(-1)).toMatchObject({ state: "COMPLETED", nodes: "n[1-2]" });
    const told: string[] = [];
    await world.untilEvent(id, (event) => {
      if (event.type === "log" && /planned again/.test(String(event.data["message"])))
        told.push(String(event.data["message"]));
      return event.type === "report";
    });
    expect(told).toEqual([
      expect.stringMatching(
        new RegExp(
          `^the cluster has 2 nodes left of the 3 that training had: it was planned again for 2 nodes, and goes on from the checkpoint of step ${attempts[3]?.resumedFromStep} with b\\d+ .* \\(before: b\\d+ .*\\)$`,
        ),
      ),
    ]);
    const { chosen, report } = await world.job(id);
    expect([chosen?.plan, report?.plan]).toEqual([attempts[0]?.plan, attempts[3]?.plan]);
  }, 900_000);
});
