import { JobDetailSchema, ProblemSchema } from "@internevo/contracts";
import { validate } from "@internevo/domain";
import { afterAll, beforeAll, expect, it } from "vitest";
import { jobFile, rowCounts, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

const send = (path: string, body?: object, headers: Record<string, string> = {}) =>
  api.app.inject({
    method: "POST",
    url: `/api/v1/jobs${path}`,
    headers: { authorization: api.bearer.operator, ...headers },
    ...(body === undefined ? {} : { payload: body }),
  });
type Reply = Awaited<ReturnType<typeof send>>;

const jobOf = (reply: Reply) => validate(JobDetailSchema, reply.json(), "internal", "the job");

function problemOf(reply: Reply, status: number) {
  expect(reply.statusCode).toBe(status);
  return validate(ProblemSchema, reply.json(), "internal", "the problem");
}

it("lets a job go on under the version that was looked at, and says why not in words", async () => {
  const { id } = jobOf(await send("", jobFile(api)));
  expect(problemOf(await send(`/${id}/resume`), 409)).toMatchObject({
    code: "conflict",
    detail: expect.stringContaining("is profiling: it cannot be let go on"),
    errors: [
      {
        field: "id",
        message: "is in the state profiling, not in one of held, failed, cancelled",
        remedy: "it goes on already",
      },
    ],
  });
  await send(`/${id}/cancel`);
  expect(problemOf(await send(`/${id}/resume`, undefined, { "if-match": '"1"' }), 412).code).toBe(
    "precondition-failed",
  );
  const resumed = await send(`/${id}/resume`, { reason: "the node is back" }, { "if-match": '"2"' });
  expect([resumed.statusCode, resumed.headers["etag"]]).toEqual([202, '"3"']);
  expect(jobOf(resumed)).toMatchObject({
    state: "profiling",
    reason: "the node is back",
    failure: null,
    endedAt: null,
  });
  const { rows } = await api.database.db.execute(`select * from audit_log where target = '${id}'`);
  expect(rows.map((row) => JSON.stringify(row))).toContainEqual(expect.stringContaining("resume"));
  await api.database.db.execute(`update jobs set state = 'succeeded' where id = '${id}'`);
  expect(problemOf(await send(`/${id}/resume`), 409)).toMatchObject({
    detail: expect.stringContaining("is succeeded"),
    errors: [{ remedy: "nothing is left to do; submit another job to train further" }],
  });
});

it("knows no job by its id in upper case, and leaves it as it was", async () => {
  const { id } = jobOf(await send("", jobFile(api)));
  const read = async (asked: string) =>
    api.app.inject({ url: `/api/v1/jobs/${asked}`, headers: { authorization: api.bearer.viewer } });
  expect(problemOf(await send(`/${id.toUpperCase()}/cancel`), 404).code).toBe("not-found");
  expect(jobOf(await read(id))).toMatchObject({ state: "profiling", version: 1 });
  await send(`/${id}/cancel`);
  const cancelled = (await read(id)).json<object>();
  const counts = await rowCounts(api.database);
  expect(problemOf(await send(`/${id.toUpperCase()}/resume`), 404).code).toBe("not-found");
  expect(problemOf(await read(id.toUpperCase()), 404).code).toBe("not-found");
  expect([(await read(id)).json<object>(), await rowCounts(api.database)]).toEqual([cancelled, counts]);
});

it("streams the events of a job that was let go on, and not to its earlier end only", async () => {
  const { id } = jobOf(await send("", jobFile(api)));
  await send(`/${id}/cancel`);
  await send(`/${id}/resume`);
  await send(`/${id}/cancel`);
  const stream = await api.app.inject({
    method: "GET",
    url: `/api/v1/jobs/${id}/events`,
    headers: { authorization: api.bearer.viewer },
  });
  expect([...stream.body.matchAll(/"to":"(\w+)"/g)].map(([, to]) => to)).toEqual([
    "profiling",
    "cancelled",
    "profiling",
    "cancelled",
  ]);
  expect(stream.body).toContain("event: end");
});
