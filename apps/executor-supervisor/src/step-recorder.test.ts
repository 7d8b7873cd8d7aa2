import { expect, it } from "vitest";
import type { StepMetric } from "@internevo/domain";
import { StepRecorder } from "./step-recorder.ts";

const metric = (step: number) => ({ step }) as StepMetric;

it("writes at once, gathers what comes meanwhile, and keeps the order", async () => {
  const batches: number[][] = [];
  let release: (() => void) | undefined;
  const recorder = new StepRecorder<StepMetric>({
    write: async (metrics) => {
      batches.push(metrics.map((each) => each.step));
      if (batches.length === 1) await new Promise<void>((resolve) => (release = resolve));
    },
    onFailure: () => {},
  });
  recorder.push(metric(1));
  recorder.push(metric(2));
  recorder.push(metric(3));
  expect(batches).toEqual([[1]]);
  release?.();
  await recorder.flush();
  expect(batches).toEqual([[1], [2, 3]]);
  recorder.push(metric(4));
  await recorder.flush();
  expect(batches.flat()).toEqual([1, 2, 3, 4]);
});

it("tells of a write that failed, and writes nothing after it", async () => {
  const failures: unknown[] = [];
  let writes = 0;
  const recorder = new StepRecorder({
    write: async () => {
      writes += 1;
      throw new Error("lost");
    },
    onFailure: (error) => failures.push(error),
  });
  recorder.push(metric(1));
  await expect(recorder.flush()).rejects.toThrow("lost");
  recorder.push(metric(2));
  await expect(recorder.flush()).rejects.toThrow("lost");
  expect([writes, failures.length]).toEqual([1, 1]);
});
