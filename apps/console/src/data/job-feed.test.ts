import type { JobDetail, JobStreamEvent } from "@internevo/contracts";
import type { StepMetric, Trial } from "@internevo/domain";
import { expect, it } from "vitest";
import { EMPTY_FEED, extendFeed, feedOf, lastMade, LOG_LINES, mergeSteps, withTrial } from "./job-feed.ts";

const step = (number: number, attempt: number, loss: number) =>
  ({ step: number, attempt, loss }) as StepMetric;
const event = (id: number, type: JobStreamEvent["type"], data: Record<string, unknown>): JobStreamEvent => ({
  id,
  jobId: "j",
  type,
  at: "2026-01-01T00:00:00.000Z",
  data,
});

it("counts a step once, by the latest attempt, in order", () => {
  const merged = mergeSteps(
    [step(1, 1, 5), step(2, 1, 4), step(3, 1, 3)],
    [step(2, 2, 4.5), step(4, 2, 2), step(2, 1, 9)],
  );
  expect(merged.map(({ step: number, loss }) => [number, loss])).toEqual([
    [1, 5],
    [2, 4.5],
    [3, 3],
    [4, 2],
  ]);
});

it("keeps the last lines of a long log, and the latest progress", () => {
  const lines = Array.from({ length: LOG_LINES + 5 }, (_, index) =>
    event(index, "log", { level: "info", source: "trainer", message: `line ${index}` }),
  );
  const feed = extendFeed(EMPTY_FEED, [
    ...lines,
    event(9e6, "progress", { stage: "profiling", message: "b", done: 2, total: 9 }),
  ]);
  expect(feed.log).toHaveLength(LOG_LINES);
  expect(feed.log[0]?.message).toBe("line 5");
  expect(feed.progress).toMatchObject({ stage: "profiling", done: 2, total: 9 });
});

it("goes on from what was stored, though the stream begins a little before", () => {
  const line = (id: number) => ({
    id,
    at: "2026-01-01T00:00:00.000Z",
    level: "info",
    source: "trainer",
    message: `line ${id}`,
  });
  const stored = feedOf({
    lastEventId: 3,
    progress: undefined,
    log: [line(2), line(5)],
    steps: [step(1, 1, 5), step(2, 1, 4)],
    validations: [],
  });
  const feed = extendFeed(stored, [
    event(4, "step", step(2, 1, 4)),
    event(5, "log", line(5)),
    event(6, "step", step(3, 1, 3)),
    event(7, "log", line(7)),
  ]);
  expect(feed.steps.map(({ step: number }) => number)).toEqual([1, 2, 3]);
  expect(feed.log.map(({ id }) => id)).toEqual([2, 5, 7]);
});

it("moves a trial forward by an event of the past, never back", () => {
  const trial = (state: Trial["state"]) => ({ id: "t", state, candidate: { rank: 1 } }) as Trial;
  const job = { trials: [trial("running")] } as JobDetail;
  expect(withTrial(job, trial("succeeded")).trials[0]?.state).toBe("succeeded");
  expect(withTrial(job, trial("pending"))).toBe(job);
  expect(withTrial({ trials: [trial("succeeded")] } as JobDetail, trial("running")).trials[0]?.state).toBe(
    "succeeded",
  );
});

it("is at the step that the newest attempt made, while steps behind it are of another", () => {
  const made = (attempt: number, ...steps: number[]) => steps.map((step) => ({ step, attempt }));
  expect(lastMade([])).toBeUndefined();
  expect(lastMade(made(1, 1, 2, 3))).toEqual({ step: 3, attempt: 1 });
  expect(lastMade(mergeSteps(made(1, 1, 2, 3, 4), made(2, 2)))).toEqual({ step: 2, attempt: 2 });
});
