import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { DEFAULT_QUEUE_SETTINGS, minutesBetween } from "./fair-share.ts";
import { PRIORITIES } from "./priority.ts";
import {
  giveTurns,
  isMoreUrgent,
  queueOrder,
  waitingAfter,
  whoGivesWay,
  type HostsSituation,
  type HostsWanted,
  type PreemptibleHold,
} from "./queue-order.ts";
import type { QuotaStanding } from "./quota.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const NOW = 1000 * 24 * HOUR;
const HOSTS = ["a", "b", "c", "d", "e", "f"];
const PROJECTS = ["one", "two"];
const LEAST = DEFAULT_QUEUE_SETTINGS.leastRunMinutes;

const priority = fc.constantFrom(...PRIORITIES, "scheduled" as const);
const project = fc.constantFrom(...PROJECTS, null);
/** Few values, so that many are at a limit: of a day's wait, of the patience. */
const waitedHours = fc.constantFrom(0, 1, 23, 24, 47, 48, 335, 336, 400);
const wanted = fc.record({
  project,
  priority,
  waitedHours,
  submittedHoursAgo: fc.constantFrom(400, 500),
  hosts: fc.subarray(HOSTS, { minLength: 1 }),
});
const holds = fc.record({
  project,
  priority,
  waitedHours,
  submittedHoursAgo: fc.constantFrom(400, 500, 600),
  heldMinutes: fc.constantFrom(0, LEAST - 1, LEAST, LEAST + 1, 1000),
  preemptible: fc.boolean(),
});
const quotas = fc
  .tuple(...PROJECTS.map(() => fc.option(fc.integer({ min: 1, max: 12 }))))
  .map((most) => new Map(PROJECTS.map((name, index) => [name, most[index] ?? null])));

interface Drawn extends HostsSituation<HostsWanted> {
  readonly holds: readonly (PreemptibleHold & { readonly preemptible: boolean })[];
}
const situation = fc
  .record({
    waiting: fc.array(wanted, { maxLength: 10 }),
    holds: fc.array(holds, { minLength: 1, maxLength: 4 }),
    /** Who has the host; beyond the holders: nobody. */
    holderOf: fc.tuple(...HOSTS.map(() => fc.nat({ max: 5 }))),
    usage: fc.array(fc.double({ min: 0, max: 100, noNaN: true }), { minLength: 2, maxLength: 2 }),
    quotas,
  })
  .map((drawn): Drawn => {
    const held = drawn.holds.map((hold, index) => {
      const hosts = HOSTS.filter((_, host) => drawn.holderOf[host] === index);
      return {
        owner: `job:holder-${index}`,
        project: hold.project,
        hosts,
        gpus: hosts.length,
        priority: hold.priority,
        submittedAtMs: NOW - hold.submittedHoursAgo * HOUR,
        beganAtMs: NOW - hold.heldMinutes * MINUTE,
        waitedMs: hold.waitedHours * HOUR,
        preemptible: hold.preemptible,
      };
    });
    const inUse = (name: string) =>
      held.filter((each) => each.project === name).reduce((sum, { gpus }) => sum + gpus, 0);
    const standings = PROJECTS.map((name): QuotaStanding => ({
      name,
      maxGpus: drawn.quotas.get(name) ?? null,
      gpusInUse: inUse(name),
      gpuHoursPerMonth: null,
      gpuHoursThisMonth: 0,
    }));
    return {
      waiting: drawn.waiting.map((each, index) => ({
        owner: `job:waiter-${index}`,
        project: each.project,
        priority: each.priority,
        submittedAtMs: NOW - each.submittedHoursAgo * HOUR,
        waitingSinceMs: NOW - each.waitedHours * HOUR,
        hosts: each.hosts,
        gpus: each.hosts.length,
      })),
      holds: held,
      taken: new Set(held.flatMap(({ hosts }) => hosts)),
      preemptible: held.filter(({ preemptible, hosts }) => preemptible && hosts.length > 0),
      quotas: new Map(standings.map((quota) => [quota.name, quota])),
      standing: {
        usages: new Map(PROJECTS.map((name, index) => [name, drawn.usage[index] ?? 0])),
        weights: new Map(),
        nowMs: NOW,
        settings: DEFAULT_QUEUE_SETTINGS,
      },
    };
  });

