import { shippedProfile } from "@internevo/cost-model";
import { obtainProfile, type ObtainProfileOptions } from "@internevo/stages";
import { createProject, getProfile, storeGivenProfile } from "@internevo/store";
import { exampleSpec } from "@internevo/test-kit/fixtures";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { afterAll, beforeAll, expect, it } from "vitest";

let test: TestDatabase;
beforeAll(async () => {
  test = await createTestDatabase();
});
afterAll(() => test.drop());

it("a job or workload that names a profile is planned with its own project's", async () => {
  const { database } = test;
  const PROJECTS = ["nlp", "vision"];
  await database.transaction(async (tx) => {
    for (const name of PROJECTS) await createProject(tx, { name });
  });
  const give = (project: string | null, device: string) => {
    const shipped = shippedProfile("a800-128");
    const profile = { ...shipped, name: "team", device: { ...shipped.device, name: device } };
    return storeGivenProfile(database.db, profile, project);
  };
  const ids = new Map<string, string>();
  for (const project of PROJECTS) ids.set(project, await give(project, project));
  /** The project of the profile that a job of this one gets. */
  const obtained = async (project: string | undefined, name = "team") => {
    const spec = exampleSpec();
    const cluster = { ...spec.cluster, profile: name };
    const options: Partial<ObtainProfileOptions> = {
      database,
      spec: { ...spec, ...(project === undefined ? {} : { project }), cluster },
    };
    // What is given needs no measurement, hence nothing else.
    const outcome = await obtainProfile(options as ObtainProfileOptions);
    if (outcome.status !== "obtained") throw new Error(outcome.failure.message);
    const id = await database.transaction(outcome.persist);
    return (await getProfile(database.db, id))?.project;
  };
  for (const project of PROJECTS) expect(await obtained(project)).toBe(project);
  await expect(obtained(undefined)).rejects.toMatchObject({ code: "profile-missing" });
  await expect(obtained("vision", ids.get("nlp"))).rejects.toMatchObject({
    code: "profile-missing",
    message: `no profile is named ${ids.get("nlp")}`,
  });
  await give(null, "of all");
  expect(await obtained(undefined)).toBeNull();
  expect(await obtained("nlp")).toBe("nlp");
  expect(await obtained("vision", "a800-128"), "shipped: stored for all").toBeNull();
});
