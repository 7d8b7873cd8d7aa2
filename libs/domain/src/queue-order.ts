import { DEFAULT_WEIGHT, hoursBetween, minutesBetween, type QueueSettings } from "./fair-share.ts";
import { HOURS_TO_NEXT_PRIORITY, PRIORITIES, type Priority } from "./priority.ts";
import { gpusFault, hoursFault, sizeFault, type QuotaStanding } from "./quota.ts";

/*
 * The one home of the rule by which hosts are given out: who waits in which order, who may go now, and who has to stop for
 * whom. The product's queue and the simulation of it call these functions; nothing else decides.
 */

/** `scheduled`: measurements of workloads; they let the jobs of an hour go first. */
export type QueuePriority = Priority | "scheduled";

/** Levels of urgency, by which work of other priorities goes before. */
const LEVELS: Readonly<Record<QueuePriority, number>> = {
  scheduled: PRIORITIES.indexOf("low"),
  low: PRIORITIES.indexOf("low"),
  normal: PRIORITIES.indexOf("normal"),
  high: PRIORITIES.indexOf("high"),
};
/** Scheduled work counts as of normal priority after so many hours. */
const SCHEDULED_WAITS_HOURS = 1;

/** Whether work of one priority goes before that of another, however long either waits. */
export const isMoreUrgent = (one: QueuePriority, other: QueuePriority): boolean =>
  LEVELS[one] > LEVELS[other];

/** What waits for hosts. Instants are milliseconds since 1970. */
export interface QueuedWork {
  readonly owner: string;
  /** Null: of no project, as if of one that used nothing. */
  readonly project: string | null;
  readonly priority: QueuePriority;
  readonly submittedAtMs: number;
  /** Work that gave way waited before: that counts, as if it began so much earlier. */
  readonly waitingSinceMs: number;
}

/** What the order follows from, beside who waits. */
export interface QueueStanding {
  /** GPU-hours of each project, decayed to `nowMs`; a project that is missing used nothing. */
  readonly usages: ReadonlyMap<string, number>;
  /** A project that is missing has the default weight. */
  readonly weights: ReadonlyMap<string, number>;
  readonly nowMs: number;
  readonly settings: QueueSettings;
}

/** Decayed GPU-hours over weight: the less, the earlier. */
export const shareOf = (project: string | null, { usages, weights }: QueueStanding): number =>
  project === null ? 0 : (usages.get(project) ?? 0) / (weights.get(project) ?? DEFAULT_WEIGHT);

interface Rank<W> {
  readonly work: W;
  readonly isOverdue: boolean;
  readonly level: number;
  readonly share: number;
}

function rankOf<W extends QueuedWork>(work: W, standing: QueueStanding): Rank<W> {
  const waited = hoursBetween(work.waitingSinceMs, standing.nowMs);
  const headStart = work.priority === "scheduled" ? HOURS_TO_NEXT_PRIORITY - SCHEDULED_WAITS_HOURS : 0;
  const raised = Math.max(0, Math.floor((waited + headStart) / HOURS_TO_NEXT_PRIORITY));
  return {
    work,
    isOverdue: waited >= standing.settings.patienceHours,
    level: Math.min(LEVELS.high, LEVELS[work.priority] + raised),
    share: shareOf(work.project, standing),
  };
}

/** Owners differ: the order is total. */
const bySubmission = (a: QueuedWork, b: QueuedWork): number =>
  a.submittedAtMs - b.submittedAtMs || (a.owner < b.owner ? -1 : 1);

function compareRanks(a: Rank<QueuedWork>, b: Rank<QueuedWork>): number {
  if (a.isOverdue !== b.isOverdue) return a.isOverdue ? -1 : 1;
  // Whoever becomes overdue later comes behind: nobody passes any more.
  if (a.isOverdue) return a.work.waitingSinceMs - b.work.waitingSinceMs || bySubmission(a.work, b.work);
  return b.level - a.level || a.share - b.share || bySubmission(a.work, b.work);
}

/**
 * The order in which work gets hosts: by priority, then by the share that its project used, then by submission.
 * Who waits counts as of the next priority after a day, and goes before everybody when it waited for the
 * queue's patience, in the order in which that happened. So it is passed for so long at most.
 */
