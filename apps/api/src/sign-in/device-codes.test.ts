import { expect, it } from "vitest";
import { DeviceCodes } from "./device-codes.ts";

const issuer = new URL("https://provider.example");
const settings = { issuer, clientId: "internevo", clientSecret: "secret" };
const refusalOf = (codes: DeviceCodes, code: string): string => {
  try {
    codes.codeOf(code);
  } catch (error) {
    return (error as Error).message;
  }
  return "none";
};

it("knows the codes that any instance of the API handed out, until they run out", () => {
  let now = new Date("2026-01-01T00:00:00Z");
  const [one, other] = [new DeviceCodes(settings), new DeviceCodes(settings, () => now)];
  for (const code of ["abc", "a.b.c", "a\nb", "é"]) expect(other.codeOf(other.signed(code, 60))).toBe(code);
  expect(one.codeOf(new DeviceCodes(settings).signed("abc", 60))).toBe("abc");
  const signed = other.signed("abc", 60);
  now = new Date("2026-01-01T00:01:01Z");
  expect(refusalOf(other, signed)).toBe("the device code has run out");
});

it("knows no others", () => {
  const codes = new DeviceCodes(settings);
  const signed = codes.signed("abc", 60);
  const [expiry, signature] = signed.split(".");
  const ofAnother = new DeviceCodes({ ...settings, clientSecret: "another" }).signed("abc", 60);
  const wrong = [
    "abc",
    "",
    "..",
    `${expiry}.${signature}.abd`,
    `zzzzzz.${signature}.abc`,
    `${expiry}.${"A".repeat(43)}.abc`,
    `${expiry}.${signature}.`,
    ofAnother,
  ];
  for (const code of wrong)
    expect(refusalOf(codes, code), code).toBe("the device code is none that this installation handed out");
});
