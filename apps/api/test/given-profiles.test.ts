import type { ProfileRecord } from "@internevo/contracts";
import { findShippedProfile } from "@internevo/cost-model";
import { discardProfile } from "@internevo/store";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

const give = (payload: object) =>
  api.app.inject({
    method: "POST",
    url: "/api/v1/profiles",
    headers: { authorization: api.bearer.operator },
    payload,
  });

describe("profiles", () => {
  it("that are given many times at once are stored once", async () => {
    const body = { ...findShippedProfile("a800-128"), name: "at once" };
    // Another order of fields is the same content.
    const reordered = Object.fromEntries(Object.entries(body).reverse());
    const replies = await Promise.all(
      Array.from({ length: 20 }, (_, at) => give(at % 2 === 0 ? body : reordered)),
    );
    expect(new Set(replies.map((reply) => reply.statusCode))).toEqual(new Set([201]));
    expect(new Set(replies.map((reply) => reply.json<{ id: string }>().id)).size).toBe(1);
    const other = await give({ ...body, name: "another" });
    expect(other.json<{ id: string }>().id).not.toBe(replies[0]?.json<{ id: string }>().id);
  });

  it("that were discarded stay so: their content, given again, is another profile, and one", async () => {
    const body = { ...findShippedProfile("a800-128"), name: "discarded" };
    const first = (await give(body)).json<ProfileRecord>();
    await discardProfile(api.database.db, first.id);
    const ids = new Set(
      (await Promise.all(Array.from({ length: 5 }, () => give(body)))).map(
        (reply) => reply.json<ProfileRecord>().id,
      ),
    );
    expect(ids.size).toBe(1);
    expect(ids).not.toContain(first.id);
  });
});
