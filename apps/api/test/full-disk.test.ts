import { sql } from "drizzle-orm";
import { afterAll, beforeAll, expect, it } from "vitest";
import { jobFile, problem, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

/** From now on Postgres answers a write of the table as it does where its disk is full. */
const fill = (table: string) =>
  api.database.db.execute(
    sql.raw(`
      create function no_room() returns trigger language plpgsql as $$
      begin raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$;
      create trigger no_room before insert or update on ${table} execute function no_room()`),
  );
const makeRoom = () => api.database.db.execute(sql`drop function no_room cascade`);

it("says of a full disk what it is and what helps, and works again when there is room", async () => {
  const post = (token: string) =>
    api.app.inject({
      method: "POST",
      url: "/api/v1/jobs",
      headers: { authorization: token },
      payload: jobFile(api),
    });
  await fill("jobs");
  const refused = await post(api.bearer.operator);
  expect(problem(refused, 503, "unavailable")).toMatchObject({
    detail: expect.stringContaining("the database has no room on its disk"),
    errors: [{ field: "(database)", remedy: expect.stringContaining("make room on the disk of Postgres") }],
  });
  expect(refused.headers["retry-after"]).toBeDefined();
  await makeRoom();
  expect((await post(api.bearer.operator)).statusCode).toBe(201);

  // What is refused anyway is refused for its own reason, though the audit log cannot be written.
  await fill("audit_log");
  problem(await post(api.bearer.viewer), 403, "forbidden");
  await makeRoom();
});
