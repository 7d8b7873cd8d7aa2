import { hostname } from "node:os";
import type { ClusterRecord } from "@internevo/contracts";
import { claimHosts, jobLease, newTraceparent, submitJob } from "@internevo/store";
import { exampleSpec } from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
import { run, startApiProcess, type ApiProcess, type Ended } from "./processes.ts";

let database: TestDatabase;
let api: ApiProcess;
beforeAll(async () => {
  database = await createTestDatabase();
  api = await startApiProcess(database);
});
afterAll(async () => {
  await api.stop();
  await database.drop();
});

const internevo = (...args: string[]): Promise<Ended> =>
  run(args, { INTERNEVO_URL: api.url, INTERNEVO_TOKEN: api.token });

/** Jobs that ask for this machine, one after the other. */
async function jobsOfThisMachine(...names: string[]): Promise<string[]> {
  const ids: string[] = [];
  for (const [minute, name] of names.entries())
    await database.database.transaction(async (tx) => {
      const jobId = await submitJob(tx, { ...exampleSpec(), name });
      ids.push(jobId);
      await claimHosts(tx, {
        owner: jobLease(jobId),
        hosts: [hostname()],
        submittedAt: new Date(Date.UTC(2026, 0, 1, 0, minute)),
        command: { type: "job.profile", data: { jobId }, traceparent: newTraceparent() },
      });
    });
  return ids;
}

it("lists this machine, and shows who has it and who waits", async () => {
  const ids = await jobsOfThisMachine("first", "second");
  const list = await internevo("cluster");
  expect(list.stdout).toMatch(/^NAME +LAUNCHER +HEALTH +CAPACITY +USED BY +WAITING +LAST PROFILE\n/);
  expect(list.stdout).toMatch(new RegExp(`\n${hostname()} +local +ready +1 node, up to .* first +1 +–`));
  const shown = await internevo("cluster", "show", hostname());
  expect(shown.stdout).toMatch(/\nhealth +ready: every node can be used\n/);
  expect(shown.stdout).toMatch(
    new RegExp(`\nused by\n +job first, profiling, on ${hostname()}\n\nwaiting\n +job second, next, since `),
  );
  const json = await internevo("--json", "cluster", "show", hostname());
  const { holders, waiting } = JSON.parse(json.stdout) as ClusterRecord;
  expect([...holders, ...waiting].map(({ id }) => id)).toEqual(ids);
});

it("names the clusters that there are where another is asked for", async () => {
  const unknown = await internevo("cluster", "show", "nowhere");
  expect(unknown.status).not.toBe(0);
  expect(unknown.stderr).toMatch(new RegExp(`name \\(is "nowhere"\\).*\n +→ use one of: ${hostname()}`));
});
