import {
  ProblemSchema,
  TokenPageSchema,
  CreatedTokenSchema,
  type CreatedToken,
  type Problem,
} from "@internevo/contracts";
import { ApiProblemError, InternEvoClient } from "@internevo/client";
import { validate } from "@internevo/domain";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ensureToken } from "../src/first-token.ts";
import { jobFile, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
let baseUrl: string;
let admin: InternEvoClient;
beforeEach(async () => {
  api = await startTestApi();
  baseUrl = await api.app.listen({ host: "127.0.0.1", port: 0 });
  admin = as(api.tokens.admin);
});
afterEach(() => api.close());

const as = (token: string): InternEvoClient => new InternEvoClient({ baseUrl, token });
const refusal = async (work: Promise<unknown>): Promise<Problem> => {
  const error: unknown = await work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof ApiProblemError)) throw new Error("it was not refused", { cause: error });
  return validate(ProblemSchema, error.problem, "internal", "the problem");
};
const idOf = async (name: string): Promise<string> => {
  const found = (await admin.listTokens()).items.find((token) => token.name === name);
  if (!found) throw new Error(`no token ${name}`);
  return found.id;
};

describe("tokens", () => {
  it("are made with a role, which they have, and shown once", async () => {
    const made: Record<string, CreatedToken> = {};
    for (const role of ["viewer", "operator", "admin"] as const)
      made[role] = validate(
        CreatedTokenSchema,
        await admin.createToken({ name: `a ${role}`, role }),
        "internal",
        "the answer",
      );
    for (const role of ["viewer", "operator", "admin"] as const)
      expect(await as(made[role]?.token ?? "").whoami()).toMatchObject({
        name: `a ${role}`,
        role,
        project: null,
      });
    expect(await refusal(as(made["viewer"]?.token ?? "").submitJob(jobFile(api)))).toMatchObject({
      status: 403,
      code: "forbidden",
    });
    expect((await as(made["operator"]?.token ?? "").submitJob(jobFile(api))).state).toBe("profiling");
    expect(await refusal(as(made["operator"]?.token ?? "").listTokens())).toMatchObject({ status: 403 });
    const listed = validate(TokenPageSchema, await admin.listTokens(), "internal", "the list");
    expect(listed.items.slice(0, 3).map(({ name }) => name)).toEqual(["a admin", "a operator", "a viewer"]);
    expect(JSON.stringify(listed)).not.toContain("ivo_");
  });

  it("are stored as digests only, whatever headers the request has", async () => {
    const reply = await api.app.inject({
      method: "POST",
      url: "/api/v1/tokens",
      headers: { authorization: api.bearer.admin, "idempotency-key": "once" },
      payload: { name: "secret", role: "viewer" },
    });
    expect(reply.statusCode).toBe(201);
    const { token } = reply.json<CreatedToken>();
    for (const table of ["api_tokens", "idempotency_keys", "audit_log"]) {
      const { rows } = await api.database.db.execute(`select * from ${table}`);
      expect(JSON.stringify(rows)).not.toContain(token);
    }
    const { rows } = await api.database.db.execute(
      "select actor, action, status from audit_log where action like '%tokens'",
    );
    expect(rows).toEqual([{ actor: "admin", action: "POST /api/v1/tokens", status: 201 }]);
  });

  it("have names of their own, free again when they are revoked or have run out", async () => {
    const first = await admin.createToken({ name: "ci", role: "viewer" });
    expect(await refusal(admin.createToken({ name: "ci", role: "viewer" }))).toMatchObject({
      status: 409,
      errors: [{ field: "name", value: "ci" }],
    });
    await admin.revokeToken(first.id);
    expect(await refusal(as(first.token).whoami())).toMatchObject({ status: 401 });
    expect(await refusal(admin.revokeToken(first.id))).toMatchObject({
      status: 404,
      errors: [{ field: "id" }],
    });
    expect(await refusal(admin.revokeToken("nonsense"))).toMatchObject({ status: 404 });
    const short = await admin.createToken({ name: "ci", role: "viewer", validForSeconds: 3600 });
    expect(await as(short.token).whoami()).toMatchObject({ name: "ci", role: "viewer", project: null });
    await api.database.db.execute(
      `update api_tokens set expires_at = clock_timestamp() where id = '${short.id}'`,
    );
    expect(await refusal(as(short.token).whoami())).toMatchObject({ status: 401 });
    expect((await admin.createToken({ name: "ci", role: "operator" })).role).toBe("operator");
  });

  it.each([
    [{ name: "", role: "viewer" }, "name"],
    [{ name: "two\nlines", role: "viewer" }, "name"],
    [{ name: "x", role: "root" }, "role"],
    [{ name: "x", role: "viewer", validForSeconds: 0 }, "validForSeconds"],
    [{ name: "x", role: "viewer", validForSeconds: 1e12 }, "validForSeconds"],
    [{ name: "x" }, "role"],
  ])("are not made of %o", async (body, field) => {
    const reply = await api.app.inject({
      method: "POST",
      url: "/api/v1/tokens",
      headers: { authorization: api.bearer.admin },
      payload: body,
    });
    expect(reply.json()).toMatchObject({
      status: 400,
      code: "bad-request",
      errors: [{ field, remedy: expect.stringMatching(/\w/) }],
    });
  });
});

