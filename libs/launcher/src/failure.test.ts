import { describe, expect, it } from "vitest";
import { failureOfEnd, failureOfError, type NativeError } from "./failure.ts";

const MPIRUN = "mpirun noticed that process rank 2 with PID 16018 on node vm exited on signal 9 (Killed).";
const end = { exitCode: 137, signal: null, stderrTail: MPIRUN, kernelKilledForMemory: false };
const communication = (over: Partial<NativeError>): NativeError => ({
  event: "error",
  code: "communication_error",
  message: "MPI_Allreduce failed",
  rank: 0,
  ...over,
});

describe("the failure of ranks that ended", () => {
  it("names the rank that a signal ended, whatever the ranks that were left could say", () => {
    expect(failureOfEnd(end, undefined)).toEqual({
      code: "rank-lost",
      message: "rank 2 ended by signal 9 on vm",
      rank: 2,
    });
    expect(failureOfEnd(end, communication({}))).toEqual({
      code: "rank-lost",
      message: "rank 2 ended by signal 9 on vm",
      rank: 2,
    });
  });

  it("tells what was last seen of a lost rank when another one saw it", () => {
    const message = "rank 2 on vm (stage 1) died; it was last seen in all-gather";
    expect(
      failureOfEnd(end, communication({ message, rank: 2, remedy: "look at that rank's host" })),
    ).toEqual({
      code: "rank-lost",
      message: `${message}; signal 9 on vm`,
      rank: 2,
      remedy: "look at that rank's host",
    });
  });

  it("knows a lost rank by the watchdog's word alone, which mpirun's does not always follow", () => {
    const message = "rank 1 on vm (stage 0) died; it was last seen in step 0, between operations";
    expect(failureOfEnd({ ...end, stderrTail: "" }, communication({ message, rank: 1 }))).toMatchObject({
      code: "rank-lost",
      rank: 1,
      message: `${message}; by which signal was not reported`,
    });
    const frozen =
      "rank 0 on vm (stage 0) is frozen: its process answers no more; it was last seen in all-gather";
    expect(
      failureOfEnd({ ...end, exitCode: 6, stderrTail: "" }, communication({ message: frozen, rank: 0 })),
    ).toMatchObject({ code: "rank-lost", rank: 0, message: `${frozen}; it was ended` });
    expect(
      failureOfEnd(
        { ...end, stderrTail: "", kernelKilledForMemory: true },
        communication({ message, rank: 1 }),
      ),
    ).toMatchObject({ code: "out-of-memory", rank: 1 });
    expect(
      failureOfEnd(
        { ...end, exitCode: 6, stderrTail: "" },
        communication({ message: "rank 1 on vm (stage 0) is stuck in all-gather", rank: 1 }),
      ),
    ).toMatchObject({ code: "communication" });
  });

  it("says that memory was wanting when the kernel ended the rank, even if another one saw it die", () => {
    expect(failureOfEnd({ ...end, kernelKilledForMemory: true }, communication({ rank: 2 }))).toMatchObject({
      code: "out-of-memory",
      rank: 2,
    });
  });
});

describe("a plan that does not fit", () => {
  it("is said in units and in words, with the field of the job", () => {
    const said: NativeError = {
      event: "error",
      code: "out_of_memory",
      message:
        "the plan needs 31134720 bytes a rank; memoryLimitBytes is 30870464: parameters 8388608, offloadStaging 0, " +
        "gatherPool 0, gradients 4194304, runtime 18551808",
      field: "memoryLimitBytes",
      value: "30870464",
      remedy: "use more ranks, more sharding, recomputation or a smaller micro-batch",
      rank: 0,
    };
    expect(failureOfError(said)).toEqual({
      code: "out-of-memory",
      message:
        "the plan does not fit: it needs 29.7 MiB a rank, 258.1 KiB more than the 29.4 MiB that a rank may use " +
        "(cluster.memoryPerGpu): runtime 17.7 MiB, parameters 8.00 MiB, gradients 4.00 MiB",
      rank: 0,
      remedy: "use more ranks, more sharding, recomputation or a smaller micro-batch",
    });
    expect(failureOfError({ ...said, message: "no room" }).message).toBe(
      'no room (memoryLimitBytes = "30870464")',
    );
  });
});

describe("a refused configuration", () => {
  it("is the plan's fault when a field of the plan is wrong", () => {
    const refused: NativeError = {
      event: "error",
      code: "bad_config",
      message: "plan.pipelineChunks 2 needs more than one stage",
      field: "plan.pipelineChunks",
      value: 2,
    };
    expect(failureOfError(refused).code).toBe("plan-unsupported");
    expect(failureOfError({ ...refused, field: "mesh.worldSize" }).code).toBe("internal");
  });
});
