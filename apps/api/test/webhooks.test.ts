import {
  CreatedWebhookSchema,
  WebhookDeliverySchema,
  WebhookPageSchema,
  WebhookSchema,
  type CreatedWebhook,
} from "@internevo/contracts";
import { createProject, createToken, deleteProject } from "@internevo/store";
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { problem, shaped, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let nlp: string;
beforeAll(async () => {
  api = await startTestApi();
  await api.database.transaction(async (tx) => {
    await createProject(tx, { name: "nlp" });
    const made = { name: "lin", role: "admin", project: "nlp", validForSeconds: null } as const;
    nlp = `Bearer ${(await createToken(tx, made)).token}`;
  });
});
afterAll(() => api.close());
beforeEach(async () => void (await api.database.db.execute("truncate webhooks, webhook_deliveries")));

const ask = (
  method: "GET" | "POST" | "PATCH" | "DELETE",
  url: string,
  payload?: object,
  as = api.bearer.admin,
) =>
  api.app.inject({
    method,
    url: `/api/v1${url}`,
    headers: { authorization: as },
    ...(payload ? { payload } : {}),
  });
const create = async (over: object = {}, as?: string): Promise<CreatedWebhook> =>
  shaped(
    CreatedWebhookSchema,
    await ask("POST", "/webhooks", { name: "ci", url: "https://example.org/x", ...over }, as),
  );

it("shows the secret once, and stores a webhook of the token's project", async () => {
  const made = await create({}, nlp);
  expect(made).toMatchObject({ project: "nlp", events: null, enabled: true, warnings: [], pending: 0 });
  expect(made.secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
  const [list, one] = [await ask("GET", "/webhooks"), await ask("GET", `/webhooks/${made.id}`)];
  shaped(WebhookPageSchema, list);
  expect(shaped(WebhookSchema, one).url).toBe("https://example.org/x");
  for (const { body } of [list, one]) expect(body).not.toContain("whsec_");
  const audit = await ask("GET", "/audit?action=webhooks");
  expect(audit.json().items[0]).toMatchObject({
    action: "POST /api/v1/webhooks",
    target: made.id,
    project: "nlp",
  });
  expect(audit.body).not.toContain("whsec_");
  expect((await create({ url: "http://example.org" })).warnings[0]).toContain("not encrypted");
});

it("refuses what is no receiver, a name that is taken, and one webhook too many", async () => {
  const refused = async (body: object, status = 400, code: "bad-request" | "conflict" = "bad-request") =>
    problem(
      await ask("POST", "/webhooks", { name: "ci", url: "https://example.org", ...body }),
      status,
      code,
    );
  expect((await refused({ url: "http://127.0.0.1:5432" })).errors?.[0]).toMatchObject({
    field: "url",
    message: "is not on the public Internet",
    remedy: expect.stringContaining("INTERNEVO_WEBHOOK_PRIVATE_ADDRESSES=true"),
  });
  await refused({ url: "ftp://example.org" });
  await refused({ events: ["job.vanished"] });
  await refused({ events: [] });
  await create();
  await refused({}, 409, "conflict");
  for (let index = 1; index < 20; index += 1) await create({ name: `ci-${index}` });
  problem(
    await ask("POST", "/webhooks", { name: "more", url: "https://example.org" }),
    403,
    "quota-exceeded",
  );
  await create({ name: "ci" }, nlp);
});

it("changes, disables and removes a webhook, and goes with its project", async () => {
  const { id } = await create({ events: ["trial.ended"] }, nlp);
  const change = async (body: object) => (await ask("PATCH", `/webhooks/${id}`, body)).json();
  expect(await change({ events: null, url: "http://example.com" })).toMatchObject({
    events: null,
    url: "http://example.com",
    warnings: [expect.stringContaining("not encrypted")],
  });
  problem(await ask("PATCH", `/webhooks/${id}`, { url: "http://[::1]" }), 400, "bad-request");
  expect(await change({ enabled: false })).toMatchObject({
    enabled: false,
    disabledReason: "somebody disabled it",
  });
  problem(await ask("POST", `/webhooks/${id}/test`), 409, "conflict");
  expect(await change({ enabled: true })).toMatchObject({ enabled: true, disabledReason: null });
  expect((await ask("DELETE", `/webhooks/${id}`)).statusCode).toBe(204);
  problem(await ask("GET", `/webhooks/${id}`), 404, "not-found");
  await api.database.transaction(async (tx) => void (await createProject(tx, { name: "short" })));
  await create({ project: "short" });
  await api.database.transaction((tx) => deleteProject(tx, "short"));
  expect((await ask("GET", "/webhooks")).json().items).toEqual([]);
});

it("lists deliveries, and replays what has ended", async () => {
  const { id } = await create();
  const tested = shaped(WebhookDeliverySchema, await ask("POST", `/webhooks/${id}/test`));
  expect(JSON.parse(tested.payload)).toMatchObject({
    id: tested.eventId,
    type: "dev.internevo.webhook.test.v1",
    data: { webhookId: id, webhookName: "ci" },
  });
  problem(await ask("POST", `/webhook-deliveries/${tested.id}/replay`), 409, "conflict");
  await api.database.db.execute("update webhook_deliveries set state = 'failed', ended_at = now()");
  const page = (await ask("GET", `/webhooks/${id}/deliveries?state=failed`)).json();
  expect(page.items.map((each: { id: string }) => each.id)).toEqual([tested.id]);
  expect((await ask("GET", `/webhooks/${id}/deliveries?state=pending`)).json().items).toEqual([]);
  const again = shaped(WebhookDeliverySchema, await ask("POST", `/webhook-deliveries/${tested.id}/replay`));
  expect(again).toMatchObject({ state: "pending", endedAt: null, eventId: tested.eventId });
  expect(shaped(WebhookDeliverySchema, await ask("GET", `/webhook-deliveries/${tested.id}`))).toEqual(again);
});
