import { ProblemSchema } from "@internevo/contracts";
import { validate, WorkloadSchema, type Workload } from "@internevo/domain";
import { afterAll, beforeAll, expect, it } from "vitest";
import { jobFile, startTestApi, type TestApi } from "./harness.ts";

const WORKLOADS = "/api/v1/workloads";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

/** Asks for a workload on a cluster, as an operator. */
const create = (cluster: Record<string, unknown>) =>
  api.app.inject({
    method: "POST",
    url: WORKLOADS,
    headers: { authorization: api.bearer.operator },
    payload: {
      name: "nightly",
      job: jobFile(api, {
        cluster: { name: "any", nodes: 1, gpusPerNode: 2, memoryPerGpu: "1MiB", ...cluster },
      }),
      cron: "0 3 * * *",
    },
  });

it.each([
  ["more ranks than this machine starts", { gpusPerNode: 64 }, "job.cluster.gpusPerNode"],
  ["more machines than there are", { nodes: 1000, gpusPerNode: 1 }, "job.cluster.nodes"],
  ["more memory than this machine has", { memoryPerGpu: "1TB" }, "job.cluster.memoryPerGpu"],
  ["a launcher that is not described here", { launcher: "ssh" }, "job.cluster.launcher"],
])("a workload that would be measured on %s is refused", async (_, cluster, field) => {
  const reply = await create(cluster);
  const problem = validate(ProblemSchema, reply.json(), "internal", "the problem");
  expect([reply.statusCode, problem.code]).toEqual([422, "job-invalid"]);
  expect(problem.errors?.map((each) => each.field)).toContain(field);
});

it("a workload with a profile starts nothing, and is planned for whatever cluster", async () => {
  const reply = await create({ nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB", profile: "a800-128" });
  expect(reply.statusCode).toBe(201);
  const { spec } = validate(WorkloadSchema, reply.json(), "internal", "the workload");
  expect(spec.cluster).toMatchObject({ nodes: 16, gpusPerNode: 8 });
  const headers = { authorization: api.bearer.operator };
  const list = await api.app.inject({ url: WORKLOADS, headers });
  const { spec: _spec, ...lean } = reply.json<Workload>();
  expect(list.json()).toEqual({ items: [lean], nextCursor: null });
  const one = await api.app.inject({ url: `${WORKLOADS}/${lean.id}`, headers });
  expect(one.json()).toEqual(reply.json());
});
