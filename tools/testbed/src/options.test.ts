import { describe, expect, it } from "vitest";
import { bandwidthOf, checkedName, latencyOf, wholeNumber } from "./options.ts";

describe("options", () => {
  it.each([
    ["1gbit", 1e9],
    ["250mbit", 2.5e8],
    ["2.5Gbit", 2.5e9],
    ["1000000bit", 1e6],
  ])("reads the bandwidth %s", (text, bits) => expect(bandwidthOf(text)).toBe(bits));
  it.each([
    ["100us", 1e-4],
    ["2ms", 2e-3],
    ["1s", 1],
    ["0", 0],
  ])("reads the latency %s", (text, seconds) => expect(latencyOf(text)).toBeCloseTo(seconds, 12));
  it.each([
    [() => bandwidthOf("1g"), "--bandwidth"],
    [() => bandwidthOf("1bit"), "--bandwidth"],
    [() => bandwidthOf("1gbit; reboot"), "--bandwidth"],
    [() => latencyOf("-1ms"), "--latency"],
    [() => latencyOf("2s"), "--latency"],
    [() => wholeNumber("--nodes", "0", 64), "--nodes"],
    [() => wholeNumber("--nodes", "1e1", 64), "--nodes"],
    [() => checkedName("../x"), "--name"],
    [() => checkedName(""), "--name"],
  ])("refuses what is out of range (%#)", (read, field) =>
    expect(read).toThrow(
      expect.objectContaining({ code: "bad-request", details: [expect.objectContaining({ field })] }),
    ),
  );
});
