import type { Failure } from "@internevo/domain";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { retryLostRanks, secondsBeforeRestart, tooManyLost } from "./retry-lost-ranks.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const lost: Failure = { code: "rank-lost", message: "rank 1 ended by signal 9", rank: 1 };

/** Attempts that end one after the other as is said: with a failure, or how far they came when they lost ranks. */
function attempts(ends: readonly (Failure | number | "done")[], limit: number, signal?: AbortSignal) {
  let at = 0;
  let measured = 0;
  const waits: number[] = [];
  const result = retryLostRanks({
    launch: async () => {
      const end = ends[at++];
      if (typeof end === "number") measured = end;
      return typeof end === "number" ? lost : end;
    },
    failureOf: (end) => (end === "done" ? undefined : end),
    limit,
    signal: signal ?? new AbortController().signal,
    progress: () => measured,
    onRetry: (_failure, seconds) => waits.push(seconds),
  });
  return { result, waits, tried: () => at };
}

it("goes on however often ranks are lost, while every attempt measures something", async () => {
  const { result, waits } = attempts([1, 2, 3, 4, 5, 6, "done"], 2);
  await vi.runAllTimersAsync();
  expect(await result).toBe("done");
  expect(waits).toEqual([1, 1, 1, 1, 1, 1]);
});

it("gives up after attempts in a row without progress, and waits longer before each", async () => {
  const { result, waits, tried } = attempts([3, 3, 3, 4, 4, 4, 4, "done"], 4);
  await vi.runAllTimersAsync();
  expect(await result).toBe(lost);
  expect([waits, tried()]).toEqual([[1, 2, 4, 1, 2, 4], 7]);
});

it("takes every other failure as the answer", async () => {
  const failure: Failure = { code: "out-of-memory", message: "too large" };
  const { result, tried } = attempts([failure, "done"], 4);
  expect([await result, tried()]).toEqual([failure, 1]);
});

it("starts nothing after it was told to end while it waited", async () => {
  const end = new AbortController();
  const { result, tried } = attempts([0, "done"], 4, end.signal);
  const ended = expect(result).rejects.toThrow("cancelled");
  await vi.advanceTimersByTimeAsync(500);
  end.abort(new Error("cancelled"));
  await ended;
  expect(tried()).toBe(1);
});

it("waits half a minute at most, and names the last failure and what to do", () => {
  expect([1, 2, 3, 5, 6, 100].map(secondsBeforeRestart)).toEqual([1, 2, 4, 16, 30, 30]);
  expect(tooManyLost(5, "a newer checkpoint", lost)).toEqual({
    code: "too-many-restarts",
    message: "5 attempts in a row ended without a newer checkpoint; the last: rank 1 ended by signal 9",
    remedy: "find what ends the ranks, and let the job go on: internevo resume, or its page in the console",
    rank: 1,
  });
});
