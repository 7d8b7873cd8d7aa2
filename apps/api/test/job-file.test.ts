import { resolveJob, type JobFile, type JobSpec } from "@internevo/domain";
import { jobFileCase } from "@internevo/test-kit/job-file-cases";
import { submitJob } from "@internevo/store";
import fc from "fast-check";
import { afterAll, beforeAll, expect, it } from "vitest";
import { parse } from "yaml";
import { jobFile, problem, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi({ limits: { requestsPerMinute: 1e6 } });
}, 60_000);
afterAll(() => api.close());

const fileOf = (id: string, accept?: string) =>
  api.app.inject({
    url: `/api/v1/jobs/${id}/file`,
    headers: { authorization: api.bearer.viewer, ...(accept === undefined ? {} : { accept }) },
  });
const stored = (spec: JobSpec): Promise<string> =>
  api.database.transaction((tx) => submitJob(tx, { ...spec, project: "default" }));

it("makes the same job again, of any job file, as JSON and as YAML", async () => {
  await fc.assert(
    fc.asyncProperty(jobFileCase, async (written) => {
      const spec = { ...resolveJob(written), project: "default" };
      const id = await stored(spec);
      const { measureAgain: _, ...measuredOnce } = spec;
      const expected = spec.until === "profiling" ? spec : measuredOnce;
      expect(resolveJob((await fileOf(id)).json())).toEqual(expected);
      const yaml = await fileOf(id, "application/yaml");
      expect(yaml.headers["content-type"]).toBe("application/yaml; charset=utf-8");
      expect(resolveJob(parse(yaml.body))).toEqual(expected);
    }),
    { numRuns: 40 },
  );
}, 60_000);

it("is submitted as it is", async () => {
  const submit = (payload: object) =>
    api.app.inject({
      method: "POST",
      url: "/api/v1/jobs",
      headers: { authorization: api.bearer.operator },
      payload,
    });
  const first = (await submit(jobFile(api, { steps: 100 }))).json<{ id: string; spec: JobSpec }>();
  const file = (await fileOf(first.id)).json<JobFile>();
  expect(file).not.toHaveProperty("checkpointing");
  const second = (await submit(file)).json<{ id: string; spec: JobSpec }>();
  expect(second.id).not.toBe(first.id);
  expect(second.spec).toEqual(first.spec);
});

it("keeps what the submitted file stated, also where it is the default, and so does job.yaml", async () => {
  const submitted = await api.app.inject({
    method: "POST",
    url: "/api/v1/jobs",
    headers: { authorization: api.bearer.operator },
    payload: jobFile(api, { steps: 200, optimizer: { warmupSteps: 10 } }),
  });
  const { id } = submitted.json<{ id: string }>();
  const file = (await fileOf(id)).json<JobFile>();
  expect(file.optimizer).toMatchObject({ warmupSteps: 10 });
  expect(file.optimizer).not.toHaveProperty("decaySteps");
  const artifact = await api.app.inject({
    url: `/api/v1/jobs/${id}/artifacts/job.yaml`,
    headers: { authorization: api.bearer.viewer },
  });
  expect(parse(artifact.body)).toEqual(file);
});

it("is not there for a job that is not there", async () => {
  problem(await fileOf("018f0000-0000-7000-8000-000000000000"), 404, "not-found");
});
