import { shippedProfile } from "@internevo/cost-model";
import { estimatedPoints, MOST_GIVEN_PROFILES, type LauncherKind, type Profile } from "@internevo/domain";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
import { exampleSpec } from "@internevo/test-kit/fixtures";
import { submitJob, updateJob } from "./jobs.ts";
import {
  discardProfile,
  getProfile,
  listProfiles,
  newestProfile,
  profilesCalled,
  storeGivenProfile,
  storeProfile,
} from "./profiles.ts";
import { createProject } from "./projects.ts";
import { createWorkload } from "./workloads.ts";

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
  await test.database.transaction(async (tx) => {
    for (const name of ["nlp", "vision", "full"]) await createProject(tx, { name });
  });
});
afterAll(() => test.drop());

it("after the newest profile was discarded no older one is fresh; after an older one the newest is", async () => {
  const { db } = test.database;
  // What was measured the store does not read.
  const profile = { name: "here" } as Profile;
  const store = () => storeProfile(db, { clusterKey: "local:here:1x2", profile, freshForSeconds: 3600 });
  const fresh = async () => (await newestProfile(db, "local:here:1x2", { freshOnly: true }))?.id;
  const [older, newest] = [await store(), await store()];
  expect(await fresh()).toBe(newest);
  await discardProfile(db, newest);
  expect(await fresh()).toBeUndefined();
  expect((await newestProfile(db, "local:here:1x2"))?.id, "for whoever measures nothing").toBe(older);
  const measured = await store();
  expect(await fresh()).toBe(measured);
  await discardProfile(db, older);
  expect(await fresh()).toBe(measured);
});

it("lists which profiles have points that nobody measured", async () => {
  const { db } = test.database;
  const [measured, estimated] = [shippedProfile("a800-128"), shippedProfile("estimated:h100")];
  const one = estimated.collectives[0];
  const collectives = one ? [one] : [];
  const [module, overlap] = [estimated.modules.slice(0, 1), estimated.overlaps.slice(0, 1)];
  const profiles: readonly Profile[] = [
    { ...measured, name: "measured" },
    { ...estimated, name: "estimated" },
    { ...measured, name: "a module", modules: [...measured.modules, ...module] },
    { ...measured, name: "an overlap", overlaps: [...measured.overlaps, ...overlap] },
    { ...measured, name: "a curve", collectives: [...measured.collectives, ...collectives] },
  ];
  for (const profile of profiles)
    await storeProfile(db, { clusterKey: `given:${profile.name}`, profile, freshForSeconds: 3600 });
  const listed = (await listProfiles(db)).items.filter(({ clusterKey }) => clusterKey.startsWith("given:"));
  const expected = profiles.map((profile) => [profile.name, estimatedPoints(profile).estimated > 0]);
  expect(Object.fromEntries(listed.map(({ name, estimated: any }) => [name, any]))).toEqual(
    Object.fromEntries(expected),
  );
  expect(expected.map(([, any]) => any)).toEqual([false, true, true, overlap.length > 0, true]);
});

/** What somebody gives; the store reads its name only. */
const given = (name: string, notes = "") => ({ name, notes }) as unknown as Profile;

it("means by a name the newest profile of whoever's project, else the installation's", async () => {
  const { db } = test.database;
  const give = (project: string | null, notes: string) =>
    storeGivenProfile(db, given("team", notes), project);
  const called = async (only: string | null, name = "team") =>
    (await profilesCalled(db, name, { project: only, launcher: null })).map(({ id }) => id);
  const nlp = await give("nlp", "of nlp");
  expect(await give("nlp", "of nlp"), "the same content, once in a project").toBe(nlp);
  const vision = await give("vision", "of nlp");
  expect(vision, "and again in another").not.toBe(nlp);
  expect([await called("nlp"), await called("vision"), await called("default")]).toEqual([
    [nlp],
    [vision],
    [],
  ]);
  expect((await called(null)).toSorted(), "of both").toEqual([nlp, vision].toSorted());
  const installation = await give(null, "of all");
  const newer = await give("vision", "newer");
  expect([await called("nlp"), await called("vision"), await called("default")]).toEqual([
    [nlp],
    [newer],
    [installation],
  ]);
  expect(await called(null)).toEqual([installation]);
  const listed = (await listProfiles(db, { limit: 200 }, "nlp")).items.filter(({ name }) => name === "team");
  expect(listed.map(({ id, project }) => [id, project])).toEqual([
    [installation, null],
    [nlp, "nlp"],
  ]);
  const shown = async (only: string) => [
    await getProfile(db, nlp, only),
    await getProfile(db, installation, only),
  ];
  expect((await shown("nlp")).map((profile) => profile?.project)).toEqual(["nlp", null]);
  expect((await shown("vision")).map((profile) => profile?.project)).toEqual([undefined, null]);
});

