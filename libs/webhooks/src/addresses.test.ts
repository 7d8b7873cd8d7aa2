import { describe, expect, it } from "vitest";
import { checkReceiver, isPublicAddress } from "./addresses.ts";

const [strict, lax] = [{ privateAddresses: false }, { privateAddresses: true }];

describe("addresses", () => {
  it.each([
    ["93.184.216.34", true],
    ["2606:2800:220:1:248:1893:25c8:1946", true],
    ["127.0.0.1", false],
    ["127.255.255.254", false],
    ["0.0.0.0", false],
    ["10.1.2.3", false],
    ["172.16.0.1", false],
    ["192.168.1.1", false],
    ["169.254.169.254", false],
    ["100.64.0.1", false],
    ["224.0.0.1", false],
    ["255.255.255.255", false],
    ["::1", false],
    ["::", false],
    ["fe80::1", false],
    ["fd00::1", false],
    ["::ffff:127.0.0.1", false],
    ["::ffff:10.0.0.1", false],
    ["::127.0.0.1", false],
    ["::7f00:1", false],
    ["64:ff9b::7f00:1", false],
    ["2002:7f00:1::", false],
    ["example.org", false],
  ])("%s is public: %s", (address, expected) => expect(isPublicAddress(address)).toBe(expected));
});

describe("URLs of webhooks", () => {
  it.each([
    "http://127.0.0.1:8080/x",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://[::1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::127.0.0.1]/",
    "https://localhost/x",
    "https://localhost./x",
    "https://a.localhost/x",
    "http://169.254.169.254/latest/meta-data",
  ])("%s is refused, unless the installation allows it", (url) => {
    expect(() => checkReceiver(url, strict)).toThrow("is not on the public Internet");
    expect(() => checkReceiver(url, lax)).not.toThrow();
  });

  it.each([
    ["ftp://example.org", "is no https or http URL"],
    ["example.org", "is no https or http URL"],
    ["https://ada:secret@example.org", "has a user or a password in it"],
    ["https://example.org/#x", "has a fragment"],
  ])("%s is refused: %s", (url, why) => {
    expect(() => checkReceiver(url, lax)).toThrow(why);
    let shown = "";
    try {
      checkReceiver(url, lax);
    } catch (error) {
      shown = JSON.stringify(error);
    }
    expect(shown).not.toContain("secret");
  });

  it("warns of what is not encrypted", () => {
    expect(checkReceiver("https://example.org/x?y=1", strict)).toEqual([]);
    expect(checkReceiver("http://example.org", strict)).toEqual([expect.stringContaining("not encrypted")]);
  });
});
