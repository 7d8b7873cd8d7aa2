import { shippedProfile } from "@internevo/cost-model";
import { estimatedPoints, type Profile } from "@internevo/domain";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
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

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
  await test.database.transaction(async (tx) => {
    for (const name of ["nlp", "vision"]) await createProject(tx, { name });
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
    (await profilesCalled(db, name, only)).map(({ id }) => id);
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
