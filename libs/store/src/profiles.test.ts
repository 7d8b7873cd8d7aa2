import type { Profile } from "@internevo/domain";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";
import { discardProfile, newestProfile, storeProfile } from "./profiles.ts";

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