describe("the last admin token", () => {
  it("cannot be revoked, not even when two admins revoke each other at once", async () => {
    const adminId = await idOf("admin");
    expect(await refusal(admin.revokeToken(adminId))).toMatchObject({
      status: 409,
      code: "conflict",
      errors: [
        {
          field: "id",
          message: "is the last valid token of role admin",
          remedy: expect.stringContaining("create another"),
        },
      ],
    });
    const other = await admin.createToken({ name: "other", role: "admin" });
    const outcomes = await Promise.allSettled([
      admin.revokeToken(other.id),
      as(other.token).revokeToken(adminId),
    ]);
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    const left = outcomes[0]?.status === "fulfilled" ? admin : as(other.token);
    expect((await left.listTokens()).items.filter(({ role }) => role === "admin")).toHaveLength(1);
  });

  it("is made anew by the next start when it has run out, though other tokens are valid", async () => {
    await api.database.db.execute(
      "update api_tokens set expires_at = clock_timestamp() where role = 'admin'",
    );
    const made = await ensureToken(api.database, undefined);
    expect(await as(made ?? "").whoami()).toMatchObject({ role: "admin" });
    expect(await ensureToken(api.database, undefined)).toBeUndefined();
  });

  it("that was given by whoever starts the service is valid again at its next start", async () => {
    await ensureToken(api.database, "a-token-of-the-local-stack");
    await admin.revokeToken(await idOf("local-stack"));
    expect(await refusal(as("a-token-of-the-local-stack").whoami())).toMatchObject({ status: 401 });
    await ensureToken(api.database, "a-token-of-the-local-stack");
    expect(await as("a-token-of-the-local-stack").whoami()).toMatchObject({
      name: "local-stack",
      role: "admin",
    });
  });
});

it("has a name of which every character is seen", async () => {
  const create = (name: string) =>
    api.app.inject({
      method: "POST",
      url: "/api/v1/tokens",
      headers: { authorization: api.bearer.admin },
      payload: { name, role: "viewer" },
    });
  for (const one of ["\u3164", "\u200d", "\ufe0f", "\u2800", "\u00a0", "\u200b", "\u{e0041}", "\ufff9", " "])
    expect([one.codePointAt(0), (await create(`ci${one}`)).statusCode]).toEqual([one.codePointAt(0), 400]);
  for (const name of ["nightly planner", "größe-ci", "ночь", "夜間", "a.b-example.org"])
    expect([name, (await create(name)).statusCode]).toEqual([name, 201]);
});
