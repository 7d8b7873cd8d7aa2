import { describe, expect, it } from "vitest";
import type { JobStand } from "@internevo/store";
import { announcedStep, chooseCheckpoints, Missing } from "./choice.ts";

const stand = (over: Partial<JobStand> = {}): JobStand => ({
  jobId: "job",
  state: "running",
  everySteps: 10,
  attempt: 1,
  resumedFromStep: 0,
  announcedStep: 30,
  storedSteps: 35,
  ...over,
});

describe("which checkpoints belong to a snapshot", () => {
  it("are those up to the newest that it knows of", () => {
    expect(chooseCheckpoints(stand(), [40, 30, 20])).toEqual({ kept: [20, 30], missing: [] });
  });

  it("must have the newest that it knows of", () => {
    expect(chooseCheckpoints(stand(), [40, 50])).toEqual({ kept: [], missing: [30] });
  });

  it("are of those that are gone meanwhile only what is needed", () => {
    expect(chooseCheckpoints(stand(), [10, 20, 30, 40], [20, 40])).toEqual({ kept: [20, 30], missing: [] });
  });

  it("are none of a job that has not trained", () => {
    const waiting = stand({ attempt: null, announcedStep: null, storedSteps: 0 });
    expect(chooseCheckpoints(waiting, [10])).toEqual({ kept: [], missing: [] });
    expect(announcedStep(waiting)).toBe(0);
  });

  it("are those that an attempt began from while it has announced none", () => {
    const resumed = stand({ attempt: 2, resumedFromStep: 20, announcedStep: null, storedSteps: 27 });
    expect(chooseCheckpoints(resumed, [10, 20, 30])).toEqual({ kept: [10, 20], missing: [] });
    expect(chooseCheckpoints(resumed, [10])).toEqual({ kept: [10], missing: [20] });
  });

  it("must have one whose steps are all stored, where an announcement came before its steps", () => {
    const early = stand({ announcedStep: 40, storedSteps: 38 });
    expect(chooseCheckpoints(early, [30, 40])).toEqual({ kept: [30, 40], missing: [] });
    expect(chooseCheckpoints(early, [40])).toEqual({ kept: [40], missing: [30] });
    // Its first: it begins anew.
    expect(chooseCheckpoints(stand({ announcedStep: 10, storedSteps: 8 }), [10]).missing).toEqual([]);
    // Where it was resumed from is no multiple.
    const resumed = stand({ resumedFromStep: 17, announcedStep: 20, storedSteps: 18 });
    expect(chooseCheckpoints(resumed, [20]).missing).toEqual([17]);
  });

  it("need no older one of a job that has ended", () => {
    const ended = stand({ state: "succeeded", announcedStep: 40, storedSteps: 0 });
    expect(chooseCheckpoints(ended, [40]).missing).toEqual([]);
  });
});

describe("a checkpoint that is missing", () => {
  const look = (missing: Missing, over: Partial<JobStand>, steps: number[]) =>
    missing.look([{ stand: stand(over), missing: steps }]);

  it("was lost before, where nobody works on the job", () => {
    expect(look(new Missing(), { state: "failed" }, [30])).toEqual({
      lost: [{ jobId: "job", step: 30 }],
      open: [],
    });
  });

  it("may have given way to a newer one, where somebody does, until three snapshots know of no newer", () => {
    const missing = new Missing();
    for (const again of [1, 2])
      expect([again, look(missing, {}, [30]).open]).toEqual([again, [{ jobId: "job", step: 30 }]]);
    expect(look(missing, {}, [30])).toEqual({ lost: [{ jobId: "job", step: 30 }], open: [] });
  });

  it("counts anew where a snapshot between has found it, or knows of another", () => {
    const missing = new Missing();
    look(missing, {}, [30]);
    look(missing, {}, []);
    look(missing, {}, [30]);
    expect(look(missing, {}, [40]).open).toHaveLength(1);
    expect(look(missing, {}, [30]).open).toHaveLength(1);
  });
});
