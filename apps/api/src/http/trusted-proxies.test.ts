import { ProblemError } from "@internevo/domain";
import { expect, it } from "vitest";
import { trustedProxies } from "./trusted-proxies.ts";

const trusts = (text: string, address: string, hop: number): boolean => {
  const rule = trustedProxies(text);
  return rule !== false && rule(address, hop);
};

it("believes so many proxies, counted from the API", () => {
  for (const none of ["false", "0"]) expect(trustedProxies(none)).toBe(false);
  for (const one of ["true", "1", " 1 "])
    expect([trusts(one, "192.0.2.1", 0), trusts(one, "192.0.2.1", 1)]).toEqual([true, false]);
  expect([trusts("2", "192.0.2.1", 1), trusts("2", "192.0.2.1", 2)]).toEqual([true, false]);
});

it("believes the proxies that are named", () => {
  const text = "192.0.2.7, 10.0.0.0/8,2001:db8::/32";
  for (const address of ["192.0.2.7", "10.9.8.7", "2001:db8::1", "::ffff:10.1.1.1"])
    expect([address, trusts(text, address, 3)]).toEqual([address, true]);
  for (const address of ["192.0.2.8", "11.0.0.1", "2001:db9::1", "anything", ""])
    expect([address, trusts(text, address, 0)]).toEqual([address, false]);
});

it.each([
  ["yes", "yes", "neither an address nor a range"],
  ["-1", "-1", "neither an address nor a range"],
  ["21", "21", "more than 20 proxies"],
  ["10.0.0.0/8,", "", "neither an address nor a range"],
  ["10.0.0.0/33", "10.0.0.0/33", "prefix is not 1 to 32"],
  ["10.0.0.0/", "10.0.0.0/", "prefix is not 1 to 32"],
  ["0.0.0.0/0", "0.0.0.0/0", "all addresses"],
  ["::/0", "::/0", "all addresses"],
])("refuses %j, with field, value and remedy", (text, value, message) => {
  let problem: unknown;
  try {
    trustedProxies(text);
  } catch (error) {
    problem = error;
  }
  expect(problem).toBeInstanceOf(ProblemError);
  expect((problem as ProblemError).details).toEqual([
    {
      field: "INTERNEVO_API_TRUST_PROXY",
      value,
      message: expect.stringContaining(message) as string,
      remedy: expect.stringContaining("number of proxies") as string,
    },
  ]);
});
