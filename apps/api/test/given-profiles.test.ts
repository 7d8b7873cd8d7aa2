import { randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { GivenProfile, JobDetail, Problem, ProfileRecord } from "@internevo/contracts";
import { findShippedProfile, requiredMeasurements, shippedProfile } from "@internevo/cost-model";
import {
  createProject,
  createToken,
  discardProfile,
  storeGivenProfile,
  storeProfile,
  updateJob,
} from "@internevo/store";
import { MOST_GIVEN_PROFILES, resolveJob, writtenJob } from "@internevo/domain";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { jobFile, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

const ask = (method: "GET" | "POST" | "DELETE", path: string, authorization: string, payload?: object) =>
  api.app.inject({
    method,
    url: `/api/v1${path}`,
    headers: { authorization },
    ...(payload === undefined ? {} : { payload }),
  });
const post = (path: string, payload: object) => ask("POST", path, api.bearer.operator, payload);
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

  it("are measured again by a job that tells nothing else of the project whose they were measured for", async () => {
    await api.database.transaction((tx) => createProject(tx, { name: "secretive" }));
    const bearer: Record<string, string> = {};
    for (const project of ["secretive", "default"]) {
      const made = { name: `of-${project}`, role: "operator" as const, project, validForSeconds: null };
      const { token } = await api.database.transaction((tx) => createToken(tx, made));
      bearer[project] = `Bearer ${token}`;
    }
    const validationPath = join(api.directory, "secret-held-out.txt");
    await writeFile(validationPath, "It was a bright cold day in April. ".repeat(120));
    const { model } = jobFile(api);
    const submitted = await ask(
      "POST",
      "/jobs",
      bearer["secretive"] ?? "",
      jobFile(api, {
        model: { ...(model as object), name: "secret-model", initStandardDeviation: 0.01234 },
        labels: { team: "secret-team" },
        optimizer: { peakLearningRate: 0.001234 },
        validation: { data: { format: "text", paths: [validationPath] } },
        seed: 4321,
        plan: "pp1",
        priority: "high",
      }),
    );
    expect(submitted.statusCode).toBe(201);
    const measured = submitted.json<JobDetail>();
    const id = await storeProfile(api.database.db, {
      clusterKey: "local:here:1x2",
      profile: shippedProfile("a800-128"),
      freshForSeconds: 60,
    });
    await api.database.transaction((tx) => updateJob(tx, measured.id, { profileId: id }));
    const again = (await post(`/profiles/${id}/measure`, {})).json<JobDetail>();
    expect(requiredMeasurements(again.spec)).toEqual(requiredMeasurements(measured.spec));

    const file = await ask("GET", `/jobs/${again.id}/file`, bearer["default"] ?? "");
    expect(resolveJob(file.json())).toEqual(
      resolveJob({
        name: "measure here",
        model,
        sequenceLengthTokens: measured.spec.sequenceLengthTokens,
        globalBatchTokens: measured.spec.globalBatchTokens,
        precision: measured.spec.precision,
        cluster: writtenJob(measured.spec).cluster,
        measureAgain: true,
        until: "profiling",
      }),
    );
    const seen = await ask("GET", `/jobs/${again.id}`, bearer["default"] ?? "");
    for (const text of [file.body, seen.body])
      for (const secret of ["secret", "1234", "4321", api.textPath, '"labels":{"'])
        expect(text).not.toContain(secret);
  });
});

