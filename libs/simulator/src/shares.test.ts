import { expect, it } from "vitest";
import { runLanes, type Task } from "./lanes.ts";
import { stageShares } from "./shares.ts";

const task = (lane: Task["lane"], seconds: number, after: number[] = [], more: Partial<Task> = {}): Task => ({
  name: lane,
  stage: 0,
  lane,
  seconds,
  after,
  ...more,
});

it("says of every stage what it computes, what it stands still for, and what is hidden", () => {
  const spans = runLanes([
    task("communication", 1, [], { exposed: true }),
    task("compute", 4, [0]),
    task("communication", 3, [0]),
    task("communication", 2, [2]),
    task("compute", 1, [3]),
    task("compute", 7, [], { stage: 1 }),
  ]);
  expect(stageShares(spans)).toEqual([
    // The last gather ends one second after the computation that runs beside it.
    {
      stage: 0,
      computeSeconds: 5,
      exposedSeconds: 1,
      idleSeconds: 1,
      communicationSeconds: 6,
      hiddenSeconds: 4,
    },
    {
      stage: 1,
      computeSeconds: 7,
      exposedSeconds: 0,
      idleSeconds: 0,
      communicationSeconds: 0,
      hiddenSeconds: 0,
    },
  ]);
});
