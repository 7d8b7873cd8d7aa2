import { randomUUID } from "node:crypto";
import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  createProject,
  createToken,
  getJob,
  MOST_KEPT_ANSWER_BYTES,
  MOST_KEPT_ANSWERS,
  pruneIdempotencyKeys,
  signIn,
} from "@internevo/store";
import { sql } from "drizzle-orm";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { jobFile, problem, startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

const post = (key: string | undefined, body: unknown, options: { url?: string; token?: string } = {}) =>
  api.app.inject({
    method: "POST",
    url: options.url ?? "/api/v1/jobs",
    headers: {
      authorization: options.token ?? api.bearer.operator,
      ...(key === undefined ? {} : { "idempotency-key": key }),
    },
    payload: body as object,
  });
async function jobsNamed(name: unknown): Promise<number> {
  const { rows } = await api.database.db.execute(
    `select count(*)::int as count from jobs where name = '${String(name)}'`,
  );
  return (rows[0] as { count: number }).count;
}

describe("Idempotency-Key", () => {
  it("gives many requests at once one effect and one answer", async () => {
    const body = jobFile(api);
    const key = randomUUID();
    const replies = await Promise.all(Array.from({ length: 12 }, () => post(key, body)));
    expect(new Set(replies.map((reply) => reply.statusCode))).toEqual(new Set([201]));
    expect(new Set(replies.map((reply) => reply.json<{ id: string }>().id)).size).toBe(1);
    expect(new Set(replies.map((reply) => reply.headers.location)).size).toBe(1);
    for (const reply of replies) expect(reply.body).toBe(replies[0]?.body);
    // Those that were answered by the key too.
    expect(new Set(replies.map((reply) => reply.headers.etag))).toEqual(new Set(['"1"']));
    expect(await jobsNamed(body["name"])).toBe(1);
    const { rows } = await api.database.db.execute(
      `select count(*)::int as count from audit_log where target = '${replies[0]?.json<{ id: string }>().id}'`,
    );
    expect(rows).toEqual([{ count: 1 }]);
  });

  it("takes another order of fields for the same request, and other content for another", async () => {
    const body = jobFile(api);
    const key = randomUUID();
    const first = await post(key, body);
    expect((await post(key, Object.fromEntries(Object.entries(body).reverse()))).json()).toEqual(
      first.json(),
    );
    const other = await post(key, { ...body, steps: 21 });
    expect([other.statusCode, other.json<{ code: string }>().code]).toEqual([409, "conflict"]);
    const elsewhere = await post(key, undefined, { url: `${first.headers.location as string}/cancel` });
    expect(elsewhere.statusCode).toBe(409);
    expect(await jobsNamed(body["name"])).toBe(1);
  });

  it("has its answer whatever has become of what the request names", async () => {
    const directory = await mkdtemp(join(tmpdir(), "internevo-key-"));
    const path = join(directory, "data.txt");
    await copyFile(api.textPath, path);
    const body = jobFile(api, { data: { format: "text", paths: [path] } });
    const key = randomUUID();
    const first = await post(key, body);
    await rm(directory, { recursive: true });
    const again = await post(key, body);
    expect([first.statusCode, again.statusCode, again.headers.location]).toEqual([
      201,
      201,
      first.headers.location,
    ]);
    expect((await post(key, { ...body, steps: 21 })).statusCode).toBe(409);
    expect((await post(randomUUID(), body)).statusCode).toBe(422);
    expect((await post("two words", body)).statusCode).toBe(400);
  });

  it("belongs to a token, and is free again after a refusal", async () => {
    const body = jobFile(api);
    const key = randomUUID();
    expect((await post(key, { ...body, steps: 0 })).statusCode).toBe(422);
    const mine = await post(key, body);
    const theirs = await post(key, body, { token: api.bearer.admin });
    expect([mine.statusCode, theirs.statusCode]).toEqual([201, 201]);
    expect(theirs.json<{ id: string }>().id).not.toBe(mine.json<{ id: string }>().id);
  });

  it("belongs to the project that a session is in: in another it makes another job", async () => {
    for (const name of ["nlp", "vision"]) await api.database.transaction((tx) => createProject(tx, { name }));
    const { token } = await api.database.transaction((tx) =>
      createToken(tx, { name: "mover", role: "operator", project: null, validForSeconds: null }),
    );
    const moveTo = (project: string): Promise<unknown> =>
      api.database.db.execute(
        sql`update api_tokens set kind = 'login', project = ${project} where name = 'mover'`,
      );
    const body = jobFile(api);
    const key = randomUUID();
    const made: unknown[] = [];
    for (const project of ["nlp", "vision", "nlp"]) {
      await moveTo(project);
      const reply = await post(key, body, { token: `Bearer ${token}` });
      expect(reply.statusCode, reply.body).toBe(201);
      const { id } = reply.json<{ id: string }>();
      made.push([id, (await getJob(api.database.db, id))?.spec.project]);
    }
    expect(made[2]).toEqual(made[0]);
    expect(made.map((each) => (each as [string, string])[1])).toEqual(["nlp", "vision", "nlp"]);
    expect(await jobsNamed(body["name"])).toBe(2);
  });

  it("keeps so many answers of a token, and so many bytes of them", async () => {
    const { db } = api.database;
    const keyed = async (name: string) => {
      const made = { name, role: "operator", project: null, validForSeconds: null } as const;
      const { token, record } = await api.database.transaction((tx) => createToken(tx, made));
      return { token: `Bearer ${token}`, id: record.id };
    };
    const body = jobFile(api);
    const [known, next] = [randomUUID(), randomUUID()];
    // Otherwise text of one letter is compressed to little.
    await db.execute(sql`alter table idempotency_keys alter column body set storage external`);
    const kept = {
      many: sql`select k::text, '{}'::json from generate_series(2, ${MOST_KEPT_ANSWERS}) k`,
      large: sql`select 'large', to_json(repeat('x', ${MOST_KEPT_ANSWER_BYTES}))`,
    };
    for (const [name, rows] of Object.entries(kept)) {
      const { token, id } = await keyed(name);
      const first = await post(known, body, { token });
      expect(first.statusCode, first.body).toBe(201);
      await db.execute(sql`insert into idempotency_keys (actor, key, request_sha256, status, body)
        select ${id}, k, '', 200, b from (${rows}) as kept(k, b)`);
      const refused = await post(next, body, { token });
      const { detail, errors } = problem(refused, 429, "rate-limited");
      expect(detail).toBe(
        "this token has 10,000 answers, or 64 MB of them, kept for Idempotency-Keys; no more are kept",
      );
      expect(errors?.[0]).toMatchObject({
        field: "idempotency-key",
        value: next,
        remedy: "send the request without a key, or wait: each answer is forgotten after 24 hours",
      });
      expect(refused.headers["retry-after"]).toBe("3600");
      // What is kept is answered, and what keeps nothing is done.
      expect((await post(known, body, { token })).body).toBe(first.body);
      expect((await post(undefined, jobFile(api), { token })).statusCode).toBe(201);
      expect((await post(next, jobFile(api))).statusCode).toBe(201);
      await pruneIdempotencyKeys(db, 0);
      expect((await post(next, jobFile(api), { token })).statusCode).toBe(201);
    }
  }, 120_000);

  it("belongs to a person, whose sessions it outlives", async () => {
    const login = async (): Promise<string> => {
      const outcome = await api.database.transaction((tx) =>
        signIn(
          tx,
          {
            issuer: "https://id.example",
            subject: "s-ada",
            name: "ada",
            email: null,
            places: [{ role: "operator", project: null }],
          },
          { kind: "login", validForSeconds: 3600, idleSeconds: null, action: "POST /sign-in" },
        ),
      );
      if ("refusal" in outcome) throw outcome.refusal;
      return `Bearer ${outcome.secret}`;
    };
    const body = jobFile(api);
    const key = randomUUID();
    const first = await post(key, body, { token: await login() });
    expect(first.statusCode, first.body).toBe(201);
    expect((await post(key, body, { token: await login() })).body).toBe(first.body);
    expect(await jobsNamed(body["name"])).toBe(1);
  });

  it("is not needed, and must be a key", async () => {
    const body = jobFile(api);
    await Promise.all([post(undefined, body), post(undefined, body)]);
    expect(await jobsNamed(body["name"])).toBe(2);
    expect((await post("two words", body)).statusCode).toBe(400);
    expect((await post("x".repeat(201), body)).statusCode).toBe(400);
  });
});
