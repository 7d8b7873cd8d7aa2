import { sql } from "drizzle-orm";
import type { Priority } from "@internevo/domain";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { exampleCandidate, exampleSpec, exampleStep } from "@internevo/test-kit/fixtures";
import { giveWay } from "./give-way.ts";
import {
  askedToGiveWay,
  claimHosts,
  releaseAbandonedHosts,
  releaseHosts,
  type HostRequest,
} from "./host-queue.ts";
import { queuePlace } from "./queue-reads.ts";
import { listJobLog } from "./job-events.ts";
import { getJobDetail, listJobs } from "./job-reads.ts";
import { getJob, requestCancel, setPriority, submitJob, transitionJob } from "./jobs.ts";
import { jobLease } from "./leases.ts";
import { ensureRun, recordSteps, startAttempt } from "./runs.ts";
import { newTraceparent } from "./trace.ts";

let test: TestDatabase;
beforeAll(async () => void (test = await createTestDatabase()));
afterAll(() => test.drop());
beforeEach(async () => {
  await test.database.db.execute(
    "truncate host_claims, host_waiters, host_holds, preemptible_holds, project_usage, outbox",
  );
});

/** Asks with the place of the n-th minute. */
const ask = (
  owner: string,
  hosts: string[],
  minute: number,
  priority: Priority = "normal",
): Promise<boolean> => {
  const request: HostRequest = {
    owner,
    hosts,
    priority,
    submittedAt: new Date(Date.UTC(2026, 0, 1, 0, minute)),
    command: { type: "job.profile", data: { jobId: idOf(owner) }, traceparent: newTraceparent() },
  };
  return test.database.transaction((tx) => claimHosts(tx, request));
};
const idOf = (owner: string): string => owner.split(":")[1] as string;
const release = (owner: string) => test.database.transaction((tx) => releaseHosts(tx, owner));
const submit = () => test.database.transaction((tx) => submitJob(tx, exampleSpec()));
/** New owners, in order. */
const owners = async (count: number): Promise<string[]> => {
  const made: string[] = [];
  for (let index = 0; index < count; index += 1) made.push(jobLease(await submit()));
  await test.database.db.execute("truncate outbox");
  return made;
};
/** Whose commands were published since, in order. */
const called = async (): Promise<string[]> => {
  const { rows } = await test.database.db.execute<{ owner: string }>(
    "select 'job:' || subject_id as owner from outbox where type = 'job.profile' order by sequence",
  );
  return rows.map(({ owner }) => owner);
};
const holders = async (): Promise<Record<string, string>> => {
  const { rows } = await test.database.db.execute<{ host: string; owner: string }>(
    "select host, owner from host_claims",
  );
  return Object.fromEntries(rows.map(({ host, owner }) => [host, owner]));
};