it("means by a cluster's name the newest profile of what a job's launcher runs, whatever others measure", async () => {
  const { db } = test.database;
  const store = (clusterKey: string, name: string) =>
    storeProfile(db, { clusterKey, profile: given(name), freshForSeconds: 3600 });
  const meant = async (launcher: LauncherKind | null) =>
    (await profilesCalled(db, "testbed", { project: "nlp", launcher })).map(({ id }) => id);
  const wide = await store("ssh:testbed:2x4", "testbed 2026-01-01 12:00 UTC");
  expect([await meant("ssh"), await meant("local")]).toEqual([[wide], [wide]]);
  const local = await store("local:testbed:1x1", "testbed 2026-01-02 12:00 UTC");
  expect([await meant("ssh"), await meant("local")]).toEqual([[wide], [local]]);
  const narrow = await store("ssh:testbed:1x4", "testbed 2026-01-03 12:00 UTC");
  expect(await meant("ssh")).toEqual([narrow]);
  expect((await meant("slurm")).toSorted(), "of none of its own").toEqual([wide, local, narrow].toSorted());
  expect((await meant(null)).toSorted(), "for no job").toEqual([wide, local, narrow].toSorted());
  const called = await storeGivenProfile(db, given("testbed"));
  expect([await meant("ssh"), await meant(null)], "which has the name itself").toEqual([[called], [called]]);
});

it("deletes a given profile that is discarded, unless a job, a planning or a workload refers to it", async () => {
  const { db } = test.database;
  const give = (name: string) => storeGivenProfile(db, given(name), "nlp");
  const left = async (id: string) => {
    expect(await discardProfile(db, id)).toBe(true);
    return (await getProfile(db, id)) !== undefined;
  };
  const unused = await give("unused");
  expect(await left(unused)).toBe(false);
  expect(await discardProfile(db, unused)).toBe(false);
  const naming = (profile: string) => {
    const spec = exampleSpec();
    return { ...spec, project: "nlp", cluster: { ...spec.cluster, profile } };
  };
  const [used, named, planned, ofWorkload] = [
    await give("used"),
    await give("named"),
    await give("planned"),
    await give("of a workload"),
  ];
  await test.database.transaction(async (tx) => {
    const job = await submitJob(tx, { ...exampleSpec(), project: "nlp" });
    await updateJob(tx, job, { profileId: used });
    await submitJob(tx, naming(named));
    await tx.execute(
      `insert into plannings (id, profile_id, summary, counts) values (gen_random_uuid(), '${planned}', '{}', '{}')`,
    );
  });
  await createWorkload(db, {
    name: "nightly",
    spec: naming(ofWorkload),
    cron: "0 3 * * *",
    timeZone: "UTC",
    catchUpWindowSeconds: 60,
    gainThreshold: 0.1,
    nextRunAt: null,
  });
  for (const id of [used, named, planned, ofWorkload]) {
    expect(await left(id)).toBe(true);
    expect(await left(id), "again").toBe(true);
  }
  const measured = await storeProfile(db, {
    clusterKey: "local:m:1x2",
    profile: given("m"),
    freshForSeconds: 1,
  });
  expect(await left(measured), "what follows from it is known by its row").toBe(true);
});

it("keeps so many given profiles of a project and no more, however many come at once", async () => {
  const { db } = test.database;
  const give = (at: number, project: string | null = "full") =>
    test.database.transaction((tx) => storeGivenProfile(tx, given(`profile ${at}`), project));
  const first = await give(0);
  for (let at = 1; at < MOST_GIVEN_PROFILES - 1; at += 1) await give(at);
  const outcomes = await Promise.allSettled([1000, 1001, 1002, 1003].map((at) => give(at)));
  expect(outcomes.map(({ status }) => status).toSorted()).toEqual([
    "fulfilled",
    "rejected",
    "rejected",
    "rejected",
  ]);
  await expect(give(1004)).rejects.toMatchObject({
    code: "quota-exceeded",
    message: "project full has 100 given profiles, as many as a project may",
    details: [{ field: "name", value: "profile 1004", remedy: expect.stringMatching(/^discard one/) }],
  });
  expect(await give(0), "what it has already").toBe(first);
  await give(1004, null);
  await give(1004, "nlp");
  await discardProfile(db, first);
  await give(1004);
  await expect(give(1005)).rejects.toMatchObject({ code: "quota-exceeded" });
  await expect(give(1005, "none")).rejects.toMatchObject({ code: "not-found" });
});
