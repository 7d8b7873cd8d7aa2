import { expect, it } from "vitest";
import { estimatesWords, measuredFirstWords } from "./measured-first.ts";

it("says what is measured before a job is planned, and how long that takes", () => {
  expect(measuredFirstWords({ missing: 171, noisy: 0, seconds: null, profile: null })).toBe(
    "Before it is planned, the cluster is measured: 171 points.",
  );
  expect(measuredFirstWords({ missing: 171, noisy: 0, seconds: 69.1, profile: null })).toBe(
    "Before it is planned, the cluster is measured: 171 points, which takes about a minute by the last measurement.",
  );
  expect(measuredFirstWords({ missing: 0, noisy: 0, seconds: null, profile: "p" })).toBe(
    "Nothing is measured before it is planned: profile p is used.",
  );
  expect(measuredFirstWords({ missing: 1, noisy: 1234, seconds: 30, profile: "p" })).toBe(
    "Before it is planned, it measures 1 point that profile p lacks and 1,234 that it has noisily, which takes about 30 seconds by the last measurement.",
  );
  expect(measuredFirstWords({ missing: 0, noisy: 2, seconds: null, profile: "p" })).toBe(
    "Before it is planned, it measures 2 points that profile p has noisily.",
  );
});

it("says whether figures are partly or wholly estimated", () => {
  const estimates = {
    profile: "p",
    needed: 166,
    missing: { modules: 100, collectives: 47, overlaps: 0, slices: 0 },
    noisy: 19,
    measuredBy: "internevo profile measure job.yaml",
    planWith: null,
  };
  expect(estimatesWords(estimates)).toMatch(
    /^Step times, token rates and MFU are wholly estimated: profile p lacks 147 of the 166 measurements .*, and 19 are noisy\./,
  );
  expect(estimatesWords({ ...estimates, noisy: 18 })).toMatch(/are partly estimated:/);
  expect(estimatesWords({ ...estimates, varies: ["cluster.nodes"] })).toMatch(
    /measures them on the cluster itself, for the cluster\.nodes of the job only\.$/,
  );
  const none = { modules: 0, collectives: 0, overlaps: 0, slices: 0 };
  expect(estimatesWords({ ...estimates, missing: none, noisy: 139 })).toMatch(
    /^Step times, .* are uncertain: of the 166 measurements that they rest on, 139 are noisy in profile p\.\n/,
  );
});