describe("profiles of projects", () => {
  const bearer: Record<string, string> = {};
  const shipped = shippedProfile("a800-128");
  /** Profiles of one name may differ in what the program takes, which leaves room for the job's plans. */
  const profile = (name: string, runtimeBytes = 2 ** 20) => ({
    ...shipped,
    name,
    device: { ...shipped.device, runtimeBytes },
  });
  const giveAs = async (who: string, body: object) => {
    const reply = await ask("POST", "/profiles", bearer[who] ?? "", body);
    expect(reply.statusCode).toBe(201);
    return reply.json<ProfileRecord>();
  };
  const jobNaming = (name: string, over: object = {}) => {
    const { cluster, ...file } = jobFile(api);
    return { ...file, ...over, cluster: { ...(cluster as object), profile: name } };
  };
  /** What each of the four requests that name a profile answers. */
  const naming = async (who: string, name: string, over: object = {}) => {
    const job = jobNaming(name, over);
    const replies = [
      await ask("POST", "/plans", bearer[who] ?? "", { job }),
      await ask("POST", "/plans", bearer[who] ?? "", { job: jobFile(api), profile: name }),
      await ask("POST", "/jobs/check", bearer[who] ?? "", job),
      await ask("POST", "/workloads", bearer[who] ?? "", { name: randomUUID(), job, cron: "0 3 * * *" }),
    ];
    return replies.map((reply) => [reply.statusCode, reply.json<{ code?: string }>().code ?? "accepted"]);
  };
  const MISSING = [422, "profile-missing"];

  beforeAll(async () => {
    await api.database.transaction(async (tx) => {
      for (const name of ["nlp", "vision"]) {
        await createProject(tx, { name });
        const made = { name, role: "operator" as const, project: name, validForSeconds: null };
        bearer[name] = `Bearer ${(await createToken(tx, made)).token}`;
      }
    });
    bearer["installation"] = api.bearer.operator;
  });

  /** The memory of the best plan of a job that names this profile: what the program takes is a line of it. */
  const plannedWith = async (who: string, name: string) => {
    const reply = await ask("POST", "/plans/memory", bearer[who] ?? "", { job: jobNaming(name), plan: 1 });
    expect(reply.statusCode).toBe(200);
    return reply.body;
  };

  it("are what its members mean by their name, whatever other projects call so", async () => {
    await giveAs("vision", profile("team2-cluster", 2 ** 20));
    const before = await plannedWith("vision", "team2-cluster");
    await giveAs("nlp", profile("team2-cluster", 2 ** 24));
    expect(await plannedWith("vision", "team2-cluster")).toBe(before);
    expect(await plannedWith("nlp", "team2-cluster")).not.toBe(before);
    await giveAs("installation", profile("team2-cluster", 2 ** 25));
    expect(await plannedWith("vision", "team2-cluster")).toBe(before);
    expect(await plannedWith("installation", "team2-cluster")).not.toBe(before);
  });

  it("are not there for others: in no list, by no id and by no name", async () => {
    const own = await giveAs("nlp", profile("only ours"));
    expect(own.project).toBe("nlp");
    // It is kept by the API from here on.
    expect(await naming("nlp", own.id)).toEqual([200, 200, 200, 201].map((status) => [status, "accepted"]));
    for (const named of [own.id, "only ours"])
      expect(await naming("vision", named)).toEqual(Array.from({ length: 4 }, () => MISSING));
    const listed = async (who: string) =>
      (await ask("GET", "/profiles?limit=200", bearer[who] ?? "")).json<{ items: ProfileRecord[] }>().items;
    expect((await listed("nlp")).find(({ id }) => id === own.id)?.project).toBe("nlp");
    expect((await listed("installation")).some(({ id }) => id === own.id)).toBe(true);
    expect((await listed("vision")).filter(({ project }) => project === "nlp")).toEqual([]);
    for (const method of ["GET", "DELETE"] as const) {
      const [hidden, absent] = [own.id, randomUUID()];
      const said = await Promise.all(
        [hidden, absent].map(async (id) => {
          const { traceId: _, ...problem } = (
            await ask(method, `/profiles/${id}`, bearer["vision"] ?? "")
          ).json<Problem>();
          return JSON.stringify(problem).replaceAll(id, "ID");
        }),
      );
      expect(said[0]).toBe(said[1]);
      expect(said[0]).toContain("not-found");
    }
    // A job that is told to go into the other project learns nothing either.
    const probe = await ask(
      "POST",
      "/jobs/check",
      bearer["vision"] ?? "",
      jobNaming("only ours", { project: "nlp" }),
    );
    expect(probe.statusCode).toBe(404);
    expect(probe.body).toContain("names no profile");
    const planned = await ask("POST", "/plans", bearer["vision"] ?? "", {
      job: jobNaming("only ours", { project: "nlp" }),
    });
    expect(planned.statusCode).toBe(422);
  });

  it("are named by the installation for a job of their project, and asked for where several call one so", async () => {
    await giveAs("nlp", profile("of two"));
    expect(await naming("installation", "of two", { project: "nlp" })).toEqual(
      [200, 200, 200, 201].map((status) => [status, "accepted"]),
    );
    expect((await naming("installation", "of two"))[2], "its own jobs are of default").toEqual(MISSING);
    const other = await giveAs("vision", profile("of two"));
    const reply = await post("/plans", { job: jobFile(api), profile: "of two" });
    expect(reply.json<Problem>()).toMatchObject({
      detail: "of two names profiles of 2 projects",
      errors: expect.arrayContaining([
        expect.objectContaining({ message: "may be of two, of project vision", remedy: `give ${other.id}` }),
      ]),
    });
  });

  it("are discarded by their operators, and gone where nothing used them", async () => {
    const own = await giveAs("vision", profile("to discard"));
    expect((await ask("DELETE", `/profiles/${own.id}`, bearer["nlp"] ?? "")).statusCode).toBe(404);
    // What the API keeps in memory goes with it.
    expect((await ask("POST", "/plans", bearer["vision"] ?? "", { job: jobNaming(own.id) })).statusCode).toBe(
      200,
    );
    expect((await ask("DELETE", `/profiles/${own.id}`, bearer["vision"] ?? "")).statusCode).toBe(204);
    expect((await ask("GET", `/profiles/${own.id}`, bearer["vision"] ?? "")).statusCode).toBe(404);
    expect((await ask("POST", "/plans", bearer["vision"] ?? "", { job: jobNaming(own.id) })).statusCode).toBe(
      422,
    );
  });

  it("are so many at most", async () => {
    await api.database.transaction((tx) => createProject(tx, { name: "full" }));
    for (let at = 0; at < MOST_GIVEN_PROFILES; at += 1)
      await storeGivenProfile(api.database.db, { ...shipped, name: `profile ${at}` }, "full");
    const made = { name: "full", role: "operator" as const, project: "full", validForSeconds: null };
    const { token } = await api.database.transaction((tx) => createToken(tx, made));
    const reply = await ask("POST", "/profiles", `Bearer ${token}`, profile("one more"));
    expect(reply.json<Problem>()).toMatchObject({
      status: 403,
      code: "quota-exceeded",
      detail: "project full has 100 given profiles, as many as a project may",
      errors: [{ field: "name", value: "one more", remedy: expect.stringMatching(/^discard one/) }],
    });
  });
});
