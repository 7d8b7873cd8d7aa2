import fc from "fast-check";
import { expect, it } from "vitest";
import { hiddenCommunication, mostPlaced, type Job } from "./hidden.ts";
import type { LaneEvent } from "@internevo/domain";
import { betweenNorms } from "./timeline.ts";

/** Whole seconds matched to whole seconds of computing by augmenting paths: the most there can be. */
function mostMatched(jobs: readonly Job[]): number {
  const pieces = jobs.flatMap(({ release, deadline, seconds }) =>
    Array.from({ length: seconds }, () => ({ release, deadline })),
  );
  const by = new Map<number, number>();
  const augment = (piece: number, seen: Set<number>): boolean => {
    const { release, deadline } = pieces[piece]!;
    for (let second = release; second < deadline; second += 1) {
      if (seen.has(second)) continue;
      seen.add(second);
      const other = by.get(second);
      if (other === undefined || augment(other, seen)) {
        by.set(second, piece);
        return true;
      }
    }
    return false;
  };
  return pieces.filter((_, piece) => augment(piece, new Set())).length;
}

it("places as much as any order could", () => {
  const job = fc
    .record({ release: fc.nat(9), length: fc.nat(6), seconds: fc.nat(4) })
    .map(({ release, length, seconds }) => ({ release, deadline: release + length, seconds }));
  fc.assert(
    fc.property(fc.array(job, { maxLength: 8 }), (jobs) => {
      expect(mostPlaced(jobs)).toBeCloseTo(mostMatched(jobs), 9);
    }),
  );
});

const event = (
  lane: LaneEvent["lane"],
  name: string,
  unit: number,
  start: number,
  end: number,
): LaneEvent => ({ name, lane, unit, start, end });

it("counts what was waited for, and what nothing could have hidden", () => {
  // 1 s of update, 1 s, wait 2 s (gather of unit 0, 3 s long, begun at 1), 4 s, wait 1 s for the reduction of
  // unit 0 (2 s).
  const events = [
    event("compute", "optimizer", 0, 0, 1),
    event("communication", "all-gather parameters", 0, 1, 4),
    event("exposed communication", "wait for all-gather of parameters", 0, 2, 4),
    event("compute", "ready to be sent", 0, 7, 7),
    event("communication", "reduce-scatter gradients", 0, 7, 9),
    event("exposed communication", "wait for reductions of gradients", -1, 8, 9),
    event("exposed communication", "all-reduce loss and gradient norm", -1, 9, 9.5),
  ];
  expect(hiddenCommunication({ start: 0, end: 9.5, events }, 1)).toEqual({
    laneSeconds: 5,
    workingSeconds: 6.5,
    couldSeconds: 2,
    hiddenSeconds: 2,
    ownCommunicationSeconds: 0.5,
    waits: { "wait for all-gather of parameters: embedding": 2, "wait for reductions of gradients: all": 1 },
  });
});

it("says that less than possible was hidden when a job began late", () => {
  const events = [
    event("communication", "all-gather parameters", 1, 3, 5),
    event("exposed communication", "wait for all-gather of parameters", 1, 4, 5),
    event("exposed communication", "wait for reductions of gradients", -1, 6, 6),
  ];
  expect(hiddenCommunication({ start: 0, end: 6, events }, 1)).toMatchObject({
    couldSeconds: 2,
    hiddenSeconds: 1,
    waits: { "wait for all-gather of parameters: qkv": 1 },
  });
});

it("lets what was updated travel until its first use", () => {
  // 1 s of update, 1 s, wait 1 s for what was updated (3 s), 2 s; its gradient, ready 1 s before the norm,
  // takes that second.
  const events = [
    event("compute", "optimizer", 1, 0, 1),
    event("compute", "ready to be sent", 1, 1, 1),
    event("communication", "all-gather updated parameters", 1, 1, 3),
    event("exposed communication", "wait for updated parameters", 1, 2, 3),
    event("compute", "ready to be sent", 1, 4, 4),
    event("communication", "reduce-scatter gradients", 1, 4, 5),
    event("exposed communication", "wait for reductions of gradients", -1, 5, 5),
  ];
  expect(hiddenCommunication({ start: 0, end: 5, events }, 1)).toMatchObject({
    laneSeconds: 3,
    workingSeconds: 4,
    couldSeconds: 2,
    hiddenSeconds: 2,
    waits: { "wait for updated parameters: qkv": 1 },
  });
});

it("lets a gather begin with its unit's update, not with the step", () => {
  const events = [
    event("compute", "optimizer", 0, 0, 1),
    event("compute", "optimizer", 1, 1, 2),
    event("communication", "all-gather parameters", 1, 3, 5),
    event("exposed communication", "wait for all-gather of parameters", 1, 4, 5),
    event("exposed communication", "wait for reductions of gradients", -1, 6, 6),
  ];
  expect(hiddenCommunication({ start: 0, end: 6, events }, 1)).toMatchObject({
    couldSeconds: 2,
    hiddenSeconds: 1,
  });
});

it("lets tensor ranks move activations beside the product between their job and its wait", () => {
  // Gather of 2 s beside a product of 3 s; scatter of 4 s beside one of 3 s: 1 s is waited for.
  const events = [
    event("compute", "activations ready to be sent", 1, 1, 1),
    event("activation communication", "all-gather activations", 1, 1, 3),
    event("exposed communication", "wait for all-gather of activations", 1, 4, 4),
    event("compute", "activations ready to be sent", 1, 4, 4),
    event("activation communication", "reduce-scatter activations", 1, 4, 8),
    event("exposed communication", "wait for reduce-scatter of activations", 1, 7, 8),
    event("exposed communication", "wait for reductions of gradients", -1, 9, 9),
  ];
  expect(hiddenCommunication({ start: 0, end: 9, events }, 1)).toEqual({
    laneSeconds: 6,
    workingSeconds: 8,
    couldSeconds: 5,
    hiddenSeconds: 5,
    ownCommunicationSeconds: 0,
    waits: {
      "wait for all-gather of activations: qkv": 0,
      "wait for reduce-scatter of activations: qkv": 1,
      "wait for reductions of gradients: all": 0,
    },
  });
  expect(() => hiddenCommunication({ start: 0, end: 9, events: events.slice(1) }, 1)).toThrow(
    /lacks activations ready to be sent of unit 1/,
  );
});

it("cuts events where the norm is known", () => {
  const norm = (start: number): LaneEvent =>
    event("exposed communication", "all-reduce loss and gradient norm", -1, start, start + 1);
  const own = [
    event("compute", "optimizer", 0, 5, 6),
    event("communication", "all-gather updated parameters", 0, 6, 9),
  ];
  expect(betweenNorms([event("compute", "head and loss", 1, 0, 3), norm(3), ...own, norm(9)])).toEqual([
    { start: 4, end: 10, events: [...own, norm(9)] },
  ]);
});

it("refuses a timeline that does not say when a gradient was ready", () => {
  const events = [
    event("communication", "reduce-scatter gradients", 0, 1, 2),
    event("exposed communication", "wait for reductions of gradients", -1, 1, 2),
  ];
  expect(() => hiddenCommunication({ start: 0, end: 3, events }, 1)).toThrow(
    /nothing says when reduce-scatter/,
  );
});
