import { describe, expect, it } from "vitest";
import { PAUSES_VARIABLE, rankEnvironment, YIELDS_VARIABLE } from "./environment.ts";

const environmentOf = (base: NodeJS.ProcessEnv): Record<string, string> =>
  rankEnvironment({ base, marker: "m", temporaryDirectory: "/tmp", threadsPerRank: 1 });

describe("the environment of ranks", () => {
  it("has them pause while they wait where the services were told that the machine has other work", () => {
    expect(environmentOf({ [YIELDS_VARIABLE]: "1" })).toMatchObject({ [PAUSES_VARIABLE]: "1" });
    expect(environmentOf({ [YIELDS_VARIABLE]: "0" })).not.toHaveProperty(PAUSES_VARIABLE);
    expect(environmentOf({})).not.toHaveProperty(PAUSES_VARIABLE);
  });

  it("keeps what the user set, without the services' secrets and the tuning of libraries", () => {
    expect(
      environmentOf({ HOME: "/home/me", DATABASE_URL: "postgres://secret", OMP_NUM_THREADS: "64" }),
    ).toMatchObject({ HOME: "/home/me", OMP_NUM_THREADS: "1" });
    expect(environmentOf({ DATABASE_URL: "postgres://secret" })).not.toHaveProperty("DATABASE_URL");
  });
});
