import { describe, expect, it } from "vitest";
import type { Attempt, Failure } from "@internevo/domain";
import { attemptsWithoutProgress, endAfter } from "./restarts.ts";

const attempt = (state: Attempt["state"], resumedFromStep: number): Attempt => ({
  number: 1,
  state,
  resumedFromStep,
  lastStep: 0,
  failure: null,
  startedAt: "",
  endedAt: null,
});
const lost: Failure = { code: "rank-lost", message: "rank 1 ended", rank: 1 };

describe("restarts", () => {
  it("counts the newest attempts that began at the same checkpoint", () => {
    expect(attemptsWithoutProgress([])).toBe(0);
    expect(
      attemptsWithoutProgress([
        attempt("failed", 0),
        attempt("failed", 10),
        attempt("lost", 10),
        attempt("failed", 10),
      ]),
    ).toBe(3);
    expect(
      attemptsWithoutProgress([attempt("failed", 10), attempt("stopped", 10), attempt("failed", 10)]),
    ).toBe(1);
  });
  it("starts again while there is progress, and holds the job with the last reason when there is none", () => {
    expect(
      endAfter([attempt("failed", 0), attempt("failed", 10), attempt("failed", 20)], lost, 2),
    ).toBeUndefined();
    expect(endAfter([attempt("failed", 10), attempt("failed", 10)], lost, 2)).toMatchObject({
      state: "held",
      failure: {
        code: "too-many-restarts",
        message: "2 attempts in a row ended without a newer checkpoint; the last: rank 1 ended",
        rank: 1,
        remedy: expect.stringContaining("let the job go on"),
      },
    });
  });
  it("fails a job for an error of the trainer's own, with its remedy", () => {
    const failure: Failure = {
      code: "internal",
      message: "the loss is not finite",
      remedy: "lower the rate",
    };
    expect(endAfter([attempt("failed", 10), attempt("failed", 10)], failure, 2)).toMatchObject({
      state: "failed",
      failure: { code: "too-many-restarts", remedy: "lower the rate" },
    });
  });
  it("repeats a step that is not finite once, and fails the job when it is not finite again", () => {
    const failure: Failure = {
      code: "not-finite",
      message: "the loss or the gradient of step 5 is not finite",
      remedy: "lower the rate",
    };
    const at = (lastStep: number, before: Failure = failure): Attempt => ({
      ...attempt("failed", 0),
      lastStep,
      failure: before,
    });
    expect(endAfter([at(4)], failure, 5)).toBeUndefined();
    expect(endAfter([at(4), at(4)], failure, 5)).toEqual({
      state: "failed",
      failure: {
        ...failure,
        message:
          "the loss or the gradient of step 5 is not finite; it was the same when the step was repeated, so it is not a fault of the hardware",
      },
    });
    // Another step, or another reason between them: the first may have been a flipped bit.
    expect(endAfter([at(4), at(9)], failure, 5)).toBeUndefined();
    expect(endAfter([at(4), at(4, lost), at(4)], failure, 5)).toBeUndefined();
    expect(endAfter([at(4), at(9)], failure, 2)).toMatchObject({ state: "failed" });
  });
  it("never starts again what cannot succeed", () => {
    for (const code of ["out-of-memory", "data-invalid", "plan-unsupported", "checkpoint-invalid"] as const)
      expect(endAfter([attempt("failed", 0)], { code, message: "x" }, 100)).toMatchObject({
        state: "failed",
        failure: { code },
      });
  });
});
