import { shippedProfile } from "@internevo/cost-model";
import { estimatedPoints, type Profile } from "@internevo/domain";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
import { discardProfile, listProfiles, newestProfile, storeProfile } from "./profiles.ts";

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
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
