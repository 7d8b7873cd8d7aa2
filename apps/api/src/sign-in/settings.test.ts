import { readConfig } from "@internevo/service-kit";
import { ProblemError } from "@internevo/domain";
import { Type } from "typebox";
import { describe, expect, it } from "vitest";
import { personOf, strongest } from "./person.ts";
import { signInConfig, signInSettings } from "./settings.ts";

const GIVEN = {
  DATABASE_URL: "postgres://x",
  NATS_URL: "nats://x",
  INTERNEVO_API_PUBLIC_URL: "https://internevo.example.org",
  INTERNEVO_API_OIDC_ISSUER: "https://id.example.org/realms/ml",
  INTERNEVO_API_OIDC_CLIENT_ID: "internevo",
  INTERNEVO_API_OIDC_ROLES: "ml-admins=admin, ml=nlp:operator,ml=vision:viewer",
};
const read = (over: Record<string, string | undefined> = {}) =>
  signInSettings(readConfig("api", Type.Object(signInConfig), { ...GIVEN, ...over }));

describe("settings of sign-in", () => {
  it("say who may do what", () => {
    expect(read()).toMatchObject({ providerName: "single sign-on", clientSecret: undefined });
    expect([...read()!.placesOfGroup]).toEqual([
      ["ml-admins", [{ role: "admin", project: null }]],
      [
        "ml",
        [
          { role: "operator", project: "nlp" },
          { role: "viewer", project: "vision" },
        ],
      ],
    ]);
    // A group's name may have what separates a group from its role.
    expect([...read({ INTERNEVO_API_OIDC_ROLES: "cn=ml=operator" })!.placesOfGroup.keys()]).toEqual([
      "cn=ml",
    ]);
    expect(
      read({ INTERNEVO_API_OIDC_ISSUER: undefined, INTERNEVO_API_OIDC_CLIENT_ID: undefined }),
    ).toBeUndefined();
  });

  it("are refused where they are missing, wrong or at odds", () => {
    const cases: [Record<string, string | undefined>, string, string][] = [
      [{ INTERNEVO_API_PUBLIC_URL: undefined }, "INTERNEVO_API_PUBLIC_URL", "is missing"],
      [
        { INTERNEVO_API_PUBLIC_URL: "http://internevo.example.org" },
        "INTERNEVO_API_PUBLIC_URL",
        "is not https",
      ],
      [{ INTERNEVO_API_PUBLIC_URL: "https://x.org/sub" }, "INTERNEVO_API_PUBLIC_URL", "has a path"],
      [{ INTERNEVO_API_OIDC_ISSUER: "http://id.example.org" }, "INTERNEVO_API_OIDC_ISSUER", "is not https"],
      [
        { INTERNEVO_API_OIDC_ISSUER: undefined },
        "INTERNEVO_API_OIDC_ISSUER",
        "is missing beside a client id",
      ],
      [{ INTERNEVO_API_OIDC_CLIENT_ID: undefined }, "INTERNEVO_API_OIDC_CLIENT_ID", "is missing"],
      [{ INTERNEVO_API_OIDC_ROLES: "" }, "INTERNEVO_API_OIDC_ROLES", "gives nobody a role"],
      [{ INTERNEVO_API_OIDC_ROLES: "ml" }, "INTERNEVO_API_OIDC_ROLES", "has an entry without a group"],
      [
        { INTERNEVO_API_OIDC_ROLES: "ml=owner" },
        "INTERNEVO_API_OIDC_ROLES",
        "is neither ROLE nor PROJECT:ROLE",
      ],
      [{ INTERNEVO_API_OIDC_DEFAULT_ROLE: ":viewer" }, "INTERNEVO_API_OIDC_DEFAULT_ROLE", "is neither"],
      [
        { INTERNEVO_API_OIDC_CLIENT_SECRET_FILE: "/no/such" },
        "INTERNEVO_API_OIDC_CLIENT_SECRET_FILE",
        "cannot be read",
      ],
      [
        { INTERNEVO_API_OIDC_CLIENT_SECRET_FILE: "/x", INTERNEVO_API_OIDC_CLIENT_SECRET: "y" },
        "INTERNEVO_API_OIDC_CLIENT_SECRET_FILE",
        "is given beside the secret",
      ],
      [{ INTERNEVO_API_OIDC_SCOPES: "profile" }, "INTERNEVO_API_OIDC_SCOPES", ""],
    ];
    for (const [over, field, message] of cases) {
      let problem: unknown;
      try {
        read(over);
      } catch (error) {
        problem = error;
      }
      expect(problem, JSON.stringify(over)).toBeInstanceOf(ProblemError);
      const [error] = (problem as ProblemError).details;
      expect(error?.field).toBe(field);
      expect(error?.message).toContain(message);
      expect(error?.remedy).not.toBe("");
    }
  });
});

describe("a person's claims", () => {
  const settings = read({ INTERNEVO_API_OIDC_GROUPS_CLAIM: "realm_access.roles" })!;
  it("have groups at a path, one or several", () => {
    for (const roles of [["ml-admins", "unknown"], "ml-admins"])
      expect(personOf({ sub: "1", realm_access: { roles } }, settings)).toMatchObject({
        name: "1",
        places: [{ role: "admin", project: null }],
      });
    for (const claims of [
      { sub: "1" },
      { sub: "1", realm_access: null },
      { sub: "1", realm_access: { roles: [1] } },
    ])
      expect(personOf(claims, settings).places).toEqual([]);
  });

  it("give the strongest role of each place", () => {
    expect(
      strongest([
        { role: "viewer", project: "nlp" },
        { role: "admin", project: "nlp" },
        { role: "operator", project: "nlp" },
        { role: "viewer", project: null },
      ]),
    ).toEqual([
      { role: "admin", project: "nlp" },
      { role: "viewer", project: null },
    ]);
  });
});
