import { tmpdir } from "node:os";
import { afterEach, describe, expect, it, vi } from "vitest";
import { YIELDS_VARIABLE } from "../environment.ts";
import { failureOfEnd, lostRankOf } from "../failure.ts";
import { localCommand, talksByMemory, yieldsWhenIdle } from "./command.ts";

afterEach(() => vi.unstubAllEnvs());

describe("the lost rank", () => {
  it("is found in what mpirun and srun write", () => {
    expect(
      lostRankOf("mpirun noticed that process rank 3 with PID 99 on node n1 exited on signal 9 (Killed)."),
    ).toEqual({ rank: 3, how: "signal 9 on n1" });
    expect(lostRankOf("srun: error: n2: task 5: Killed")).toEqual({ rank: 5, how: "Killed" });
    expect(lostRankOf("nothing of the kind")).toBeUndefined();
  });

  it("was out of memory when the kernel ended it for that", () => {
    const end = {
      exitCode: 137,
      signal: null,
      stderrTail: "process rank 1 with PID 0 on node x exited on signal 9 (Killed).",
    };
    expect(failureOfEnd({ ...end, kernelKilledForMemory: true }, undefined)).toMatchObject({
      code: "out-of-memory",
      rank: 1,
    });
    expect(failureOfEnd({ ...end, kernelKilledForMemory: false }, undefined)).toMatchObject({
      code: "rank-lost",
      rank: 1,
    });
  });
});

const command = (options: { yields?: boolean; byMemory?: boolean }): string =>
  localCommand({
    program: "/p",
    configPath: "/c",
    ranks: 2,
    temporaryDirectory: "/t",
    sharedMemoryDirectory: null,
    yields: true,
    byMemory: true,
    ...options,
  }).join(" ");

it("localCommand lets waiting ranks keep their cores where there is one for each of their threads", () => {
  vi.stubEnv(YIELDS_VARIABLE, undefined);
  expect([yieldsWhenIdle(2, 1, 2), yieldsWhenIdle(3, 1, 2), yieldsWhenIdle(2, 2, 2)]).toEqual([
    false,
    true,
    true,
  ]);
  expect(command({ yields: false })).toContain("--mca mpi_yield_when_idle 0 ");
  expect(command({ yields: true })).toContain("--mca mpi_yield_when_idle 1 ");
});

it("localCommand leaves TCP out where shared memory is enough for all ranks", () => {
  expect(command({ byMemory: true })).toContain("--mca btl self,vader ");
  expect(command({ byMemory: false })).not.toContain("--mca btl ");
  expect([talksByMemory(1, tmpdir()), talksByMemory(2 ** 40, tmpdir()), talksByMemory(1, "/none")]).toEqual([
    true,
    false,
    false,
  ]);
});

it.each([
  ["1", true],
  ["0", false],
])("yieldsWhenIdle is what %s says, whatever the number of cores", (asked, yields) => {
  vi.stubEnv(YIELDS_VARIABLE, asked);
  expect([yieldsWhenIdle(2, 1, 2), yieldsWhenIdle(3, 1, 2), yieldsWhenIdle(1, 1, undefined)]).toEqual([
    yields,
    yields,
    yields,
  ]);
});
