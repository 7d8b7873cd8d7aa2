import { describe, expect, it } from "vitest";
import { failureOfEnd, lostRankOf } from "../failure.ts";
import { localCommand, yieldsWhenIdle } from "./local.ts";
import { sbatchScript, scancelCommand, slurmTime, srunCommand } from "./slurm.ts";

const options = { program: "/opt/internevo-trainer", configPath: "/shared/it's/config.json", ranks: 16, ranksPerNode: 8, threadsPerRank: 4, marker: "abc", timeLimitSeconds: 90_061.5, gpusPerRank: 1, partition: "long" };

describe("srunCommand", () => {
  it("asks for whole nodes, PMIx and the end of all when one ends", () => {
    expect(srunCommand(options)).toEqual([
      "setpriv", "--pdeathsig", "TERM", "--", "srun", "--job-name=internevo-abc", "--nodes=2", "--ntasks=16", "--ntasks-per-node=8", "--cpus-per-task=4", "--gpus-per-task=1", "--partition=long",
      "--time=1-01:01:02", "--mpi=pmix", "--kill-on-bad-exit=1", "--wait=30", "--unbuffered", "--distribution=block:block", "--export=ALL,INTERNEVO_RUN=abc",
      "/opt/internevo-trainer", "--config", "/shared/it's/config.json",
    ]);
  });

  it("takes fewer ranks than a node has, and refuses ranks that leave a node half full", () => {
    expect(srunCommand({ ...options, ranks: 2 })).toContain("--ntasks-per-node=2");
    expect(() => srunCommand({ ...options, ranks: 12 })).toThrow(/12 do not fill nodes of 8/);
    expect(() => srunCommand({ ...options, ranks: 0 })).toThrow(/ranks is 0/);
  });
});

it("sbatchScript quotes paths and lets the trainer save before the limit", () => {
  const script = sbatchScript({ ...options, outputPath: "/shared/out", errorPath: "/shared/err" });
  expect(script.split("\n")[0]).toBe("#!/bin/bash");
  expect(script).toContain("#SBATCH --nodes=2\n");
  expect(script).toContain("#SBATCH --signal=TERM@120\n");
  expect(script).toContain(`'/opt/internevo-trainer' --config '/shared/it'\\''s/config.json'`);
});

it("scancelCommand ends exactly this run", () => {
  expect(scancelCommand("abc", "KILL")).toEqual(["scancel", "--signal=KILL", "--full", "--name=internevo-abc"]);
  expect(slurmTime(59.2)).toBe("0-00:01:00");
});

describe("the lost rank", () => {
  it("is found in what mpirun and srun write", () => {
    expect(lostRankOf("mpirun noticed that process rank 3 with PID 99 on node n1 exited on signal 9 (Killed).")).toEqual({ rank: 3, how: "signal 9 on n1" });
    expect(lostRankOf("srun: error: n2: task 5: Killed")).toEqual({ rank: 5, how: "Killed" });
    expect(lostRankOf("nothing of the kind")).toBeUndefined();
  });

  it("was out of memory when the kernel ended it for that", () => {
    const end = { exitCode: 137, signal: null, stderrTail: "process rank 1 with PID 0 on node x exited on signal 9 (Killed)." };
    expect(failureOfEnd({ ...end, kernelKilledForMemory: true }, undefined)).toMatchObject({ code: "out-of-memory", rank: 1 });
    expect(failureOfEnd({ ...end, kernelKilledForMemory: false }, undefined)).toMatchObject({ code: "rank-lost", rank: 1 });
  });
});

it("localCommand lets waiting ranks keep their cores where there is one for each of their threads", () => {
  expect([yieldsWhenIdle(2, 1, 2), yieldsWhenIdle(3, 1, 2), yieldsWhenIdle(2, 2, 2)]).toEqual([false, true, true]);
  const command = (yields: boolean) => localCommand({ program: "/p", configPath: "/c", ranks: 2, temporaryDirectory: "/t", sharedMemoryDirectory: null, yields }).join(" ");
  expect(command(false)).toContain("--mca mpi_yield_when_idle 0 ");
  expect(command(true)).toContain("--mca mpi_yield_when_idle 1 ");
});
