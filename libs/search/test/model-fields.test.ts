import { comparePlans } from "@internevo/domain";
import { jobCase, measured, smallJobCase, withModelFields } from "@internevo/test-kit/job-cases";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { planJob } from "../src/index.ts";
import { bruteForce } from "./brute-force.ts";

/** Models with heads of their own size, norms of heads, biases, windows and scaled positions. */

describe("planJob of models with more than LLaMA has", () => {
  it("finds what a plain search over every field finds", () => {
    let plans = 0;
    fc.assert(
      fc.property(
        measured(withModelFields(smallJobCase)),
        fc.integer({ min: 1, max: 12 }),
        ([job, profile], top) => {
          const { feasible, tooLarge } = bruteForce(job, profile);
          plans += feasible.length + tooLarge.length;
          feasible.sort((a, b) => a.seconds - b.seconds || a.bytes - b.bytes || comparePlans(a.plan, b.plan));
          const result = planJob(job, profile, { top, plans: top });
          expect(result.plans?.map(({ plan }) => plan)).toEqual(
            feasible.slice(0, top).map(({ plan }) => plan),
          );
        },
      ),
      { numRuns: 60, seed: 20_240_502 },
    );
    expect(plans).toBeGreaterThan(10_000);
  });

  it("loses nothing by what it does not look at", () => {
    fc.assert(
      fc.property(
        measured(withModelFields(jobCase)),
        fc.integer({ min: 1, max: 12 }),
        ([job, profile], top) => {
          const some = planJob(job, profile, { top, plans: top });
          const all = planJob(job, profile, { top, plans: top, exhaustive: true });
          expect({ ...some, counts: null, warnings: null }).toEqual({ ...all, counts: null, warnings: null });
          for (const { predicted } of all.candidates) {
            expect(predicted.stepTimeSeconds).toBeGreaterThan(0);
            for (const bytes of Object.values(predicted.memory))
              expect(Number.isSafeInteger(bytes)).toBe(true);
            expect(predicted.mfu).toBeLessThanOrEqual(predicted.mfuFullAttention);
            expect(predicted.mfu).toBeLessThanOrEqual(predicted.hfu);
          }
        },
      ),
      { numRuns: 30, seed: 12 },
    );
  });
});
