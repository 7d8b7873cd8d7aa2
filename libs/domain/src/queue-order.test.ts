import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { DEFAULT_QUEUE_SETTINGS, NO_USAGE, usageAt, usageWith } from "./fair-share.ts";
import { PRIORITIES } from "./priority.ts";
import {
  giveTurns,
  queueOrder,
  shareOf,
  type HostsWanted,
  type QueuedWork,
  type QueueStanding,
} from "./queue-order.ts";
import type { QuotaStanding } from "./quota.ts";

const HOUR = 3_600_000;
const NOW = 1000 * 24 * HOUR;
const PROJECTS = ["a", "b", "c", "d"];

const work = fc.record({
  project: fc.constantFrom(...PROJECTS, null),
  priority: fc.constantFrom(...PRIORITIES, "scheduled" as const),
  // Few instants, so that many are equal.
  submittedHoursAgo: fc.integer({ min: 0, max: 12 }).map((days) => days * 20),
  waitedShare: fc.double({ min: 0, max: 1, noNaN: true }),
});
const queued = fc
  .array(work, { maxLength: 30 })
  .map((list) =>
    list.map(({ project, priority, submittedHoursAgo, waitedShare }, index): QueuedWork => ({
      owner: `job:${index}`,
      project,
      priority,
      submittedAtMs: NOW - submittedHoursAgo * HOUR,
      waitingSinceMs: NOW - Math.round(submittedHoursAgo * waitedShare) * HOUR,
    })),
  );
const numbers = (min: number) =>
  fc
    .tuple(...PROJECTS.map(() => fc.oneof(fc.constant(min), fc.double({ min, max: 1e5, noNaN: true }))))
    .map((values) => new Map(PROJECTS.map((name, index) => [name, values[index] as number])));
const standing = fc
  .record({ usages: numbers(0), weights: numbers(0.01) })
  .map((drawn): QueueStanding => ({ ...drawn, nowMs: NOW, settings: DEFAULT_QUEUE_SETTINGS }));

const places = (list: readonly QueuedWork[], by: QueueStanding) =>
  new Map(queueOrder(list, by).map(({ owner }, index) => [owner, index]));
const waitedHours = ({ waitingSinceMs }: QueuedWork): number => (NOW - waitingSinceMs) / HOUR;

