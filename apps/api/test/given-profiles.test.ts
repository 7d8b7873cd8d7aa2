import type { GivenProfile, JobDetail, ProfileRecord } from "@internevo/contracts";
import { findShippedProfile } from "@internevo/cost-model";
import { discardProfile, storeProfile, updateJob } from "@internevo/store";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { jobFile, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

const post = (path: string, payload: object) =>
  api.app.inject({
    method: "POST",
    url: `/api/v1${path}`,
    headers: { authorization: api.bearer.operator },
    payload,
  });
const give = (payload: object) => post("/profiles", payload);

describe("profiles", () => {
  it("that need no measurement are listed, and plans are made with each", async () => {
    const listed = await api.app.inject({
      method: "GET",
      url: "/api/v1/profiles/given",
      headers: { authorization: api.bearer.viewer },
    });
    const { items } = listed.json<{ items: GivenProfile[] }>();
    expect(items).toContainEqual({
      name: "estimated:h100",
      device: expect.stringMatching(/H100.*, estimated$/),
      isEstimated: true,
    });
    expect(items.filter(({ isEstimated }) => !isEstimated).map(({ name }) => name)).toEqual(["a800-128"]);
    const job = { ...jobFile(api), model: "llama-7b", precision: "bf16" };
    const cluster = { nodes: 1, gpusPerNode: 8, memoryPerGpu: "80GB" };
    for (const { name: profile } of items) {
      const planned = await post("/plans", { job: { ...job, cluster }, profile });
      expect([profile, planned.statusCode]).toEqual([profile, 200]);
    }
  });

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

  it("are measured again for the job that they were measured for, whoever named them since", async () => {
    const { cluster, ...file } = jobFile(api);
    /** A job that went on with a profile. */
    const jobWith = async (profileId: string, named: object): Promise<JobDetail> => {
      const job = (
        await post("/jobs", { ...file, cluster: { ...(cluster as object), ...named } })
      ).json<JobDetail>();
      await api.database.transaction((tx) => updateJob(tx, job.id, { profileId }));
      return job;
    };
    const given = (
      await give({ ...findShippedProfile("a800-128"), name: "measured again" })
    ).json<ProfileRecord>();
    const id = await storeProfile(api.database.db, {
      clusterKey: "local:here:1x2",
      profile: given.profile,
      freshForSeconds: 60,
    });
    const measured = await jobWith(id, {});
    await jobWith(id, { profile: id });
    await jobWith(given.id, { profile: given.id });
    const again = await post(`/profiles/${id}/measure`, {});
    expect(again.statusCode).toBe(201);
    expect(again.json<JobDetail>().spec.cluster).toEqual(measured.spec.cluster);
    // One that jobs only named was measured for none.
    expect((await post(`/profiles/${given.id}/measure`, {})).statusCode).toBe(409);
  });
});
