import { createHealth } from "@internevo/service-kit";
import { openDatabase } from "@internevo/store";
import { startOwnPostgres, type OwnPostgres } from "@internevo/test-kit/own-postgres";
import { afterAll, beforeAll, expect, it } from "vitest";
import { jobFile, problem, startTestApi, type TestApi } from "./harness.ts";

let postgres: OwnPostgres;
let api: TestApi;
beforeAll(async () => {
  postgres = await startOwnPostgres();
  const database = openDatabase({ url: postgres.url, applicationName: "frozen-test", maxConnections: 4 });
  const health = createHealth("api");
  health.addCheck("database", () => database.isUp());
  api = await startTestApi({ health }, { url: postgres.url, database, drop: () => database.close() });
});
afterAll(async () => {
  postgres.thaw();
  await api.close();
  await postgres.stop();
});

it("says within seconds that its database stands still, and answers again when that goes on", async () => {
  const headers = { authorization: api.bearer.operator };
  const list = () => api.app.inject({ method: "GET", url: "/api/v1/jobs", headers });
  const submit = () =>
    api.app.inject({ method: "POST", url: "/api/v1/jobs", headers, payload: jobFile(api) });
  const ready = async () => (await api.app.inject({ method: "GET", url: "/readyz" })).statusCode;
  // Every connection has been used, and lies idle.
  await Promise.all(Array.from({ length: 8 }, list));
  expect((await submit()).statusCode).toBe(201);
  expect(await ready()).toBe(200);

  postgres.freeze();
  const began = performance.now();
  const refused = Promise.all([...Array.from({ length: 8 }, list), submit(), submit()]);
  const readiness = ready();
  for (const reply of await refused) problem(reply, 503, "unavailable");
  expect(await readiness).toBe(503);
  expect((await api.app.inject({ method: "GET", url: "/healthz" })).statusCode).toBe(200);
  expect(performance.now() - began).toBeLessThan(25_000);

  postgres.thaw();
  await expect.poll(ready, { timeout: 15_000 }).toBe(200);
  for (const reply of await Promise.all(Array.from({ length: 8 }, list))) expect(reply.statusCode).toBe(200);
  expect((await submit()).statusCode).toBe(201);
});
