import { expect, it } from "vitest";
import { personOf } from "./person.ts";

const settings = {
  issuer: new URL("https://provider.example"),
  groupsClaim: "groups",
  placesOfGroup: new Map(),
  placeOfEverybody: undefined,
};

it.each([false, "false", "true", null, 0])(
  "takes no name from an address that is verified as %j",
  (verified) => {
    const claims = { sub: "s-1", email: "ada@x.org", email_verified: verified, preferred_username: "typed" };
    expect(personOf(claims, settings)).toMatchObject({ name: "typed", email: null });
  },
);

it.each([{}, { email_verified: true }])("takes the name from an address with %j", (said) => {
  expect(personOf({ sub: "s-1", email: "ada@x.org", ...said }, settings)).toMatchObject({
    name: "ada@x.org",
    email: "ada@x.org",
  });
});
