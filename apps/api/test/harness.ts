import { randomUUID } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ProblemSchema, type Problem, type Role } from "@internevo/contracts";
import { validate } from "@internevo/domain";
import { aJob } from "@internevo/test-kit";
import { createTestDatabase, type TestDatabase } from "@internevo/test-kit/stack";
import { createHealth } from "@internevo/service-kit";
import { newToken, storeToken, type Database } from "@internevo/store";
import type { Static, TSchema } from "typebox";
import { expect } from "vitest";
import { buildApi, type ApiOptions } from "../src/app.ts";
import type { ApiInstance } from "../src/http/instance.ts";
import { createProfileSource } from "../src/profile-source.ts";
import type { SignInSettings } from "../src/sign-in/settings.ts";
import { createWorkers, type Workers, type WorkersOptions } from "../src/work/workers.ts";

export interface TestApi {
  readonly app: ApiInstance;
  readonly database: Database;
  /** For `authorization`. */
  readonly bearer: Readonly<Record<Role, string>>;
  readonly tokens: Readonly<Record<Role, string>>;
  /** Where the test may write. */
  readonly directory: string;
  /** The installation's own: `own` of the options, else `directory`, in which jobs may read data here. */
  readonly dataDirectory: string;
  /** A text file of 4 KiB. */
  readonly textPath: string;
  close(): Promise<void>;
}

/**
 * The API over a database of its own, listening nowhere unless the test asks for it.
 *
 * @param made the database, where the test made one.
 */
export async function startTestApi(
  options: Partial<
    Pick<
      ApiOptions,
      | "limits"
      | "timeouts"
      | "heartbeatMilliseconds"
      | "capabilities"
      | "measuring"
      | "consoleDirectory"
      | "now"
      | "logger"
      | "profileFor"
      | "signIn"
      | "trustProxy"
      | "health"
      | "workers"
    >
  > &
    Pick<WorkersOptions, "roots" | "own"> = {},
  made?: TestDatabase,
): Promise<TestApi> {
  const directory = await mkdtemp(join(tmpdir(), "internevo-api-"));
  const dataDirectory = options.own ?? directory;
  const textPath = join(directory, "text.txt");
  await writeFile(textPath, "It was a bright cold day in April. ".repeat(120).slice(0, 4096));
  const test = made ?? (await createTestDatabase());
  const { database } = test;
  const workers: Workers = createWorkers({
    planThreads: 2,
    ...(options.roots ? { roots: options.roots } : {}),
    own: options.own,
  });
  const app = await buildApi({
    database,
    workers,
    capabilities: {
      hasProgram: () => false,
      maximumLocalRanks: 8,
      localMemoryBytes: 64 * 2 ** 30,
      cores: 2,
      dataDirectory,
      cuda: { hasBackend: false, gpus: 0 },
    },
    profileFor: createProfileSource(database),
    health: createHealth("api"),
    version: "0.0.0-test",
    consoleDirectory: join(directory, "no-console"),
    ...options,
    // A machine that gives its processor to others is not what these tests are about.
    limits: { maximumEventLoopDelayMilliseconds: 0, ...options.limits },
  });
  const tokens = { viewer: newToken(), operator: newToken(), admin: newToken() };
  for (const role of ["viewer", "operator", "admin"] as const)
    await storeToken(database.db, role, role, tokens[role]);
  return {
    app,
    database,
    tokens,
    bearer: {
      viewer: `Bearer ${tokens.viewer}`,
      operator: `Bearer ${tokens.operator}`,
      admin: `Bearer ${tokens.admin}`,
    },
    directory,
    dataDirectory,
    textPath,
    async close() {
      await app.close();
      await workers.close();
      await test.drop();
      await rm(directory, { recursive: true });
    },
  };
}

type Reply = Awaited<ReturnType<ApiInstance["inject"]>>;

/** An answer of that shape. */
export const shaped = <S extends TSchema>(schema: S, reply: Reply): Static<S> =>
  validate(schema, reply.json(), "internal", "the answer");

/** An answer that is a problem, with a remedy for every field. */
export function problem(reply: Reply, status: number, code: Problem["code"]): Problem {
  const body = validate(ProblemSchema, reply.json(), "internal", "the problem");
  expect({ status: reply.statusCode, code: body.code, type: reply.headers["content-type"] }).toEqual({
    status,
    code,
    type: "application/problem+json; charset=utf-8",
  });
  expect(body).toMatchObject({
    status,
    type: `urn:internevo:problem:${code}`,
    traceId: expect.stringMatching(/^[0-9a-f]{32}$/),
  });
  for (const error of body.errors ?? []) expect(error.remedy).not.toBe("");
  return body;
}

/** Nothing listens there. */
const AWAY = new URL("http://127.0.0.1:9");

/** Settings of sign-in; without others the provider is away, and everybody would be a viewer. */
export const signInBy = (over: Partial<SignInSettings> = {}): SignInSettings => ({
  publicUrl: AWAY,
  issuer: AWAY,
  providerName: "Example",
  clientId: "internevo",
  clientSecret: undefined,
  clientAuthentication: "client_secret_basic",
  scopes: "openid profile email",
  groupsClaim: "groups",
  placesOfGroup: new Map(),
  placeOfEverybody: { role: "viewer", project: null },
  sessionSeconds: 3600,
  idleSeconds: 1800,
  loginSeconds: 86_400,
  ...over,
});

/** A job file that the API accepts. */
export const jobFile = (
  api: Pick<TestApi, "textPath">,
  over: Record<string, unknown> = {},
): Record<string, unknown> =>
  aJob({
    name: `job-${randomUUID().slice(0, 8)}`,
    globalBatchTokens: 512,
    precision: "fp32",
    steps: 20,
    data: { format: "text", paths: [api.textPath] },
    cluster: { name: "here", nodes: 1, gpusPerNode: 2, memoryPerGpu: "1GiB" },
    ...over,
  });

/** Every table, counted: what a refused request must not change. */
export async function rowCounts(database: Database): Promise<Record<string, number>> {
  const tables = [
    "jobs",
    "job_transitions",
    "job_log",
    "outbox",
    "workloads",
    "workload_firings",
    "idempotency_keys",
    "profiles",
    "plannings",
  ];
  const counts: Record<string, number> = {};
  for (const table of tables) {
    const { rows } = await database.db.execute(`select count(*)::int as count from ${table}`);
    counts[table] = (rows[0] as { count: number }).count;
  }
  return counts;
}
