import { describe, expect, it } from "vitest";
import { stagesOf } from "./timeline.tsx";

const at = (minute: number): string => new Date(Date.UTC(2026, 0, 1, 0, minute)).toISOString();
const moved = (from: string | null, to: string, minute: number) => ({
  from,
  to,
  at: at(minute),
  reason: null,
});
const period = (from: number, to: number | null) => ({ from: at(from), to: to === null ? null : at(to) });

type Job = Parameters<typeof stagesOf>[0];
const job = (over: Partial<Job>): Job => ({
  state: "profiling",
  createdAt: at(0),
  queue: null,
  transitions: [],
  holds: [],
  ...over,
});
const stage = (name: string, of: Job) => stagesOf(of).find(({ state }) => state === name);

describe("the times of a stage", () => {
  it("tell work from waiting for hosts", () => {
    const transitions = [moved(null, "profiling", 0), moved("profiling", "planning", 30)];
    const profiled = job({
      state: "planning",
      transitions: transitions as Job["transitions"],
      holds: [period(25, null)],
    });
    expect(stage("profiling", profiled)).toMatchObject({ work: [period(25, 30)], waits: [period(0, 25)] });
    expect(stage("planning", profiled)).toMatchObject({ work: [period(30, null)], waits: [] });
  });

  it("leave out what a job was held, and what it waits now", () => {
    const transitions = [
      moved(null, "profiling", 0),
      moved("profiling", "running", 1),
      moved("running", "held", 5),
      moved("held", "running", 50),
    ] as Job["transitions"];
    const waiting = job({
      state: "running",
      transitions,
      holds: [period(0, 5)],
      queue: { position: 1 } as Job["queue"],
    });
    expect(stage("running", waiting)).toMatchObject({ work: [period(1, 5)], waits: [period(50, null)] });
    const again = { ...waiting, queue: null, holds: [period(0, 5), period(52, null)] };
    expect(stage("running", again)).toMatchObject({
      work: [period(1, 5), period(52, null)],
      waits: [period(50, 52)],
    });
  });

  it("are the stage's where no hosts are held: on Slurm, or where nothing had to be measured", () => {
    const transitions = [
      moved(null, "profiling", 0),
      moved("profiling", "planning", 2),
    ] as Job["transitions"];
    expect(stage("profiling", job({ state: "planning", transitions }))).toMatchObject({
      work: [period(0, 2)],
      waits: [],
    });
  });

  it("are all waiting for a job that has had no hosts yet", () => {
    const queued = job({
      transitions: [moved(null, "profiling", 0)] as Job["transitions"],
      queue: { position: 2 } as Job["queue"],
    });
    expect(stage("profiling", queued)).toMatchObject({ work: [], waits: [period(0, null)] });
  });
});
