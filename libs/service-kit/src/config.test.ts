import { Type } from "typebox";
import { describe, expect, it } from "vitest";
import { readConfig } from "./config.ts";

const schema = Type.Object({
  INTERNEVO_TRIAL_RUNNER_LIMIT: Type.Integer({ default: 3, minimum: 1 }),
  INTERNEVO_TRIAL_RUNNER_FAST: Type.Boolean({ default: false }),
  INTERNEVO_TRIAL_RUNNER_PLACE: Type.Optional(Type.String({ minLength: 1 })),
});
const needed = { DATABASE_URL: "postgres://here/db", NATS_URL: "nats://here:4222" };
const read = (environment: Record<string, string>) =>
  readConfig("trial-runner", schema, { ...needed, ...environment });

describe("readConfig", () => {
  it("fills in defaults, and reads numbers and booleans from texts", () => {
    expect(
      read({
        INTERNEVO_TRIAL_RUNNER_LIMIT: "7",
        INTERNEVO_TRIAL_RUNNER_FAST: "true",
        PATH: "/bin",
        INTERNEVO_API_PORT: "1",
      }),
    ).toEqual({
      ...needed,
      INTERNEVO_NAMESPACE: "internevo",
      HEALTH_HOST: "127.0.0.1",
      HEALTH_PORT: 0,
      LOG_LEVEL: "info",
      INTERNEVO_TRIAL_RUNNER_LIMIT: 7,
      INTERNEVO_TRIAL_RUNNER_FAST: true,
    });
  });

  it.each([
    [{ INTERNEVO_TRIAL_RUNNER_LIMIT: "many" }, "INTERNEVO_TRIAL_RUNNER_LIMIT"],
    [{ INTERNEVO_TRIAL_RUNNER_LIMIT: "1.5" }, "INTERNEVO_TRIAL_RUNNER_LIMIT"],
    [{ INTERNEVO_TRIAL_RUNNER_FAST: "perhaps" }, "INTERNEVO_TRIAL_RUNNER_FAST"],
    [{ INTERNEVO_TRIAL_RUNNER_LIMIT: "0" }, "INTERNEVO_TRIAL_RUNNER_LIMIT"],
    [{ INTERNEVO_TRIAL_RUNNER_LIMITS: "3" }, "INTERNEVO_TRIAL_RUNNER_LIMITS"],
    [{ DATABASE_URL: "" }, "DATABASE_URL"],
    [{ HEALTH_PORT: "70000" }, "HEALTH_PORT"],
    [{ LOG_LEVEL: "loud" }, "LOG_LEVEL"],
  ])("names what is wrong with %j", (environment, field) => {
    expect(() => read(environment as Record<string, string>)).toThrow(
      expect.objectContaining({
        code: "bad-request",
        details: expect.arrayContaining([expect.objectContaining({ field })]),
      }),
    );
  });
});
