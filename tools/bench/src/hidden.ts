import type { LaneEvent } from "@internevo/domain";

/*
 * How much of the communication that could be hidden is hidden, from one rank's measured step: an update, and the passes after it.
 *
 * A job of the communication lane hides beside what the computing thread does without waiting for the lane: computing, and the
 * collectives that the thread calls itself. It may run between the moment when its data is there and the moment when somebody
 * needs its result, whatever the executor's order, buffers and delays: an all-gather of parameters from its unit's update to its first
 * use; a reduction from when its gradient is done to the norm of all gradients; an all-gather of updated parameters from its own
 * update to its first use in the passes that follow. One job runs at a time. What could be hidden is the most of the jobs' measured lengths that any
 * order could place there: earliest deadline first, which is optimal for jobs that may be interrupted.
 *
 * Tensor ranks have a lane of their own. Each of its jobs may run from when it was given to the lane to when it is waited for: beside
 * the product of one gradient.
 */

export interface HiddenCommunication {
  /** Of the jobs of the lanes. */
  readonly laneSeconds: number;
  /** Of the computing thread, not waiting for the lane. */
  readonly workingSeconds: number;
  /** Most that any order could place beside that. */
  readonly couldSeconds: number;
  /** Of the lane's time, what the computing thread did not wait for. */
  readonly hiddenSeconds: number;
  /** What the computing thread waited for, by what for and which unit. */
  readonly waits: Readonly<Record<string, number>>;
  /** Communication of the computing thread itself, which no lane carries; part of its working time. */
  readonly ownCommunicationSeconds: number;
}

export interface Job {
  /**
   * On the clock of the computing thread, which stands while it waits for the lane: seconds since the begin
   * of the step.
   */
  readonly release: number;
  readonly deadline: number;
  readonly seconds: number;
}

const ROUNDING = 1e-12;

/**
 * Most of the jobs' seconds that fit between their releases and deadlines, one at a time, interrupted at
 * will.
 */
export function mostPlaced(jobs: readonly Job[]): number {
  const cuts = [...new Set(jobs.flatMap(({ release, deadline }) => [release, deadline]))].sort(
    (a, b) => a - b,
  );
  const left = jobs.map(({ seconds }) => seconds);
  let placed = 0;
  cuts.slice(1).forEach((end, index) => {
    const begin = cuts[index] as number;
    let room = end - begin;
    const open = jobs
      .map((_, job) => job)
      .filter(
        (job) =>
          (jobs[job] as Job).release <= begin &&
          (jobs[job] as Job).deadline >= end &&
          (left[job] as number) > ROUNDING,
      );
    open.sort((a, b) => (jobs[a] as Job).deadline - (jobs[b] as Job).deadline);
    for (const job of open) {
      const part = Math.min(room, left[job] as number);
      left[job] = (left[job] as number) - part;
      placed += part;
      room -= part;
    }
  });
  return placed;
}

/** Names of a stage's units (native/MEMORY.md): embedding, four a layer, head. */
export function unitName(unit: number, layers: number): string {
  if (unit < 0) return "all";
  if (unit === 0) return "embedding";
  if (unit > 4 * layers) return "head";
  return ["qkv", "attention output", "gate and up", "down"][(unit - 1) % 4] as string;
}

const GATHER = "all-gather parameters";
const SHARE = "all-gather updated parameters";
const WAIT_GATHER = "wait for all-gather of parameters";
const WAIT_SHARED = "wait for updated parameters";
const OPTIMIZER = "optimizer";
const WAIT_ALL_REDUCED = "wait for reductions of gradients";
const READY = "ready to be sent";
const ACTIVATIONS_READY = "activations ready to be sent";

/** What the computing thread waits in for jobs of the lane. */
const isWait = (name: string): boolean =>
  name.startsWith("wait for all-gather") ||
  name.startsWith("wait for reduc") ||
  name.startsWith("wait for updated");

/**
 * The n-th job of a unit on the lane of tensor ranks was ready at the n-th event that says so, and the n-th
 * of a kind is waited for in the n-th wait of that.
 * @throws Error when events are missing that such a step has.
 */
function tensorJobs(
  events: readonly LaneEvent[],
  workedBy: (time: number) => number,
): { readonly jobs: Job[]; readonly seconds: number } {
  const lane = events.filter((event) => event.lane === "activation communication");
  const taken = new Map<string, number>();
  const next = (name: string, { unit }: LaneEvent): LaneEvent => {
    const key = `${name} ${unit}`;
    const index = taken.get(key) ?? 0;
    taken.set(key, index + 1);
    const found = events.filter((event) => event.name === name && event.unit === unit)[index];
    if (!found) throw new Error(`the timeline lacks ${name} of unit ${unit}`);
    return found;
  };
  const jobs = lane.map((event): Job => {
    const [collective] = event.name.split(" ");
    return {
      release: workedBy(next(ACTIVATIONS_READY, event).start),
      deadline: workedBy(next(`wait for ${collective} of activations`, event).start),
      seconds: event.end - event.start,
    };
  });
  return { jobs, seconds: jobs.reduce((sum, { seconds }) => sum + seconds, 0) };
}

