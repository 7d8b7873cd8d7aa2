import { randomUUID } from "node:crypto";
import { shippedProfile } from "@internevo/cost-model";
import { clusterKey, resolveJob } from "@internevo/domain";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { storeGivenProfile, storeProfile } from "@internevo/store";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createProfileSource, profileOfName, storedProfile } from "../src/profile-source.ts";
import { jobFile } from "./harness.ts";

/** The installation, for no job. */
const NOBODY = { project: null, launcher: null };

describe("stored profiles", () => {
  let test: TestDatabase;
  beforeAll(async () => {
    test = await createTestDatabase();
  });
  afterAll(() => test.drop());

  it("are one object however they are asked for, until newer ones have taken their place", async () => {
    const { db } = test.database;
    const spec = resolveJob(jobFile({ textPath: "/usr/share/common-licenses/GPL-3" }));
    const store = (name: string) =>
      storeProfile(db, {
        clusterKey: clusterKey(spec.cluster),
        profile: { ...shippedProfile("a800-128"), name },
        freshForSeconds: 60,
      });
    const id = await store("first");
    const newest = createProfileSource(test.database);
    const first = await newest(spec, undefined, null);
    expect(first.name).toBe("first");
    for (const again of [
      await newest(spec, undefined, null),
      await newest(spec, id, null),
      await storedProfile(db, id),
      await profileOfName(db, id, "profile", NOBODY),
    ])
      expect(again).toBe(first);
    const later = await store("second");
    expect((await newest(spec, undefined, null)).name).toBe("second");
    expect(await storedProfile(db, later)).not.toBe(first);
    for (let index = 0; index < 16; index += 1) await storedProfile(db, await store(`other ${index}`));
    const read = await storedProfile(db, id);
    expect(read).not.toBe(first);
    expect(read).toEqual(first);
    expect(await storedProfile(db, "no-id")).toBeUndefined();
    await expect(profileOfName(db, "nothing", "profile", NOBODY)).rejects.toMatchObject({
      code: "profile-missing",
    });
  });

  it("are named by their name or their cluster's, the newest first, and asked for where clusters share it", async () => {
    const { db } = test.database;
    const profile = (name: string) => ({ ...shippedProfile("a800-128"), name });
    const store = (key: string, name: string) =>
      storeProfile(db, { clusterKey: key, profile: profile(name), freshForSeconds: 60 });
    await store("local:mine (a+b):1x2", "mine earlier");
    await store("local:mine (a+b):1x2", "mine later");
    expect((await profileOfName(db, "mine (a+b)", "profile", NOBODY)).name).toBe("mine later");
    expect((await profileOfName(db, "mine earlier", "profile", NOBODY)).name).toBe("mine earlier");
    await storeGivenProfile(db, profile("given:x:1x2"));
    await expect(profileOfName(db, "x", "profile", NOBODY)).rejects.toMatchObject({
      code: "profile-missing",
    });
    const ids = [await store("local:shared:1x2", "of two"), await store("ssh:shared:2x8:cuda", "of sixteen")];
    await expect(profileOfName(db, "shared", "profile", NOBODY)).rejects.toMatchObject({
      code: "profile-missing",
      message: "shared names profiles of 2 clusters",
      details: ids.map((id) => ({ field: "profile", remedy: `give ${id}` })),
    });
    // A job means the cluster that its own launcher runs, and of its sizes the newest.
    const spec = resolveJob(jobFile({ textPath: "/usr/share/common-licenses/GPL-3" }));
    const source = createProfileSource(test.database);
    expect((await source(spec, "shared", null)).name).toBe("of two");
    const naming = { ...spec, cluster: { ...spec.cluster, launcher: "ssh" as const, profile: "shared" } };
    expect((await source(naming, undefined, null)).name).toBe("of sixteen");
    await store("ssh:shared:1x8:cuda", "of eight");
    expect((await source(naming, undefined, null)).name).toBe("of eight");
    await expect(profileOfName(db, randomUUID(), "profile", NOBODY)).rejects.toMatchObject({
      code: "profile-missing",
    });
  });
});