describe("the order of the queue", () => {
  it("is total, and the same whatever order the work is given in", () => {
    fc.assert(
      fc.property(queued, standing, fc.infiniteStream(fc.nat()), (list, by, seeds) => {
        const ordered = queueOrder(list, by);
        expect([...ordered].sort((a, b) => (a.owner < b.owner ? -1 : 1))).toEqual(
          [...list].sort((a, b) => (a.owner < b.owner ? -1 : 1)),
        );
        const keys = new Map(list.map(({ owner }) => [owner, seeds.next().value as number]));
        const shuffled = [...list].sort((a, b) => (keys.get(a.owner) ?? 0) - (keys.get(b.owner) ?? 0));
        expect(queueOrder(shuffled, by)).toEqual(ordered);
        // What one goes before does not depend on who else waits.
        const half = list.filter((_, index) => index % 2 === 0);
        const kept = new Set(half.map(({ owner }) => owner));
        expect(queueOrder(half, by)).toEqual(ordered.filter(({ owner }) => kept.has(owner)));
      }),
    );
  });

  it("never puts work later when its project has used less", () => {
    fc.assert(
      fc.property(
        queued,
        standing,
        fc.constantFrom(...PROJECTS),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (list, by, project, factor) => {
          const less = new Map(by.usages).set(project, factor * (by.usages.get(project) ?? 0));
          const [before, after] = [places(list, by), places(list, { ...by, usages: less })];
          for (const one of list.filter((each) => each.project === project))
            for (const other of list.filter((each) => each.project !== project)) {
              const wasAhead = (before.get(one.owner) ?? 0) < (before.get(other.owner) ?? 0);
              if (wasAhead) expect(after.get(one.owner)).toBeLessThan(after.get(other.owner) ?? 0);
            }
        },
      ),
    );
  });

  it("is by submission where priority, wait and share are equal", () => {
    fc.assert(
      fc.property(queued, standing, (list, by) => {
        const alike = list.map((each) => ({ ...each, priority: "normal" as const, waitingSinceMs: NOW }));
        const equal = { ...by, usages: new Map(), weights: new Map() };
        const submitted = queueOrder(alike, equal).map(({ submittedAtMs }) => submittedAtMs);
        expect(submitted).toEqual([...submitted].sort((a, b) => a - b));
      }),
    );
  });

  it("goes by priority before all, and by share before submission, of who waits less than a day", () => {
    fc.assert(
      fc.property(queued, standing, (list, by) => {
        const at = places(list, by);
        const fresh = list.filter((each) => waitedHours(each) < 24 && each.priority !== "scheduled");
        for (const one of fresh)
          for (const other of fresh) {
            const [first, second] = [at.get(one.owner) ?? 0, at.get(other.owner) ?? 0];
            const levels = [one, other].map(({ priority }) => PRIORITIES.indexOf(priority as "low"));
            const [a, b] = levels as [number, number];
            if (a > b) expect(first).toBeLessThan(second);
            else if (a === b && shareOf(one.project, by) < shareOf(other.project, by))
              expect(first).toBeLessThan(second);
          }
      }),
    );
  });

  it("lets nobody pass who has waited for the queue's patience", () => {
    fc.assert(
      fc.property(queued, standing, (list, by) => {
        const at = places(list, by);
        const overdue = list.filter((each) => waitedHours(each) >= by.settings.patienceHours);
        for (const one of overdue)
          for (const other of list)
            if (other.waitingSinceMs > one.waitingSinceMs)
              expect(at.get(one.owner)).toBeLessThan(at.get(other.owner) ?? 0);
      }),
    );
  });

  it("gives twice the weight the place of half the usage", () => {
    const by: QueueStanding = {
      usages: new Map([
        ["a", 100],
        ["b", 150],
      ]),
      weights: new Map([["b", 2]]),
      nowMs: NOW,
      settings: DEFAULT_QUEUE_SETTINGS,
    };
    const of = (owner: string, project: string, hour: number): QueuedWork => ({
      owner,
      project,
      priority: "normal",
      submittedAtMs: NOW + hour * HOUR,
      waitingSinceMs: NOW,
    });
    const list = [of("1", "a", -2), of("2", "b", -1), of("3", "c", 0)];
    expect(queueOrder(list, by).map(({ owner }) => owner)).toEqual(["3", "2", "1"]);
  });

  it("raises what waits by one priority a day, and scheduled work after an hour", () => {
    const by = { usages: new Map(), weights: new Map(), nowMs: NOW, settings: DEFAULT_QUEUE_SETTINGS };
    const of = (priority: QueuedWork["priority"], waited: number): QueuedWork => ({
      owner: `${priority} ${waited}`,
      project: "a",
      priority,
      submittedAtMs: NOW - waited * HOUR,
      waitingSinceMs: NOW - waited * HOUR,
    });
    const list = [
      of("high", 0),
      of("normal", 23),
      of("normal", 24),
      of("low", 48),
      of("low", 47),
      of("scheduled", 0.9),
      of("scheduled", 1.1),
      of("low", 0),
    ];
    expect(queueOrder(list, by).map(({ owner }) => owner)).toEqual([
      "low 48",
      "normal 24",
      "high 0",
      "low 47",
      "normal 23",
      "scheduled 1.1",
      "scheduled 0.9",
      "low 0",
    ]);
  });
});