describe("the queue for hosts", () => {
  it("gives hosts in the order of places, whoever asked first, and calls who is next", async () => {
    const [holder, first, second] = (await owners(3)) as [string, string, string];
    expect(await ask(holder, ["a"], 9)).toBe(true);
    expect(await ask(second, ["a"], 2)).toBe(false);
    expect(await ask(first, ["a"], 1)).toBe(false);
    expect(await called()).toEqual([]);
    await release(holder);
    expect(await called()).toEqual([first]);
    expect(await ask(first, ["a"], 1), "it has what it was called for").toBe(true);
    await release(first);
    expect(await called()).toEqual([first, second]);
  });

  it("gives all of the hosts or none, and lets nobody later pass on one of them", async () => {
    const [holder, wide, narrow, apart] = (await owners(4)) as [string, string, string, string];
    await ask(holder, ["a"], 0);
    expect(await ask(wide, ["b", "a"], 1)).toBe(false);
    expect(await holders()).toEqual({ a: holder });
    expect(await ask(narrow, ["b"], 2), "b is free, and wide waits for it").toBe(false);
    expect(await ask(apart, ["c"], 3)).toBe(true);
    await release(holder);
    expect(await holders()).toEqual({ a: wide, b: wide, c: apart });
    await release(wide);
    expect(await called()).toEqual([wide, narrow]);
  });

  it("lets who is earlier pass who only waits", async () => {
    const [holder, wide, early] = (await owners(3)) as [string, string, string];
    await ask(holder, ["a"], 0);
    await ask(wide, ["a", "b"], 5);
    expect(await ask(early, ["b"], 1)).toBe(true);
    expect(await called(), "who asks goes on by itself").toEqual([]);
  });

  it("calls a job that gets an earlier place before the others", async () => {
    const [holder, first, urgent] = (await owners(3)) as [string, string, string];
    await ask(holder, ["a"], 0);
    await ask(first, ["a"], 1);
    await ask(urgent, ["a"], 2);
    await test.database.transaction(async (tx) => {
      const job = await getJob(tx, idOf(urgent));
      if (!job) throw new Error("no job");
      await setPriority(tx, job, "high", "ada");
    });
    expect((await queuePlace(test.database.db, first))?.position).toBe(2);
    await release(holder);
    expect(await called()).toEqual([urgent]);
    expect((await getJobDetail(test.database.db, idOf(urgent)))?.priority).toBe("high");
  });

  it("keeps the hosts of a job from its first stage to its last, and gives them back with its end", async () => {
    const [job, next] = (await owners(2)) as [string, string];
    await ask(job, ["a"], 1);
    await ask(next, ["a"], 2);
    await test.database.transaction((tx) =>
      transitionJob(tx, { jobId: idOf(job), from: "profiling", to: "planning" }),
    );
    expect(await ask(job, ["a"], 1)).toBe(true);
    expect(await called()).toEqual([]);
    await test.database.transaction((tx) => requestCancel(tx, idOf(job)));
    expect(await called()).toEqual([next]);
  });

  it("forgets who was cancelled while it waited, and calls who waited behind it", async () => {
    const [holder, wide, narrow] = (await owners(3)) as [string, string, string];
    await ask(holder, ["a"], 0);
    await ask(wide, ["a", "b"], 1);
    await ask(narrow, ["b"], 2);
    expect(await test.database.transaction((tx) => requestCancel(tx, idOf(wide)))).toBe("cancelled");
    expect(await called()).toEqual([narrow]);
    expect(await queuePlace(test.database.db, wide)).toBeUndefined();
  });

  it("does not let two that want other hosts than before wait for each other", async () => {
    const [one, two] = (await owners(2)) as [string, string];
    await ask(one, ["a"], 1);
    await ask(two, ["b"], 2);
    expect(await ask(one, ["a", "b"], 1)).toBe(false);
    expect(await ask(two, ["a", "b"], 2), "the earlier goes first").toBe(false);
    expect(await holders()).toEqual({ a: one, b: one });
    expect(await called()).toEqual([one]);
  });

  it("never gives a host twice, and forgets nobody, when many ask and give back at once", async () => {
    const all = await owners(24);
    const hosts = ["a", "b", "c"];
    const wanted = all.map((_, index) => hosts.filter((__, bit) => (1 + (index % 7)) & (1 << bit)));
    await Promise.all(all.map((owner, index) => ask(owner, wanted[index] as string[], index)));
    const done = new Set<string>();
    while (done.size < all.length) {
      const held = await holders();
      const atWork = [...new Set(Object.values(held))];
      expect(atWork.length, "somebody is at work until all are done").toBeGreaterThan(0);
      for (const owner of atWork)
        expect(
          Object.keys(held)
            .filter((host) => held[host] === owner)
            .sort(),
        ).toEqual(wanted[all.indexOf(owner)]);
      for (const owner of atWork) expect(done.has(owner)).toBe(false);
      await Promise.all(atWork.map((owner) => (done.add(owner), release(owner))));
    }
    expect(await holders()).toEqual({});
  });

  it("gives back what work that is over left", async () => {
    const [gone, next] = (await owners(2)) as [string, string];
    await ask(gone, ["a"], 1);
    await ask(next, ["a"], 2);
    expect(await test.database.transaction(releaseAbandonedHosts)).toBe(0);
    await test.database.db.execute(`update jobs set ended_at = now() where id = '${idOf(gone)}'`);
    expect(await test.database.transaction(releaseAbandonedHosts)).toBe(1);
    expect(await called()).toEqual([next]);
  });

  it("says when a job will probably start, where those ahead have chosen plans", async () => {
    const [holder, first, second] = (await owners(3)) as [string, string, string];
    const { database } = test;
    for (const [minute, owner] of [holder, first, second].entries()) await ask(owner, ["a"], minute);
    expect((await queuePlace(database.db, first))?.startsAt).toBeNull();
    const choose = (owner: string, stepTimeSeconds: number) =>
      database.db.execute(
        `update jobs set chosen = '{"predicted": {"stepTimeSeconds": ${stepTimeSeconds}}}' where id = '${idOf(owner)}'`,
      );
    await choose(holder, 60);
    const { steps } = exampleSpec();
    const waits = async (owner: string): Promise<number> =>
      (Date.parse((await queuePlace(database.db, owner))?.startsAt ?? "") - Date.now()) / 1000;
    expect(await waits(first)).toBeCloseTo(60 * steps, -1);
    expect(await waits(second), "first has no plan yet").toBeNaN();
    await choose(first, 30);
    expect(await waits(second)).toBeCloseTo(90 * steps, -1);
    // Half of the holder's steps are done, and they take 10 s.
    await database.transaction(async (tx) => {
      const run = await ensureRun(tx, idOf(holder), exampleCandidate());
      const { number } = await startAttempt(tx, run.id);
      await recordSteps(tx, { jobId: idOf(holder), runId: run.id }, [
        { ...exampleStep(steps / 2, number), stepTimeSeconds: 10 },
      ]);
    });
    expect(await waits(first)).toBeCloseTo(5 * steps, -1);
  });

  describe("with a job that may give way", () => {
    const held = async (
      owner: string,
      priority: Priority,
      minute = 0,
      preemptible = true,
    ): Promise<boolean> => {
      await test.database.db.execute(
        sql`update jobs set spec = spec || ${JSON.stringify({ priority, preemptible, name: owner })}::jsonb where id = ${idOf(owner)}`,
      );
      return ask(owner, ["a"], minute, priority);
    };
    const asked = async (owner: string) => askedToGiveWay(test.database.db, owner);
    /** As if it had begun so much earlier. */
    const age = (minutes: number) =>
      test.database.db.execute(
        sql`update preemptible_holds set began_at = began_at - make_interval(secs => ${60 * minutes})`,
      );
    const look = () => test.database.transaction(releaseAbandonedHosts);
    const giveUp = (owner: string) =>
      test.database.transaction((tx) =>
        giveWay(tx, idOf(owner), {
          type: "job.profile",
          data: { jobId: idOf(owner) },
          traceparent: newTraceparent(),
        }),
      );

    it("asks it after its least time, has it wait again, and calls it when the other is done", async () => {
      const [low, high] = (await owners(2)) as [string, string];
      expect(await held(low, "low")).toBe(true);
      await test.database.db.execute(`update jobs set name = 'urgent' where id = '${idOf(high)}'`);
      expect(await ask(high, ["a"], 1, "high")).toBe(false);
      expect(await asked(low), "it has just begun").toBeUndefined();
      await age(9.9);
      await look();
      expect(await asked(low)).toBeUndefined();
      await age(0.2);
      await look();
      expect(await asked(low)).toBe("job urgent");
      const detail = () => getJobDetail(test.database.db, idOf(low));
      expect((await detail())?.givesWayTo).toBe("job urgent");
      await giveUp(low);
      expect((await detail())?.givesWayTo).toBeNull();
      expect(await holders()).toEqual({ a: high });
      expect(await called()).toEqual([high]);
      expect((await queuePlace(test.database.db, low))?.gaveWayTo).toBe("job urgent");
      expect(await asked(high)).toBeUndefined();
      await release(high);
      expect(await called()).toEqual([high, low]);
      expect(await holders()).toEqual({ a: low });
      const log = await listJobLog(test.database.db, idOf(low), {});
      expect(log.items[0]?.message).toBe("gave way to job urgent; goes on when it has its hosts again");
    });

    it("keeps the time that it waited before, and counts none in which it had hosts", async () => {
      const [first, low, high, other] = (await owners(4)) as [string, string, string, string];
      await ask(first, ["a"], 0);
      await held(low, "low", 1);
      await test.database.db.execute(
        `update host_waiters set waiting_since = waiting_since - interval '5 hours' where owner = '${low}'`,
      );
      await release(first);
      expect(await holders()).toEqual({ a: low });
      await age(6000);
      await ask(high, ["a"], 2, "high");
      await ask(other, ["a"], 1_000_000, "low");
      await giveUp(low);
      const place = await queuePlace(test.database.db, low);
      expect((Date.now() - Date.parse(place?.waitingSince ?? "")) / 3_600_000).toBeCloseTo(5, 2);
      expect(place?.position, "before who was submitted later").toBe(1);
      expect((await queuePlace(test.database.db, other))?.position).toBe(2);
    });

    it("asks no more when nobody needs it: who asked is cancelled, or less urgent, or it is more", async () => {
      const [low, high] = (await owners(2)) as [string, string];
      await held(low, "low");
      await age(60);
      await ask(high, ["a"], 1, "high");
      const prioritise = (owner: string, priority: Priority) =>
        test.database.transaction(async (tx) => {
          const job = await getJob(tx, idOf(owner));
          if (job) await setPriority(tx, job, priority, "ada");
        });
      expect(await asked(low)).toBeDefined();
      await prioritise(high, "low");
      expect(await asked(low)).toBeUndefined();
      await prioritise(high, "high");
      expect(await asked(low)).toBeDefined();
      await prioritise(low, "high");
      expect(await asked(low)).toBeUndefined();
      await prioritise(low, "low");
      expect(await asked(low)).toBeDefined();
      await test.database.transaction((tx) => requestCancel(tx, idOf(high)));
      expect(await asked(low)).toBeUndefined();
      await giveUp(low);
      expect(await holders(), "its worker had stopped it already: it goes on").toEqual({ a: low });
      expect(await called()).toEqual([low]);
    });

    it("does not tell the name of another project's job", async () => {
      const [low, high] = (await owners(2)) as [string, string];
      await test.database.db.execute("insert into projects (name) values ('nlp') on conflict do nothing");
      await test.database.db.execute(`update jobs set project = 'nlp' where id = '${idOf(high)}'`);
      await held(low, "low");
      await age(60);
      await ask(high, ["a"], 1, "high");
      expect(await asked(low)).toBe("a job of another project");
    });

    it("leaves alone what is not preemptible, or has no checkpoints", async () => {
      const [low, high] = (await owners(2)) as [string, string];
      await held(low, "low", 0, false);
      await ask(high, ["a"], 1, "high");
      await age(60);
      await look();
      expect(await asked(low)).toBeUndefined();
      await release(low);
      await release(high);
      await test.database.db.execute(
        `update jobs set spec = spec || '{"checkpointing": null}' where id = '${idOf(low)}'`,
      );
      await held(low, "low");
      await ask(high, ["a"], 1, "high");
      await age(60);
      await look();
      expect(await asked(low)).toBeUndefined();
    });
  });

  it("says who stands where, behind whom", async () => {
    const [holder, first, second] = (await owners(3)) as [string, string, string];
    const { db } = test.database;
    await ask(holder, ["a"], 0);
    await ask(first, ["a", "b"], 1);
    await ask(second, ["b"], 2);
    expect(await queuePlace(db, first)).toMatchObject({
      position: 1,
      hosts: ["a", "b"],
      behindCount: 1,
      behind: [{ kind: "job", id: idOf(holder), holds: true }],
    });
    expect((await getJobDetail(db, idOf(second)))?.queue).toMatchObject({
      position: 2,
      behind: [{ id: idOf(first), holds: false }],
    });
    const listed = (await listJobs(db)).items.map(({ id, queue }) => [jobLease(id), queue?.position]);
    expect(listed.filter(([owner]) => [holder, first, second].includes(owner as string))).toEqual([
      [second, 2],
      [first, 1],
      [holder, undefined],
    ]);
  });
});
