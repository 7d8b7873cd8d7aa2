import { MOST_UNENDED_JOBS } from "@internevo/domain";
import { exampleSpec } from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { sql } from "drizzle-orm";
import { afterAll, beforeAll, expect, it } from "vitest";
import { getJobState, requestCancel, resumeJob, submitJob, transitionJob } from "./jobs.ts";
import { createProject } from "./projects.ts";
import { unendedJobs } from "./retention.ts";

let test: TestDatabase;
beforeAll(async () => void (test = await createTestDatabase()));
afterAll(() => test.drop());

it("a project has so many jobs that have not ended, also where many are submitted at once", async () => {
  await test.database.transaction((tx) => createProject(tx, { name: "full" }));
  const submitOne = (project: string) =>
    test.database.transaction((tx) => submitJob(tx, { ...exampleSpec(), project }));
  const first = await submitOne("full");
  await test.database.db.execute(sql`
    insert into jobs (id, name, project, spec, stated, state, traceparent)
    select gen_random_uuid(), name, project, spec, stated, state, traceparent
    from jobs, generate_series(1, ${MOST_UNENDED_JOBS - 4}) where id = ${first}`);
  const submitted = await Promise.allSettled(Array.from({ length: 5 }, () => submitOne("full")));
  const refused = submitted.filter((one) => one.status === "rejected");
  expect(refused).toHaveLength(2);
  for (const { reason } of refused)
    expect(reason).toMatchObject({
      code: "quota-exceeded",
      details: [{ field: "project", value: "full", remedy: expect.stringMatching(/^wait until/) }],
    });
  await submitOne("default");
  await test.database.transaction((tx) => requestCancel(tx, first));
  await submitOne("full");
  await expect(submitOne("full")).rejects.toMatchObject({ code: "quota-exceeded" });
});

it("lets no job go on that has ended where the project has as many as it may, however many at once", async () => {
  await test.database.transaction((tx) => createProject(tx, { name: "resumed" }));
  const submitOne = () =>
    test.database.transaction((tx) => submitJob(tx, { ...exampleSpec(), project: "resumed" }));
  const resume = (id: string) => test.database.transaction((tx) => resumeJob(tx, id));
  const cancel = (id: string) => test.database.transaction((tx) => requestCancel(tx, id));
  const [first, held] = [await submitOne(), await submitOne()];
  const ended = [await submitOne(), await submitOne(), await submitOne()];
  await test.database.transaction((tx) =>
    transitionJob(tx, {
      jobId: held,
      from: "profiling",
      to: "held",
      failure: { code: "rank-lost", message: "rank 1 ended" },
    }),
  );
  for (const id of ended) await cancel(id);
  await test.database.db.execute(sql`
    insert into jobs (id, name, project, spec, stated, state, traceparent)
    select gen_random_uuid(), name, project, spec, stated, state, traceparent
    from jobs, generate_series(1, ${MOST_UNENDED_JOBS - 4}) where id = ${first}`);
  const outcomes = await Promise.allSettled([...ended.map(resume), submitOne(), submitOne()]);
  const refused = outcomes.filter((one) => one.status === "rejected");
  expect(refused).toHaveLength(3);
  for (const { reason } of refused) expect(reason).toMatchObject({ code: "quota-exceeded" });
  expect(await resume(held), "it has not ended").toMatchObject({ outcome: "resumed" });
  await cancel(held);
  const late = await submitOne();
  await cancel(late);
  await submitOne();
  await expect(resume(late)).rejects.toMatchObject({
    code: "quota-exceeded",
    message: "project resumed has 1,000 jobs that have not ended, as many as a project may",
    details: [{ field: "id", value: late, remedy: expect.stringMatching(/^wait until/) }],
  });
  expect(await getJobState(test.database.db, late)).toBe("cancelled");
});

it("says which of some jobs have not ended", async () => {
  const submitOne = () => test.database.transaction((tx) => submitJob(tx, exampleSpec()));
  const [going, held, over] = [await submitOne(), await submitOne(), await submitOne()];
  // As a job is held: it has not ended, and goes on when somebody says so.
  await test.database.db.execute(sql`update jobs set state = 'held' where id = ${held}`);
  await test.database.transaction((tx) => requestCancel(tx, over));
  const unknown = "00000000-0000-4000-8000-000000000000";
  expect(await unendedJobs(test.database.db, [going, held, over, unknown, "no id"])).toEqual(
    new Set([going, held]),
  );
  expect(await unendedJobs(test.database.db, [])).toEqual(new Set());
});
