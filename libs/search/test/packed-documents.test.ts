import { comparePlans, type JobSpec, type PackedDocuments } from "@internevo/domain";
import fc from "fast-check";
import { expect, it } from "vitest";
import { planJob } from "../src/index.ts";
import { bruteForce, type Judged } from "./brute-force.ts";
import { jobCase, measured, smallJobCase } from "@internevo/test-kit/job-cases";

const part = fc.double({ min: 0.01, max: 1, noNaN: true });
const ring = fc
  .record({
    work: part,
    deviation: fc.double({ min: 0, max: 0.5, noNaN: true }),
    more: part,
    firstTurn: part,
  })
  .map(({ work, deviation, more, firstTurn }) => ({
    work,
    deviation,
    most: work + more * (1 - work),
    firstTurn,
  }));

/** A job that packs documents, whatever they leave of attention. */
const packed = (jobs: fc.Arbitrary<JobSpec>): fc.Arbitrary<JobSpec> =>
  fc.tuple(jobs, part, fc.tuple(ring, ring, ring, ring)).map(([job, keysShare, [one, two, three, four]]) => {
    const documents: PackedDocuments = {
      sequenceLengthTokens: job.sequenceLengthTokens,
      sequences: 10,
      meanDocuments: 3,
      keysShare,
      rings: [
        { ranks: 1, ...one },
        { ranks: 2, ...two },
        { ranks: 3, ...three },
        { ranks: 4, ...four },
      ],
    };
    return { ...job, data: { format: "tokens", path: "/data", packing: "documents" }, documents };
  });

const order = (a: Judged, b: Judged) =>
  a.seconds - b.seconds || a.bytes - b.bytes || comparePlans(a.plan, b.plan);

it("finds what a plain search over every field finds, with packed documents", () => {
  fc.assert(
    fc.property(measured(packed(smallJobCase)), fc.integer({ min: 1, max: 12 }), ([job, profile], top) => {
      const feasible = bruteForce(job, profile).feasible.sort(order);
      const { plans, documents } = planJob(job, profile, { top, plans: top });
      expect(plans?.map(({ plan }) => plan)).toEqual(feasible.slice(0, top).map(({ plan }) => plan));
      expect(plans?.map(({ predicted }) => predicted.peakMemoryBytes)).toEqual(
        feasible.slice(0, top).map(({ bytes }) => bytes),
      );
      expect(documents).toMatch(/^Packed documents are counted/);
    }),
    { numRuns: 60, seed: 5 },
  );
});

it("loses nothing by what it does not look at, with packed documents", () => {
  fc.assert(
    fc.property(measured(packed(jobCase)), fc.integer({ min: 1, max: 12 }), ([job, profile], top) => {
      const some = planJob(job, profile, { top, plans: top });
      const all = planJob(job, profile, { top, plans: top, exhaustive: true });
      expect({ ...some, counts: null, warnings: null }).toEqual({ ...all, counts: null, warnings: null });
    }),
    { numRuns: 40, seed: 7 },
  );
});
