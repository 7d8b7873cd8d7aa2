import {
  DEFAULT_QUEUE_SETTINGS,
  giveTurns,
  NO_USAGE,
  PRIORITIES,
  quantile,
  queueOrder,
  usageWith,
  type DecayedUsage,
  type HostsWanted,
  type Priority,
  type QueueSettings,
} from "@internevo/domain";
import { drawnByWeight, drawnHosts, drawnNormal, drawnOf, randomBy } from "./drawn.ts";

const HOUR_MS = 3_600_000;

export interface SimulationOptions {
  readonly jobs: number;
  readonly projects: number;
  readonly clusters: number;
  readonly hostsOfACluster: number;
  readonly gpusOfAHost: number;
  readonly days: number;
  /** GPU-hours that jobs ask for, over those that there are in the days. */
  readonly load: number;
  readonly seed: number;
  readonly settings?: QueueSettings;
}

/** A job of the simulation. It runs for its hours once it has its hosts. */
export interface SimulatedJob {
  readonly owner: string;
  readonly project: string;
  readonly priority: Priority;
  readonly submittedAtMs: number;
  readonly hosts: readonly string[];
  readonly gpus: number;
  readonly hours: number;
}

export interface SimulatedProject {
  readonly name: string;
  readonly weight: number;
  /** How much it asks for, over what others ask for: weights of a draw. */
  readonly demand: number;
}

export interface Drawn {
  readonly projects: readonly SimulatedProject[];
  readonly jobs: readonly SimulatedJob[];
}

const SHARES_OF_PRIORITIES: Readonly<Record<Priority, number>> = { low: 0.25, normal: 0.6, high: 0.15 };
/** Deviation of the logarithm of hours: most jobs are short, and a few last for days. */
const SPREAD_OF_HOURS = 1.2;
const MOST_HOURS = 168;
/** Most jobs name a whole cluster, some a description of its first or second half, or of a quarter. */
const PARTS = [1, 1, 1, 2, 2, 4];

/**
 * Projects whose demand falls as 1/√rank, in an order that has nothing to do with their weights, and their jobs.
 * A project submits most of its jobs in campaigns of a few days, as people do.
 */
export function drawJobs(options: SimulationOptions): Drawn {
  const random = randomBy(options.seed);
  const projects = Array.from({ length: options.projects }, (_, index) => ({
    name: `project-${index}`,
    weight: drawnOf([1, 1, 1, 2, 4], random),
    demand: 1 / Math.sqrt(1 + index),
  }));
  const campaigns = new Map(
    projects.map(({ name }) => [name, Array.from({ length: 4 }, () => random() * options.days)]),
  );
  const instantOf = (project: string): number => {
    const begin = drawnOf(campaigns.get(project) ?? [0], random);
    const day = random() < 0.6 ? begin + 5 * random() : options.days * random();
    return Math.floor(Math.min(day, options.days * (1 - Number.EPSILON)) * 24 * HOUR_MS);
  };
  const asked = Array.from({ length: options.jobs }, () => {
    const project = drawnByWeight(projects, ({ demand }) => demand, random).name;
    const hosts = drawnHosts(options.clusters, options.hostsOfACluster, PARTS, random);
    return {
      project,
      priority: drawnByWeight(PRIORITIES, (priority) => SHARES_OF_PRIORITIES[priority], random),
      submittedAtMs: instantOf(project),
      hosts,
      gpus: hosts.length * options.gpusOfAHost,
      hours: Math.exp(SPREAD_OF_HOURS * drawnNormal(random)),
    };
  });
  const capacity =
    options.clusters * options.hostsOfACluster * options.gpusOfAHost * options.days * 24 * options.load;
  const factor = capacity / asked.reduce((sum, { gpus, hours }) => sum + gpus * hours, 0);
  const jobs = asked
    .toSorted((a, b) => a.submittedAtMs - b.submittedAtMs)
    .map((job, index) => ({
      ...job,
      owner: `job:${String(index).padStart(8, "0")}`,
      hours: Math.min(MOST_HOURS, job.hours * factor),
    }));
  return { projects, jobs };
}

/** `fair-share`: the product's order. `submission`: first come, first served, whatever priority and project. */
export const ORDERS = ["fair-share", "submission"] as const;
export type Order = (typeof ORDERS)[number];

interface Waiting extends HostsWanted {
  readonly job: SimulatedJob;
}

/** A job that has begun. */
interface Begun {
  readonly job: SimulatedJob;
  readonly beganAtMs: number;
  readonly endsAtMs: number;
}

/** Of a project in a week: GPU-hours that it got, and hours in which one of its jobs waited. */
interface ProjectWeek {
  gpuHours: number;
  backloggedHours: number;
}
const WEEK_HOURS = 168;
/** A project whose jobs waited for so much of a week could have used more all the time. */
const BACKLOGGED_SHARE = 0.9;