const turnsOf = ({ waiting, taken, quotas: standings, standing }: HostsSituation<HostsWanted>) =>
  giveTurns(queueOrder(waiting, standing), taken, standings);
/** As the queue is between two calls: whoever may go has gone. */
function called(drawn: Drawn): Drawn {
  const went = turnsOf(drawn).flatMap(({ waiter, goes }) => (goes ? [waiter] : []));
  const using = new Map(drawn.quotas);
  for (const { project: name, gpus } of went) {
    const quota = name === null ? undefined : using.get(name);
    if (quota) using.set(quota.name, { ...quota, gpusInUse: quota.gpusInUse + gpus });
  }
  return {
    ...drawn,
    waiting: drawn.waiting.filter((each) => !went.includes(each)),
    taken: new Set([...drawn.taken, ...went.flatMap(({ hosts }) => hosts)]),
    quotas: using,
  };
}
/** Who goes at once when these give way and wait. */
function goneAfter(from: Drawn, giving: readonly string[]): string[] {
  const given = from.preemptible.filter(({ owner }) => giving.includes(owner));
  const free = new Set(given.flatMap(({ hosts }) => hosts));
  const freed = (name: string) =>
    given.filter((each) => each.project === name).reduce((sum, { gpus }) => sum + gpus, 0);
  return turnsOf({
    ...from,
    waiting: [...from.waiting, ...given.map((hold) => waitingAfter(hold, NOW))],
    taken: new Set([...from.taken].filter((host) => !free.has(host))),
    quotas: new Map(
      [...from.quotas].map(([name, quota]) => [name, { ...quota, gpusInUse: quota.gpusInUse - freed(name) }]),
    ),
  }).flatMap(({ waiter, goes }) => (goes ? [waiter.owner] : []));
}

const SETTINGS = { numRuns: 3000 };
const whenAsked = (
  check: (from: Drawn, asked: ReadonlyMap<string, HostsWanted>) => void,
  settings = SETTINGS,
): void =>
  fc.assert(
    fc.property(situation, (drawn) => {
      const from = called(drawn);
      check(from, whoGivesWay(from));
    }),
    settings,
  );

/** Few situations ask for anything: so many that by chance none has too few. */
const MANY = { numRuns: 9000 };

describe("who gives way", () => {
  it("is preemptible, of lower priority than whom it gives way to, and has held its hosts for a while", () => {
    let count = 0;
    whenAsked((from, asked) => {
      for (const [owner, waiter] of asked) {
        const hold = from.holds.find((each) => each.owner === owner);
        expect(hold?.preemptible).toBe(true);
        if (!hold) continue;
        expect(isMoreUrgent(waiter.priority, hold.priority)).toBe(true);
        expect(minutesBetween(hold.beganAtMs, NOW)).toBeGreaterThanOrEqual(LEAST);
        count += 1;
      }
    }, MANY);
    expect(count, "the drawn situations ask some").toBeGreaterThan(100);
  });

  it("is everybody who holds a host of the waiter's, and nobody else", () => {
    whenAsked((from, asked) => {
      const askers = new Set(asked.values());
      const hostsOfAskers = new Set([...askers].flatMap(({ hosts }) => [...hosts]));
      const needed = from.holds.filter(({ hosts }) => hosts.some((host) => hostsOfAskers.has(host)));
      expect([...asked.keys()].sort()).toEqual(needed.map(({ owner }) => owner).sort());
    });
  });

  it("does so never in vain: whoever asks begins at once, and the hosts are not given back", () => {
    whenAsked((from, asked) => {
      if (asked.size === 0) return;
      const gone = goneAfter(from, [...asked.keys()]);
      for (const waiter of asked.values()) expect(gone).toContain(waiter.owner);
      for (const owner of asked.keys()) expect(gone).not.toContain(owner);
    });
  });

  it("is never one more than needed", () => {
    whenAsked((from, asked) => {
      for (const [owner, waiter] of asked) {
        const others = [...asked.keys()].filter((each) => each !== owner);
        expect(goneAfter(from, others)).not.toContain(waiter.owner);
      }
    });
  });

  it("is not asked for a job that waits for a quota, or behind another for one of its hosts", () => {
    whenAsked((from, asked) => {
      const turns = turnsOf(from);
      for (const waiter of new Set(asked.values())) {
        const place = turns.findIndex((turn) => turn.waiter.owner === waiter.owner);
        expect(turns[place]?.limit).toBeNull();
        for (const ahead of turns.slice(0, place))
          if (ahead.limit === null)
            expect(ahead.waiter.hosts.filter((host) => waiter.hosts.includes(host))).toEqual([]);
      }
    });
  });
});