export const queueOrder = <W extends QueuedWork>(waiting: readonly W[], standing: QueueStanding): W[] =>
  waiting
    .map((work) => rankOf(work, standing))
    .sort(compareRanks)
    .map(({ work }) => work);

/** What waits, with what it waits for. */
export interface HostsWanted extends QueuedWork {
  /** All at once, or none. */
  readonly hosts: readonly string[];
  readonly gpus: number;
}

/** What a waiter is told: it may go, or what it waits for. */
export interface Turn<W> {
  readonly waiter: W;
  readonly goes: boolean;
  /** The quota that it waits for, in words; null where it waits for hosts alone. */
  readonly limit: string | null;
}

/** A project's quotas while turns are given. */
interface OpenStanding {
  readonly quota: QuotaStanding;
  /** By what has just been called. */
  calledGpus: number;
  /** Of earlier work, which waits for hosts alone: later work does not take them away. */
  awaitedGpus: number;
  /** Earlier work waits for GPUs of the quota itself. */
  isAwaited: boolean;
}

/** Why a project's quotas do not let the work begin; null where they do. */
function limitOf(standing: OpenStanding | undefined, gpus: number): string | null {
  if (!standing) return null;
  const { quota, calledGpus, awaitedGpus } = standing;
  const never = hoursFault(quota) ?? sizeFault(quota, gpus);
  if (never !== undefined) return never;
  const using = (more: number) =>
    gpusFault({ ...quota, gpusInUse: quota.gpusInUse + calledGpus + more }, gpus);
  const now = using(0);
  if (now === undefined && !standing.isAwaited && using(awaitedGpus) === undefined) return null;
  standing.isAwaited = true;
  return now ?? `earlier work of project ${quota.name} waits for its GPUs`;
}

/**
 * Who may go now. Nobody passes somebody earlier who waits for one of the same hosts: hosts that become free are
 * kept for it, so that a job of many hosts starts some time. Within a project nobody passes who waits for GPUs
 * of its quota, or takes those that earlier work needs once it has its hosts. Who waits for a quota keeps no
 * hosts from other projects meanwhile.
 * @param ordered as {@link queueOrder} has it.
 * @param taken hosts that somebody holds.
 * @param quotas of the projects that have some.
 */
export function giveTurns<W extends HostsWanted>(
  ordered: readonly W[],
  taken: ReadonlySet<string>,
  quotas: ReadonlyMap<string, QuotaStanding>,
): Turn<W>[] {
  const kept = new Set(taken);
  const standings = new Map<string, OpenStanding>();
  for (const [project, quota] of quotas)
    standings.set(project, { quota, calledGpus: 0, awaitedGpus: 0, isAwaited: false });
  return ordered.map((waiter) => {
    const standing = waiter.project === null ? undefined : standings.get(waiter.project);
    const limit = limitOf(standing, waiter.gpus);
    if (limit !== null) return { waiter, goes: false, limit };
    const goes = !waiter.hosts.some((host) => kept.has(host));
    for (const host of waiter.hosts) kept.add(host);
    if (standing && goes) standing.calledGpus += waiter.gpus;
    if (standing && !goes) standing.awaitedGpus += waiter.gpus;
    return { waiter, goes, limit };
  });
}

/** A job that holds hosts, and would give them up for a more urgent one. */
export interface PreemptibleHold {
  readonly owner: string;
  readonly project: string | null;
  readonly hosts: readonly string[];
  readonly gpus: number;
  readonly priority: QueuePriority;
  readonly submittedAtMs: number;
  readonly beganAtMs: number;
  /** How long it waited, in all its waits, before it began. */
  readonly waitedMs: number;
}

/** Who waits for hosts and who has them, between two turns: nobody who waits may go. */
export interface HostsSituation<W extends HostsWanted> {
  readonly waiting: readonly W[];
  /** Hosts that somebody holds. */
  readonly taken: ReadonlySet<string>;
  /** Of the holders those that may give way. */
  readonly preemptible: readonly PreemptibleHold[];
  /** Of the projects that have some. */
  readonly quotas: ReadonlyMap<string, QuotaStanding>;
  readonly standing: QueueStanding;
}