/**
 * Analyses what is between two norms (betweenNorms) of a rank of one stage whose plan overlaps.
 * @throws Error when events are missing that such a step has.
 */
export function hiddenCommunication(
  step: { readonly start: number; readonly end: number; readonly events: readonly LaneEvent[] },
  layers: number,
): HiddenCommunication {
  const exposed = step.events.filter(({ lane }) => lane === "exposed communication");
  const lane = step.events.filter((event) => event.lane === "communication");
  const waiting = exposed.filter(({ name }) => isWait(name));
  const workedBy = (time: number): number =>
    time -
    step.start -
    waiting.reduce((sum, { start, end }) => sum + Math.max(0, Math.min(end, time) - start), 0);
  const whole = workedBy(step.end);
  const norm = exposed.find(({ name }) => name === WAIT_ALL_REDUCED);
  if (!norm) throw new Error("the timeline of a step that overlaps lacks its wait for reductions");
  const waitsFor = (name: string): LaneEvent[] => exposed.filter((event) => event.name === name);
  const gatherWaits = waitsFor(WAIT_GATHER);
  const sharedWaits = waitsFor(WAIT_SHARED);
  const ready = step.events.filter(({ name }) => name === READY);
  const shared = new Set(lane.filter(({ name }) => name === SHARE).map(({ unit }) => unit));
  const taken = new Map<string, number>();
  /**
   * The event that made a job of the lane ready: of those of its unit and kind the n-th for the n-th job. The
   * update comes first.
   */
  const readyFor = ({ unit, name }: LaneEvent): LaneEvent => {
    const update = name === SHARE;
    const all = ready.filter((event) => event.unit === unit);
    const own = update ? all.slice(0, 1) : all.slice(shared.has(unit) ? 1 : 0);
    const key = `${unit} ${update}`;
    const index = taken.get(key) ?? 0;
    taken.set(key, index + 1);
    const found = own[index];
    if (!found) throw new Error(`nothing says when ${name} of unit ${unit} was ready`);
    return found;
  };
  const gathers = lane.filter(({ name }) => name === GATHER);
  /**
   * Where a unit's gather is waited for: each once, in their order. Of what was shared: where the first
   * gather of it is.
   */
  const useOf = (event: LaneEvent): LaneEvent | undefined =>
    gatherWaits.filter(({ unit }) => unit === event.unit)[
      Math.max(0, gathers.filter(({ unit }) => unit === event.unit).indexOf(event))
    ];
  const jobs = lane.map((event): Job => {
    const seconds = event.end - event.start;
    if (event.name === GATHER || event.name === SHARE) {
      const use =
        (event.name === SHARE && sharedWaits.find(({ unit }) => unit === event.unit)) || useOf(event);
      if (!use) throw new Error(`nothing waited for ${event.name} of unit ${event.unit}`);
      const updated = step.events.find(({ name, unit }) => name === OPTIMIZER && unit === event.unit);
      const since = updated ? workedBy(updated.end) : 0;
      const release = event.name === SHARE ? workedBy(readyFor(event).start) : since;
      return { release, deadline: workedBy(use.start), seconds };
    }
    return { release: workedBy(readyFor(event).start), deadline: workedBy(norm.start), seconds };
  });
  const tensor = tensorJobs(step.events, workedBy);
  const laneSeconds = jobs.reduce((sum, { seconds }) => sum + seconds, 0) + tensor.seconds;
  const waits: Record<string, number> = {};
  for (const { name, unit, start, end } of waiting) {
    const key = `${name}: ${unitName(unit, layers)}`;
    waits[key] = (waits[key] ?? 0) + end - start;
  }
  const lengthOf = (list: readonly LaneEvent[]): number =>
    list.reduce((sum, { start, end }) => sum + end - start, 0);
  const waitedSeconds = lengthOf(waiting);
  return {
    laneSeconds,
    workingSeconds: whole,
    couldSeconds: mostPlaced(jobs) + mostPlaced(tensor.jobs),
    hiddenSeconds: Math.max(0, laneSeconds - waitedSeconds),
    waits,
    ownCommunicationSeconds: lengthOf(exposed) - waitedSeconds,
  };
}