/** The clock of one simulation: what runs, what waits, what was used. */
class Simulation {
  readonly #drawn: Drawn;
  readonly #order: Order;
  readonly #settings: QueueSettings;
  readonly #weights: ReadonlyMap<string, number>;
  readonly #usages = new Map<string, DecayedUsage>();
  readonly begun: Begun[] = [];
  /** By project, of every week since the start. */
  readonly weeks: Map<string, ProjectWeek>[] = [];
  /** Jobs that began though another had waited for the queue's patience, and since before, for one of their hosts. */
  passedOverdue = 0;
  #waiting: Waiting[] = [];
  #running: Begun[] = [];
  #nowMs = 0;

  constructor(drawn: Drawn, order: Order, settings: QueueSettings) {
    this.#drawn = drawn;
    this.#order = order;
    this.#settings = settings;
    this.#weights = new Map(drawn.projects.map(({ name, weight }) => [name, weight]));
  }

  run(): void {
    let next = 0;
    const { jobs } = this.#drawn;
    for (;;) {
      const arrival = jobs[next]?.submittedAtMs ?? Number.POSITIVE_INFINITY;
      const end = this.#running.reduce(
        (least, { endsAtMs }) => Math.min(least, endsAtMs),
        Number.POSITIVE_INFINITY,
      );
      const instant = Math.min(arrival, end);
      if (instant === Number.POSITIVE_INFINITY) return;
      this.#advance(instant);
      this.#end();
      for (let job = jobs[next]; job && job.submittedAtMs <= instant; job = jobs[(next += 1)])
        this.#waiting.push({ ...job, waitingSinceMs: instant, job });
      this.#call();
    }
  }

  /** Until the next event everything is as it is: what projects get, and whether they wait, is summed. */
  #advance(instantMs: number): void {
    const waits = new Set(this.#waiting.map(({ job }) => job.project));
    while (this.#nowMs < instantMs) {
      const week = Math.floor(this.#nowMs / HOUR_MS / WEEK_HOURS);
      const untilMs = Math.min(instantMs, (week + 1) * WEEK_HOURS * HOUR_MS);
      const hours = (untilMs - this.#nowMs) / HOUR_MS;
      for (const { job } of this.#running) this.#weekOf(week, job.project).gpuHours += hours * job.gpus;
      for (const project of waits) this.#weekOf(week, project).backloggedHours += hours;
      this.#nowMs = untilMs;
    }
  }

  #weekOf(week: number, project: string): ProjectWeek {
    const projects = (this.weeks[week] ??= new Map<string, ProjectWeek>());
    const found = projects.get(project) ?? { gpuHours: 0, backloggedHours: 0 };
    projects.set(project, found);
    return found;
  }

  #end(): void {
    const [ended, running] = [
      this.#running.filter(({ endsAtMs }) => endsAtMs <= this.#nowMs),
      this.#running.filter(({ endsAtMs }) => endsAtMs > this.#nowMs),
    ];
    this.#running = running;
    for (const { job, beganAtMs, endsAtMs } of ended)
      this.#usages.set(
        job.project,
        usageWith(
          this.#usages.get(job.project) ?? NO_USAGE,
          { gpus: job.gpus, beganAtMs, endedAtMs: endsAtMs },
          this.#nowMs,
          this.#settings.halfLifeHours,
        ),
      );
  }

  #ordered(): Waiting[] {
    if (this.#order === "submission") return this.#waiting.toSorted((a, b) => (a.owner < b.owner ? -1 : 1));
    const usages = new Map(this.#usages);
    for (const { job, beganAtMs } of this.#running)
      usages.set(
        job.project,
        usageWith(
          usages.get(job.project) ?? NO_USAGE,
          { gpus: job.gpus, beganAtMs, endedAtMs: null },
          this.#nowMs,
          this.#settings.halfLifeHours,
        ),
      );
    for (const [project, usage] of usages)
      usages.set(
        project,
        usageWith(
          usage,
          { gpus: 0, beganAtMs: this.#nowMs, endedAtMs: null },
          this.#nowMs,
          this.#settings.halfLifeHours,
        ),
      );
    return queueOrder(this.#waiting, {
      usages: new Map([...usages].map(([project, { gpuHours }]) => [project, gpuHours])),
      weights: this.#weights,
      nowMs: this.#nowMs,
      settings: this.#settings,
    });
  }

  #call(): void {
    const taken = new Set(this.#running.flatMap(({ job }) => job.hosts));
    // Most events let nobody begin: the order is asked for where somebody has all of its hosts free.
    if (!this.#waiting.some(({ hosts }) => !hosts.some((host) => taken.has(host)))) return;
    const turns = giveTurns(this.#ordered(), taken, new Map());
    const called = turns.flatMap(({ waiter, goes }) => (goes ? [waiter] : []));
    if (called.length === 0) return;
    const gone = new Set(called);
    this.#waiting = this.#waiting.filter((waiting) => !gone.has(waiting));
    this.#countPassed(called);
    for (const { job } of called) {
      const endsAtMs = this.#nowMs + Math.max(1, Math.round(job.hours * HOUR_MS));
      const begun = { job, beganAtMs: this.#nowMs, endsAtMs };
      this.#running.push(begun);
      this.begun.push(begun);
    }
  }

  #countPassed(called: readonly Waiting[]): void {
    const overdueMs = this.#nowMs - this.#settings.patienceHours * HOUR_MS;
    const overdue = this.#waiting.filter(({ waitingSinceMs }) => waitingSinceMs <= overdueMs);
    for (const { hosts, waitingSinceMs } of called)
      if (
        overdue.some(
          (other) =>
            other.waitingSinceMs < waitingSinceMs && other.hosts.some((host) => hosts.includes(host)),
        )
      )
        this.passedOverdue += 1;
  }
}

/** Jain's index of fairness: 1 where all are equal, 1/n where one has everything. */
export function jainIndex(values: readonly number[]): number {
  const sum = values.reduce((total, value) => total + value, 0);
  const squares = values.reduce((total, value) => total + value * value, 0);
  return squares === 0 ? 1 : (sum * sum) / (values.length * squares);
}

export interface WaitingHours {
  readonly jobs: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly most: number;
}
function waitingHours(begun: readonly Begun[]): WaitingHours {
  const hours = begun.map(({ job, beganAtMs }) => (beganAtMs - job.submittedAtMs) / HOUR_MS);
  return {
    jobs: hours.length,
    p50: quantile(hours, 0.5),
    p90: quantile(hours, 0.9),
    p99: quantile(hours, 0.99),
    most: Math.max(...hours),
  };
}

export interface SimulationResult {
  readonly order: Order;
  /** GPU-hours used in the days, over those that there are. */
  readonly utilisation: number;
  readonly waitingHours: WaitingHours;
  readonly waitingHoursByPriority: Readonly<Partial<Record<Priority, WaitingHours>>>;
  readonly waitingHoursOfWidest: WaitingHours;
  /**
   * Jain's index of GPU time over weight, among the projects whose jobs waited for nearly all of a week: the
   * mean of the weeks, each counted by its projects.
   */
  readonly fairness: number;
  /** Such weeks of a project. */
  readonly backloggedWeeks: number;
  /** The median, over projects, of the mean wait of their jobs, of those that ask for the least and the most. */
  readonly meanWaitHours: { readonly smallProjects: number; readonly largeProjects: number };
  readonly neverStarted: number;
  readonly passedOverdue: number;
  /** Until the last job had ended. */
  readonly days: number;
}

const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

/** Runs all jobs to their end under an order. The same options give the same result, to the last digit. */
export function simulateQueue(drawn: Drawn, order: Order, options: SimulationOptions): SimulationResult {
  const simulation = new Simulation(drawn, order, options.settings ?? DEFAULT_QUEUE_SETTINGS);
  simulation.run();
  const { begun } = simulation;
  const spanMs = options.days * 24 * HOUR_MS;
  const capacity = options.clusters * options.hostsOfACluster * options.gpusOfAHost * options.days * 24;
  const used = begun.reduce(
    (sum, { job, beganAtMs, endsAtMs }) =>
      sum + (job.gpus * Math.max(0, Math.min(endsAtMs, spanMs) - beganAtMs)) / HOUR_MS,
    0,
  );
  const rates = simulation.weeks.slice(0, Math.floor(options.days / 7)).map((week) =>
    drawn.projects.flatMap(({ name, weight }) => {
      const { gpuHours = 0, backloggedHours = 0 } = week.get(name) ?? {};
      return backloggedHours >= BACKLOGGED_SHARE * WEEK_HOURS ? [gpuHours / weight] : [];
    }),
  );
  const backloggedWeeks = rates.reduce((sum, { length }) => sum + length, 0);
  const widest = Math.max(...drawn.jobs.map(({ hosts }) => hosts.length));
  const meanWaits = drawn.projects.map(({ name }) =>
    mean(
      begun.flatMap(({ job, beganAtMs }) =>
        job.project === name ? [(beganAtMs - job.submittedAtMs) / HOUR_MS] : [],
      ),
    ),
  );
  const tenth = Math.max(1, Math.round(drawn.projects.length / 10));
  return {
    order,
    utilisation: used / capacity,
    waitingHours: waitingHours(begun),
    waitingHoursByPriority: Object.fromEntries(
      PRIORITIES.flatMap((priority) => {
        const those = begun.filter(({ job }) => job.priority === priority);
        return those.length === 0 ? [] : [[priority, waitingHours(those)]];
      }),
    ),
    waitingHoursOfWidest: waitingHours(begun.filter(({ job }) => job.hosts.length === widest)),
    fairness:
      rates.reduce((sum, week) => sum + week.length * jainIndex(week), 0) / Math.max(1, backloggedWeeks),
    backloggedWeeks,
    meanWaitHours: {
      largeProjects: mean(meanWaits.slice(0, tenth)),
      smallProjects: mean(meanWaits.slice(tenth)),
    },
    neverStarted: drawn.jobs.length - begun.length,
    passedOverdue: simulation.passedOverdue,
    days: Math.max(...begun.map(({ endsAtMs }) => endsAtMs)) / HOUR_MS / 24,
  };
}
