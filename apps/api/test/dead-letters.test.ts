import { DeadLetterSchema, JobDetailSchema } from "@internevo/contracts";
import { storeDeadLetter } from "@internevo/store";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { jobFile, problem, shaped, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

const V = "/api/v1";
const send = (
  method: "GET" | "POST",
  url: string,
  { role = "operator", body }: { role?: "operator" | "admin"; body?: object } = {},
) =>
  api.app.inject({
    method,
    url,
    headers: { authorization: api.bearer[role] },
    ...(body === undefined ? {} : { payload: body }),
  });

describe("dead letters", () => {
  it("are seen, replayed and discarded by admins", async () => {
    const job = shaped(JobDetailSchema, await send("POST", `${V}/jobs`, { body: jobFile(api) }));
    const letter = {
      consumer: "planner/job.plan",
      messageId: "m",
      messageType: "job.plan",
      subject: "command.job.plan",
      error: "boom",
      deliveries: 8,
    };
    const payload = {
      id: "m",
      type: "job.plan",
      occurredAt: new Date().toISOString(),
      traceparent: `00-${job.traceId}-${"1".repeat(16)}-01`,
      data: { jobId: job.id },
    };
    const [first, second] = await api.database.transaction(async (tx) => [
      await storeDeadLetter(tx, { ...letter, payload }),
      await storeDeadLetter(tx, { ...letter, payload }),
    ]);
    const page = (await send("GET", `${V}/dead-letters`, { role: "admin" })).json<{
      items: { id: string }[];
    }>();
    expect(page.items.map((item) => item.id).sort()).toEqual([first, second].sort());
    expect(
      shaped(DeadLetterSchema, await send("POST", `${V}/dead-letters/${first}/replay`, { role: "admin" }))
        .resolution,
    ).toBe("replayed");
    problem(await send("POST", `${V}/dead-letters/${first}/discard`, { role: "admin" }), 409, "conflict");
    expect(
      shaped(DeadLetterSchema, await send("POST", `${V}/dead-letters/${second}/discard`, { role: "admin" }))
        .resolution,
    ).toBe("discarded");
    expect((await send("GET", `${V}/dead-letters?openOnly=true`, { role: "admin" })).json()).toEqual({
      items: [],
      nextCursor: null,
    });
    problem(await send("POST", `${V}/dead-letters/x/replay`, { role: "admin" }), 404, "not-found");
  });
});
