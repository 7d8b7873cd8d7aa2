import type { Slowdown } from "@internevo/cost-model";
import type { Link } from "./step-work.ts";

/**
 * What runs beside one another on a rank: kernels, collectives of parameters and gradients, messages between
 * stages, copies to the host and back, and tensor ranks' collectives of activations in the backward pass.
 */
export const LANES = ["compute", "communication", "pipeline", "host", "activations"] as const;
export type LaneName = (typeof LANES)[number];

/** Places of the lanes whose collectives run beside computation. */
const BESIDE = [LANES.indexOf("communication"), LANES.indexOf("activations")];

export interface Task {
  readonly name: string;
  /** The rank that stands for its pipeline stage: all ranks of a stage do the same at the same time. */
  readonly stage: number;
  readonly lane: LaneName;
  /** Alone; ≥ 0. */
  readonly seconds: number;
  /** Indices of tasks that must have ended. Tasks of one lane run in the order of the list as well. */
  readonly after: readonly number[];
  readonly layer?: number;
  readonly microBatch?: number;
  /** Communication that the computation waits in. */
  readonly exposed?: boolean;
  /** Computation that is attention, which a collective slows down otherwise than products. */
  readonly attention?: boolean;
  /** R of what computes beside this communication; 1 where it is left out. */
  readonly slowdown?: Slowdown;
  /** What communication goes through. */
  readonly link?: Link;
}

export interface Span {
  readonly task: Task;
  readonly startSeconds: number;
  readonly endSeconds: number;
}

interface Lane {
  readonly queue: number[];
  head: number;
  /** Work left of the task that runs, in seconds alone; undefined when none runs. */
  left: number | undefined;
  startSeconds: number;
}

/** How fast both go on while a collective runs beside the computing lane; 1: as alone. */
function rateOfBoth(computes: Task | undefined, communicates: Task | undefined): number {
  if (computes === undefined || communicates?.slowdown === undefined) return 1;
  // Two collectives at a time have half a link each, and nothing to do with one another on two links.
  if (computes.link !== undefined) return computes.link === communicates.link ? 1 / 2 : 1;
  if (computes.exposed === true) return 1;
  return 1 / communicates.slowdown[computes.attention === true ? "attention" : "product"];
}

/** How fast what runs on a lane goes on, by what runs on the other lanes of its stage; 1: as alone. */
function rateAmong(lane: number, running: (lane: number) => Task | undefined): number {
  const place = lane % LANES.length;
  const first = lane - place;
  const computes = running(first);
  if (place === 0) return Math.min(...BESIDE.map((each) => rateOfBoth(computes, running(first + each))));
  const other = BESIDE.find((each) => each !== place);
  if (other === undefined || !BESIDE.includes(place)) return 1;
  const own = running(lane);
  const shares = own?.link !== undefined && own.link === running(first + other)?.link;
  return rateOfBoth(computes, own) * (shares ? 1 / 2 : 1);
}

/**
 * Runs tasks on the lanes of every stage. A task starts when it is first in its lane and what it waits for
 * has ended. While computation and communication run together on a stage both are R times slower (OPro's, of
 * this communication beside such computation), so that c beside m takes max + (R − 1)·min, as in the closed
 * form; two collectives on one link share it.
 * @throws Error when tasks wait for one another in a circle.
 */
export function runLanes(tasks: readonly Task[]): Span[] {
  const stages = tasks.reduce((most, { stage }) => Math.max(most, stage + 1), 0);
  const lanes: Lane[] = Array.from({ length: stages * LANES.length }, () => ({
    queue: [],
    head: 0,
    left: undefined,
    startSeconds: 0,
  }));
  const laneOf = (task: Task): number => task.stage * LANES.length + LANES.indexOf(task.lane);
  const waiting = tasks.map(({ after }) => after.length);
  const followers: number[][] = tasks.map(() => []);
  tasks.forEach((task, index) => {
    (lanes[laneOf(task)] as Lane).queue.push(index);
    for (const before of task.after) (followers[before] as number[]).push(index);
  });
  const spans: Span[] = new Array<Span>(tasks.length);
  let clock = 0;
  let done = 0;

  const running = (index: number): Task | undefined => {
    const { left, queue, head } = lanes[index] as Lane;
    return left === undefined ? undefined : tasks[queue[head] as number];
  };
  const rateOf = (lane: number): number => rateAmong(lane, running);
  const startReady = (candidates: Iterable<number>): void => {
    for (const index of candidates) {
      const lane = lanes[index] as Lane;
      const next = lane.queue[lane.head];
      if (lane.left !== undefined || next === undefined || waiting[next] !== 0) continue;
      lane.left = (tasks[next] as Task).seconds;
      lane.startSeconds = clock;
    }
  };

  startReady(lanes.keys());
  while (done < tasks.length) {
    let step = Infinity;
    lanes.forEach((lane, index) => {
      if (lane.left !== undefined) step = Math.min(step, lane.left / rateOf(index));
    });
    if (step === Infinity) throw new Error("the tasks of the simulation wait for one another in a circle");
    const rates = lanes.map((lane, index) => (lane.left === undefined ? 0 : rateOf(index)));
    clock += step;
    const touched = new Set<number>();
    lanes.forEach((lane, index) => {
      if (lane.left === undefined) return;
      const rate = rates[index] as number;
      // What ends now is known by the same division that gave the step, so rounding cannot leave a rest.
      if (lane.left / rate > step) {
        lane.left -= step * rate;
        return;
      }
      const at = lane.queue[lane.head] as number;
      spans[at] = { task: tasks[at] as Task, startSeconds: lane.startSeconds, endSeconds: clock };
      lane.left = undefined;
      lane.head += 1;
      done += 1;
      touched.add(index);
      for (const follower of followers[at] as number[]) {
        waiting[follower] = (waiting[follower] as number) - 1;
        touched.add(laneOf(tasks[follower] as Task));
      }
    });
    startReady(touched);
  }
  return spans;
}