/** What a job waits as once it has given way. Time in which it held hosts is no waiting. */
export const waitingAfter = (hold: PreemptibleHold, nowMs: number): HostsWanted => ({
  ...hold,
  waitingSinceMs: nowMs - hold.waitedMs,
});

/**
 * Which holders a waiter needs to give way; undefined where one of them does not: it is no preemptible job, it
 * is as urgent as the waiter, or it has just begun.
 */
function neededOf(
  waiter: HostsWanted,
  { taken, standing }: HostsSituation<HostsWanted>,
  holderOf: ReadonlyMap<string, PreemptibleHold>,
): ReadonlySet<PreemptibleHold> | undefined {
  const needed = new Set<PreemptibleHold>();
  for (const host of waiter.hosts) {
    if (!taken.has(host)) continue;
    const hold = holderOf.get(host);
    const gives =
      hold !== undefined &&
      isMoreUrgent(waiter.priority, hold.priority) &&
      minutesBetween(hold.beganAtMs, standing.nowMs) >= standing.settings.leastRunMinutes;
    if (!gives) return undefined;
    needed.add(hold);
  }
  return needed;
}

/** Who may go once these have given way, and wait as well. */
function goesAfter(
  giving: ReadonlySet<PreemptibleHold>,
  situation: HostsSituation<HostsWanted>,
): Set<string> {
  const { waiting, taken, quotas, standing } = situation;
  const left = new Set(taken);
  const quotasAfter = new Map(quotas);
  for (const { hosts, project, gpus } of giving) {
    for (const host of hosts) left.delete(host);
    const quota = project === null ? undefined : quotasAfter.get(project);
    if (quota) quotasAfter.set(quota.name, { ...quota, gpusInUse: quota.gpusInUse - gpus });
  }
  const all = [...waiting, ...[...giving].map((hold) => waitingAfter(hold, standing.nowMs))];
  const turns = giveTurns(queueOrder(all, standing), left, quotasAfter);
  return new Set(turns.flatMap(({ waiter, goes }) => (goes ? [waiter.owner] : [])));
}

/**
 * Which holders give way, by owner, each with whom it gives way to. A job that waits asks all holders of its
 * hosts, or nobody: they are preemptible and of lower priority, have held their hosts for a while, and the job
 * begins when they have given way. Nobody gives way for a job that waits for a quota, or behind another for one
 * of its hosts. Who is asked, and still at work, stays asked only while that is so.
 */
export function whoGivesWay<W extends HostsWanted>(situation: HostsSituation<W>): ReadonlyMap<string, W> {
  const { waiting, taken, preemptible, quotas, standing } = situation;
  if (preemptible.length === 0) return new Map();
  const holderOf = new Map(preemptible.flatMap((hold) => hold.hosts.map((host) => [host, hold] as const)));
  const awaited = new Set<string>();
  let asking: { readonly waiter: W; readonly needed: ReadonlySet<PreemptibleHold> }[] = [];
  for (const { waiter, goes, limit } of giveTurns(queueOrder(waiting, standing), taken, quotas)) {
    if (limit !== null) continue;
    const isFirst = !waiter.hosts.some((host) => awaited.has(host));
    const needed = isFirst && !goes ? neededOf(waiter, situation, holderOf) : undefined;
    if (needed && needed.size > 0) asking.push({ waiter, needed });
    for (const host of waiter.hosts) awaited.add(host);
  }
  // Who gave way waits too, and frees a part of a quota: others might take what it gave up. Then it would be for
  // nothing. Usually the first look finds that all begin.
  for (;;) {
    const goes = goesAfter(new Set(asking.flatMap(({ needed }) => [...needed])), situation);
    const begins = asking.filter(({ waiter }) => goes.has(waiter.owner));
    if (begins.length === asking.length) break;
    asking = begins;
  }
  const asked = new Map<string, W>();
  for (const { waiter, needed } of asking)
    for (const { owner } of needed) if (!asked.has(owner)) asked.set(owner, waiter);
  return asked;
}