describe("decayed usage", () => {
  it("counts half after a half-life, and what is held all the while up to half-life ÷ ln 2", () => {
    const hold = { gpus: 4, beganAtMs: 0, endedAtMs: HOUR };
    const after = usageWith(NO_USAGE, hold, HOUR, 1e5);
    expect(after.gpuHours).toBeCloseTo(4, 3);
    expect(usageAt(after, 11 * HOUR, 10).gpuHours).toBeCloseTo(after.gpuHours / 2, 9);
    const long = usageWith(NO_USAGE, { gpus: 1, beganAtMs: 0, endedAtMs: null }, 1e4 * HOUR, 10);
    expect(long.gpuHours).toBeCloseTo(10 / Math.LN2, 9);
  });

  it("is the same whether a hold is counted at its end or in parts", () => {
    fc.assert(
      fc.property(fc.nat(1000), fc.nat(1000), fc.integer({ min: 1, max: 500 }), (first, second, halfLife) => {
        const [middle, end] = [first * HOUR, (first + second) * HOUR];
        const whole = usageWith(NO_USAGE, { gpus: 8, beganAtMs: 0, endedAtMs: end }, end, halfLife);
        const half = usageWith(NO_USAGE, { gpus: 8, beganAtMs: 0, endedAtMs: middle }, middle, halfLife);
        const parts = usageWith(half, { gpus: 8, beganAtMs: middle, endedAtMs: end }, end, halfLife);
        expect(parts.gpuHours).toBeCloseTo(whole.gpuHours, 6);
      }),
    );
  });
});

const quota = (over: Partial<QuotaStanding>): QuotaStanding => ({
  name: "a",
  maxGpus: null,
  gpusInUse: 0,
  gpuHoursPerMonth: null,
  gpuHoursThisMonth: 0,
  ...over,
});
const wants = (owner: string, hosts: string[], gpus = 2, project = "a"): HostsWanted => ({
  owner,
  project,
  priority: "normal",
  submittedAtMs: 0,
  waitingSinceMs: 0,
  hosts,
  gpus,
});
const told = (turns: ReturnType<typeof giveTurns>) => turns.map(({ goes, limit }) => limit ?? goes);

describe("turns", () => {
  it("keep free hosts for who is earlier and waits for others too", () => {
    const turns = giveTurns(
      [wants("wide", ["x", "y"]), wants("narrow", ["y"]), wants("apart", ["z"])],
      new Set(["x"]),
      new Map(),
    );
    expect(told(turns)).toEqual([false, false, true]);
  });

  it("keep GPUs of a quota for earlier work that waits for its hosts", () => {
    const quotas = new Map([["a", quota({ maxGpus: 4 })]]);
    const turns = giveTurns(
      [wants("wide", ["x"], 4), wants("small", ["y"]), wants("other", ["y"], 2, "b")],
      new Set(["x"]),
      quotas,
    );
    expect(told(turns)).toEqual([false, "earlier work of project a waits for its GPUs", true]);
  });

  it("count what is called at once", () => {
    const quotas = new Map([["a", quota({ maxGpus: 4, gpusInUse: 1 })]]);
    const turns = giveTurns([wants("1", ["x"]), wants("2", ["y"])], new Set(), quotas);
    expect(told(turns)).toEqual([true, "project a uses 3 of 4 GPUs, and this needs 2"]);
  });

  it("never give a host twice, and go to whoever is first where nothing is taken", () => {
    const hosts = ["u", "v", "w", "x", "y"];
    const wanted = fc.array(fc.subarray(hosts, { minLength: 1 }), { minLength: 1, maxLength: 12 });
    fc.assert(
      fc.property(wanted, fc.subarray(hosts), (lists, taken) => {
        const turns = giveTurns(
          lists.map((list, index) => wants(String(index), list)),
          new Set(taken),
          new Map(),
        );
        const given = turns.flatMap(({ waiter, goes }) => (goes ? waiter.hosts : []));
        expect(new Set([...given, ...taken]).size).toBe(given.length + taken.length);
        if (taken.length === 0) expect(turns[0]?.goes).toBe(true);
      }),
    );
  });
});