describe("a job of high priority that waits", () => {
  const hold = (name: string, hosts: string[], over: Partial<PreemptibleHold> = {}): PreemptibleHold => ({
    owner: `job:${name}`,
    project: null,
    hosts,
    gpus: hosts.length,
    priority: "low",
    submittedAtMs: NOW - 10 * HOUR,
    beganAtMs: NOW - HOUR,
    waitedMs: 0,
    ...over,
  });
  const waits = (name: string, hosts: string[], over: Partial<HostsWanted> = {}): HostsWanted => ({
    owner: `job:${name}`,
    project: null,
    priority: "high",
    submittedAtMs: NOW - HOUR,
    waitingSinceMs: NOW - HOUR,
    hosts,
    gpus: hosts.length,
    ...over,
  });
  const asked = (waiting: HostsWanted[], preemptible: PreemptibleHold[], others: string[] = []) =>
    Object.fromEntries(
      [
        ...whoGivesWay({
          waiting,
          preemptible,
          taken: new Set([...others, ...preemptible.flatMap(({ hosts }) => hosts)]),
          quotas: new Map(),
          standing: { usages: new Map(), weights: new Map(), nowMs: NOW, settings: DEFAULT_QUEUE_SETTINGS },
        }),
      ].map(([owner, waiter]) => [owner, waiter.owner]),
    );

  it("asks all who hold its hosts, and leaves others alone", () => {
    const held = [hold("x", ["a"]), hold("y", ["b", "c"]), hold("z", ["d"])];
    expect(asked([waits("w", ["a", "b"])], held)).toEqual({ "job:x": "job:w", "job:y": "job:w" });
  });

  it("asks nobody while another host is held by work that does not give way", () => {
    expect(asked([waits("w", ["a", "b"])], [hold("x", ["a"])], ["b"])).toEqual({});
    expect(asked([waits("w", ["a", "b"])], [hold("x", ["a"]), hold("y", ["b"], { beganAtMs: NOW })])).toEqual(
      {},
    );
  });

  it("asks nobody of its own priority", () => {
    expect(asked([waits("w", ["a"])], [hold("x", ["a"], { priority: "high" })])).toEqual({});
    expect(asked([waits("w", ["a"], { priority: "normal" })], [hold("x", ["a"])])).toEqual({
      "job:x": "job:w",
    });
  });

  it("asks nobody who would come before it: who has waited for two days, or for the patience", () => {
    const waited = (hours: number) =>
      asked([waits("w", ["a"])], [hold("x", ["a"], { waitedMs: hours * HOUR })]);
    expect(waited(47)).toEqual({ "job:x": "job:w" });
    expect(waited(48)).toEqual({});
    expect(waited(336)).toEqual({});
  });

  it("asks nobody while an earlier one waits for one of its hosts", () => {
    const overdue = waits("old", ["a", "b"], { priority: "low", waitingSinceMs: NOW - 400 * HOUR });
    expect(asked([waits("w", ["a"]), overdue], [hold("x", ["a"])], ["b"])).toEqual({});
  });
});
