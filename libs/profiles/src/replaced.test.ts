import { shippedProfile } from "@internevo/cost-model";
import { estimatedPoints, estimatedProfileWords, type ModuleTime } from "@internevo/domain";
import { describe, expect, it } from "vitest";
import { parseProfileParts, withParts } from "./replaced.ts";

const base = shippedProfile("estimated:h100");
const measured: ModuleTime = {
  shape: { module: "linear", pass: "forward", precision: "bf16", rows: 512, inputs: 4096, outputs: 11008 },
  medianSeconds: 1e-4,
};

describe("parts of a profile that were measured", () => {
  it("take the place of all estimates of their kind, and of no other", () => {
    const parts = parseProfileParts(
      JSON.stringify({ modules: [measured], device: { runtimeBytes: 3e9 }, name: "ours" }),
      "ours.json",
    );
    const profile = withParts(base, "ours.json", parts);
    const linear = profile.modules.filter(
      ({ shape }) => shape.module === "linear" && shape.pass === "forward" && shape.precision === "bf16",
    );
    expect(linear).toEqual([measured]);
    const others = (list: readonly ModuleTime[]) =>
      list.filter(
        ({ shape }) => shape.module !== "linear" || shape.pass !== "forward" || shape.precision !== "bf16",
      );
    expect(others(profile.modules)).toEqual(others(base.modules));
    expect(profile.device).toEqual({ ...base.device, runtimeBytes: 3e9 });
    expect(profile.provenance.notes.at(-1)).toBe("From ours.json: 1 modules, device.runtimeBytes");
    expect(estimatedProfileWords(profile)).toMatch(/\*estimated\* in [\d,]+ of its [\d,]+ points/);
  });

  it("leave nothing estimated where a whole measured profile takes its place", () => {
    const whole = shippedProfile("a800-128");
    const profile = withParts(whole, "again.json", parseProfileParts(JSON.stringify(base), "again.json"));
    // What is estimated among the parts is no measurement.
    expect({ ...profile, provenance: null, device: null, executor: null }).toEqual({
      ...whole,
      provenance: null,
      device: null,
      executor: null,
    });
    expect(estimatedPoints(profile).estimated).toBe(0);
  });

  it.each([
    ["{", /JSON/],
    ["{}", /neither device, modules/],
    ['{"modules":[{"shape":{}}]}', /./],
  ])("are not %j", (text, message) => {
    expect(() => parseProfileParts(text, "ours.json")).toThrowError(
      expect.objectContaining({ code: "profile-invalid" }) as Error,
    );
    try {
      parseProfileParts(text, "ours.json");
    } catch (error) {
      expect(JSON.stringify((error as { details: unknown }).details)).toMatch(message);
    }
  });
});
