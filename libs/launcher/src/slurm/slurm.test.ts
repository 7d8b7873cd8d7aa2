import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { launchTarget } from "../launchers.ts";
import { sbatchCommand, slurmTime } from "./cli.ts";
import {
  accountedJob,
  isLive,
  isWaiting,
  jobsOf,
  nodesOf,
  SlurmRefusalError,
  type SlurmControl,
  type SlurmJob,
  type SlurmRequest,
} from "./control.ts";
import { outcomeOf, refused, type Ended } from "./end.ts";
import { QueueWatch } from "./queue.ts";
import { restSubmission } from "./rest.ts";
import { batchScript } from "./script.ts";
import { queueWords, reasonWords, remedyOf } from "./words.ts";
import type { SlurmSettings } from "./settings.ts";

const settings: SlurmSettings = {
  partition: "gpu",
  account: "llm",
  qos: "high",
  constraint: "h200&nvlink",
  gres: "gpu:8",
  reservation: "weekend",
  memoryPerNodeBytes: 0,
  timeLimitSeconds: 90_061,
  saveSeconds: 600,
};
const request: SlurmRequest = {
  name: "internevo-abc",
  comment: "internevo-trainer attempt 1",
  nodes: 2,
  ranksPerNode: 8,
  threadsPerRank: 4,
  timeLimitSeconds: 90_061,
  settings,
  directory: "/shared/it's",
  scriptPath: "/shared/it's/job.sh",
  logPath: "/shared/it's/slurm.log",
  environment: { A: "b" },
};
const job: SlurmJob = {
  id: 7,
  name: "internevo-abc",
  state: "PENDING",
  reason: "Priority",
  partition: "gpu",
  nodes: "",
  startsAt: undefined,
};

describe("a submission", () => {
  it("asks for what the cluster's settings say, and for no requeueing", () => {
    expect(sbatchCommand(request)).toEqual([
      "setpriv",
      "--pdeathsig",
      "KILL",
      "--",
      "sbatch",
      "--parsable",
      "--no-requeue",
      "--job-name=internevo-abc",
      "--comment=internevo-trainer attempt 1",
      "--nodes=2",
      "--ntasks=16",
      "--ntasks-per-node=8",
      "--cpus-per-task=4",
      "--exclusive",
      "--partition=gpu",
      "--account=llm",
      "--qos=high",
      "--constraint=h200&nvlink",
      "--reservation=weekend",
      "--gres=gpu:8",
      "--mem=0K",
      "--time=1-01:01:01",
      "--signal=B:USR1@600",
      "--chdir=/shared/it's",
      "--output=/shared/it's/slurm.log",
      "--open-mode=append",
      "--export=ALL",
      "/shared/it's/job.sh",
    ]);
    expect(slurmTime(59.2)).toBe("0-00:01:00");
    expect(sbatchCommand({ ...request, settings: { exclusive: false } }).join(" ")).not.toContain(
      "--exclusive",
    );
    expect(() => sbatchCommand({ ...request, nodes: 0 })).toThrow(/nodes is 0/);
  });

  it("saves no later than in the middle of a short job", () => {
    expect(sbatchCommand({ ...request, timeLimitSeconds: 100, settings: {} })).toContain(
      "--signal=B:USR1@50",
    );
    expect(sbatchCommand({ ...request, timeLimitSeconds: 1000, settings: {} })).toContain(
      "--signal=B:USR1@120",
    );
  });

  it("says the same to slurmrestd", () => {
    expect(restSubmission(request, "#!/bin/bash")).toMatchObject({
      script: "#!/bin/bash",
      job: {
        name: "internevo-abc",
        requeue: false,
        nodes: [2, 2],
        tasks: 16,
        tasks_per_node: 8,
        cpus_per_task: 4,
        exclusive: "exclusive",
        partition: "gpu",
        account: "llm",
        qos: "high",
        constraints: "h200&nvlink",
        reservation: "weekend",
        tres_per_node: "gres:gpu:8",
        memory_per_node: 0,
        time_limit: 1502,
        environment: { A: "b" },
      },
    });
  });

  it("quotes what comes from people, and loads modules before variables are set", () => {
    const script = batchScript({
      settings: {
        ...settings,
        modules: ["cuda/13.0"],
        environment: { WORD: "it's; rm -rf /" },
        container: ["apptainer", "exec", "a b.sif"],
      },
      program: "/opt/it's",
      configPath: "/c",
      nodes: 2,
      ranksPerNode: 8,
      threadsPerRank: 4,
      directory: "/shared/it's",
    });
    expect(script).toContain(`cd '/shared/it'\\''s' || exit 1`);
    expect(script).toContain(`export WORD='it'\\''s; rm -rf /'`);
    expect(script).toContain(`'apptainer' 'exec' 'a b.sif' '/opt/it'\\''s' '--config' '/c'`);
    expect(script.indexOf("module load 'cuda/13.0'")).toBeLessThan(script.indexOf("export WORD"));
    expect(script).toMatch(
      /SLURM_HOSTFILE=hosts srun --nodes 2 --ntasks 16 --cpus-per-task 4 --distribution arbitrary --mpi pmix /,
    );
  });
});

describe("Slurm's JSON", () => {
  it("is understood as 22.05 writes it, and as later versions do", () => {
    const old = {
      jobs: [
        {
          job_id: 7,
          name: "a",
          job_state: "PENDING",
          state_reason: "Resources",
          state_description: "",
          partition: "main",
          nodes: "",
          start_time: 1_800_000_000,
        },
      ],
    };
    const later = {
      jobs: [
        {
          job_id: 7,
          name: "a",
          job_state: ["PENDING"],
          state_reason: "Resources",
          partition: "main",
          nodes: "",
          start_time: { set: true, infinite: false, number: 1_800_000_000 },
        },
      ],
    };
    const wanted = {
      id: 7,
      name: "a",
      state: "PENDING",
      reason: "Resources",
      partition: "main",
      nodes: "",
      startsAt: new Date(1_800_000_000_000),
    };
    expect(jobsOf(old)).toEqual([wanted]);
    expect(jobsOf(later)).toEqual([wanted]);
    expect(
      jobsOf({
        jobs: [
          {
            job_id: 8,
            name: "b",
            job_state: ["RUNNING", "COMPLETING"],
            start_time: { set: false, infinite: false, number: 0 },
          },
        ],
      }),
    ).toMatchObject([{ state: "RUNNING", reason: "None", startsAt: undefined }]);
    const nodes = nodesOf({
      nodes: [
        { name: "n1", state: "idle", state_flags: ["NOT_RESPONDING"], partitions: ["main"] },
        { name: "n2", state: ["MIXED"], partitions: ["main"] },
        { name: "n3", state: ["DOWN"], reason: "power", partitions: [] },
      ],
    });
    expect(nodes.map(({ name, usable }) => [name, usable])).toEqual([
      ["n1", false],
      ["n2", true],
      ["n3", false],
    ]);
    expect(() => jobsOf({ errors: [] })).toThrow(/no list of jobs/);
  });
  it("of accounting is understood in both forms, and only of the job that is meant", () => {
    const job = (over: object) => ({
      jobs: [
        {
          job_id: 7,
          name: "internevo-abc",
          partition: "main",
          nodes: "n[1-2]",
          time: { start: 1_800_000_000 },
          ...over,
        },
      ],
    });
    const wanted = {
      id: 7,
      name: "internevo-abc",
      state: "NODE_FAIL",
      reason: "None",
      partition: "main",
      nodes: "n[1-2]",
      startsAt: new Date(1_800_000_000_000),
    };
    expect(
      accountedJob(job({ state: { current: "NODE_FAIL", reason: "None" } }), 7, "internevo-abc"),
    ).toEqual(wanted);
    expect(
      accountedJob(job({ state: { current: ["NODE_FAIL"], reason: "None" } }), 7, "internevo-abc"),
    ).toEqual(wanted);
    expect(
      accountedJob(
        job({ state: { current: "CANCELLED" }, nodes: "None assigned", time: { start: 0 } }),
        7,
        "internevo-abc",
      ),
    ).toMatchObject({ nodes: "", startsAt: undefined });
    expect(accountedJob(job({ name: "another", state: { current: "COMPLETED" } }), 7, "internevo-abc")).toBe(
      "Slurm's accounting does not know job 7",
    );
    expect(() => accountedJob({ errors: [] }, 7, "internevo-abc")).toThrow(/no list of jobs/);
  });
  it("tells who waits, runs and is over", () => {
    expect(
      ["PENDING", "RUNNING", "NODE_FAIL", "REQUEUED"].map((state) => [
        isLive({ state }),
        isWaiting({ state }),
      ]),
    ).toEqual([
      [true, true],
      [true, false],
      [false, false],
      [true, true],
    ]);
  });
});

describe("reasons", () => {
  it("are words where they are known, and Slurm's own where not", () => {
    expect(reasonWords("QOSMaxJobsPerUserLimit")).toBe(
      "this user runs as many jobs as the quality of service allows",
    );
    expect(reasonWords("ReqNodeNotAvail, UnavailableNodes:n[2-3]")).toMatch(/not available/);
    expect(
      reasonWords(
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
      ),
    ).toMatch(/not available/);
    expect(reasonWords("SomethingNew")).toBe("SomethingNew");
    expect(reasonWords("toString")).toBe("toString");
    expect([remedyOf("PartitionTimeLimit"), remedyOf("Priority"), remedyOf("SomethingNew")]).toEqual([
      expect.stringContaining("timeLimitSeconds"),
      undefined,
      undefined,
    ]);
    expect(queueWords({ ...job, startsAt: new Date("2999-01-02T03:04:05Z") })).toBe(
      "waits in Slurm's queue as job 7: jobs of higher priority are " +
        "before it; Slurm expects it to start at 2999-01-02 03:04 UTC",
    );
    expect(queueWords({ ...job, startsAt: new Date(0) })).toBe(
      "waits in Slurm's queue as job 7: jobs of higher priority are before it",
    );
  });

  it("end the waiting only when it is of no use", async () => {
    const states = ["idle", "down"];
    const control = {
      nodes: async () =>
        states.map((state, index) => ({
          name: `n${index}`,
          state,
          usable: state === "idle",
          reason: "",
          partitions: ["gpu"],
        })),
    } as unknown as SlurmControl;
    const waits = new QueueWatch(control, { nodeLossSeconds: 0 }, 2, Date.now());
    expect(await waits.look(job)).toBeUndefined();
    expect(await waits.look({ ...job, reason: "Resources" })).toMatchObject({
      failure: {
        code: "not-started",
        message: expect.stringMatching(
          /needs 2 nodes, and 1 of partition gpu can take jobs since .*: n1 is down/,
        ),
        remedy: expect.stringContaining("nodes: 1 or fewer"),
      },
      nodesLeft: 1,
    });
    states[1] = "idle";
    expect(await waits.look({ ...job, reason: "Resources" })).toBeUndefined();
    expect(
      await new QueueWatch(control, { queueLimitSeconds: 60 }, 2, Date.now() - 61_000).look(job),
    ).toEqual({
      failure: {
        code: "not-started",
        remedy: expect.any(String),
        message: expect.stringMatching(/did not start job 7 within .*: jobs of higher priority/),
      },
    });
  });
});

describe("an end", () => {
  const ended: Ended = {
    end: { jobId: 7, exitCode: 0, told: "" },
    job: { ...job, state: "COMPLETED", nodes: "n[1-2]" },
    jobId: 7,
    begun: true,
    words: undefined,
    cause: undefined,
    nodesOut: [],
    done: true,
    firstError: undefined,
    stderrTail: "",
  };
  const lost = (rank: number) =>
    ({
      event: "error",
      code: "communication_error",
      message: `rank ${rank} on n3 (stage 0) died; it was last seen in step 4`,
      rank,
    }) as never;
  const unreachable = {
    event: "error",
    code: "communication_error",
    message: "the peer is gone",
    rank: 0,
  } as never;
  it.each<[string, Partial<Ended>, object]>([
    ["done", {}, { status: "completed" }],
    [
      "exit code 0 without the last word",
      { done: false },
      { status: "failed", failure: { code: "internal" } },
    ],
    [
      "in order when asked",
      { cause: { kind: "stop" }, end: { jobId: 7, exitCode: 75, told: "USR1" } },
      { status: "stopped", graceful: true },
    ],
    [
      "in order, when a task's death was counted last",
      { cause: { kind: "stop" }, end: { jobId: 7, exitCode: 137, told: "USR1" } },
      { status: "stopped", graceful: true },
    ],
    [
      "near the time limit",
      { end: { jobId: 7, exitCode: 75, told: "USR1" } },
      {
        status: "failed",
        failure: { code: "rank-lost", message: expect.stringContaining("its time limit was near") },
      },
    ],
    [
      "in order, cancelled by somebody else",
      {
        end: { jobId: 7, exitCode: 75, told: "TERM" },
        job: { ...job, state: "CANCELLED" },
        words: "it was cancelled",
      },
      {
        status: "failed",
        failure: {
          code: "cancelled",
          message:
            "Slurm job 7 has ended in order, with a checkpoint; cancelled in Slurm, and not by InternEvo",
          remedy: expect.stringContaining("internevo resume"),
        },
      },
    ],
    ...["PREEMPTED", "TIMEOUT", "NODE_FAIL", "FAILED"].map((state): [string, Partial<Ended>, object] => [
      `in order, ${state} by Slurm`,
      { end: { jobId: 7, exitCode: 75, told: "TERM" }, job: { ...job, state }, words: "it has ended" },
      {
        status: "failed",
        failure: { code: "rank-lost", message: expect.stringContaining("Slurm took its nodes away") },
      },
    ]),
    [
      "started anew by Slurm",
      { done: false, end: { jobId: 7, exitCode: null, told: "REQUEUED" } },
      { status: "failed", failure: { code: "rank-lost" } },
    ],
    [
      "cancelled by somebody else",
      { done: false, end: undefined, job: { ...job, state: "CANCELLED" }, words: "it was cancelled" },
      { status: "failed", failure: { code: "cancelled" } },
    ],
    [
      "cancelled by somebody else while it waited",
      {
        done: false,
        end: undefined,
        begun: false,
        job: { ...job, state: "CANCELLED", nodes: "" },
        words: "it was cancelled",
      },
      { status: "failed", failure: { code: "cancelled" } },
    ],
    [
      "cancelled by Slurm, which could not start it",
      {
        done: false,
        end: undefined,
        begun: false,
        job: { ...job, state: "CANCELLED", nodes: "n[1-2]" },
        words: "it was cancelled",
      },
      {
        status: "failed",
        failure: {
          code: "rank-lost",
          message: expect.stringMatching(
            /^it was cancelled before its script began: its first node could not start it/,
          ),
        },
      },
    ],
    [
      "a node lost, nothing left behind",
      { done: false, end: undefined, job: { ...job, state: "NODE_FAIL" }, words: "a node failed" },
      { status: "failed", failure: { code: "rank-lost", message: "a node failed" } },
    ],
    [
      "gone without a trace",
      { done: false, end: undefined, job: undefined },
      {
        status: "failed",
        failure: { code: "rank-lost", message: expect.stringContaining("does not know it any more") },
      },
    ],
    [
      "the rank that died, not those that srun ended for it",
      {
        done: false,
        end: { jobId: 7, exitCode: 137, told: "" },
        firstError: lost(2),
        stderrTail: "srun: error: n2: task 1: Killed",
      },
      { status: "failed", failure: { code: "rank-lost", rank: 2 } },
    ],
    [
      "gone, and there is no accounting",
      { done: false, end: undefined, job: undefined, unaccounted: "Slurm accounting storage is disabled" },
      {
        status: "failed",
        failure: {
          code: "rank-lost",
          message:
            "Slurm job 7 is gone: Slurm does not know it any more, and it left " +
            "no word (its accounting: Slurm accounting storage is disabled)",
        },
      },
    ],
    [
      "given up for want of nodes",
      {
        done: false,
        end: undefined,
        cause: { kind: "failure", failure: { code: "not-started", message: "too few" }, nodesLeft: 1 },
      },
      { status: "failed", failure: { code: "not-started" }, nodesLeft: 1 },
    ],
    [
      "a lost node that the ranks that are left could not reach",
      {
        done: false,
        end: { jobId: 7, exitCode: 16, told: "" },
        firstError: unreachable,
        nodesOut: [{ name: "n2", usable: false, state: "down+not_responding", reason: "", partitions: [] }],
      },
      {
        status: "failed",
        failure: {
          code: "rank-lost",
          rank: 0,
          message: expect.stringMatching(/^n2 is down\+not_responding; the peer is gone \(Slurm job 7/),
        },
      },
    ],
    [
      "a lost node, of which no rank that is left has said a word",
      {
        done: false,
        end: { jobId: 7, exitCode: 1, told: "" },
        stderrTail: "srun: error: Node failure on n2",
        nodesOut: [{ name: "n2", usable: false, state: "down+not_responding", reason: "", partitions: [] }],
      },
      {
        status: "failed",
        failure: { code: "rank-lost", message: expect.stringMatching(/^n2 is down\+not_responding; /) },
      },
    ],
    [
      "ranks that end without a word, with all nodes there",
      { done: false, end: { jobId: 7, exitCode: 1, told: "" } },
      { status: "failed", failure: { code: "internal" } },
    ],
    [
      "communication, with all nodes there",
      { done: false, end: { jobId: 7, exitCode: 16, told: "" }, firstError: unreachable },
      { status: "failed", failure: { code: "communication" } },
    ],
    [
      "memory",
      {
        done: false,
        end: { jobId: 7, exitCode: 137, told: "" },
        stderrTail: "slurmstepd: error: Detected 1 oom-kill event(s)",
      },
      { status: "failed", failure: { code: "out-of-memory" } },
    ],
  ])("%s", (_, over, wanted) => expect(outcomeOf({ ...ended, ...over })).toMatchObject(wanted));
  it("refused, with Slurm's words and a remedy", () =>
    expect(refused(new SlurmRefusalError("Invalid account"))).toMatchObject({
      code: "not-started",
      message: "Slurm refuses the job: Invalid account",
      remedy: expect.any(String),
    }));
});

/** What the launcher needs of a cluster that Slurm runs. */
const slurmOf = async (cluster: { readonly name: string }, file: string | undefined): Promise<unknown> =>
  (await launchTarget({ ...cluster, nodes: 1, gpusPerNode: 1, launcher: "slurm" }, file)).settings;

describe("a Slurm cluster's description", () => {
  let directory: string;
  beforeEach(() => (directory = mkdtempSync(join(tmpdir(), "internevo-slurm-clusters-"))));
  afterEach(() => rmSync(directory, { recursive: true }));
  const described = (slurm: unknown) => {
    const file = join(directory, "clusters.json");
    writeFileSync(
      file,
      JSON.stringify({ clusters: { fleet: { slurm }, lab: { hosts: [{ name: "n1", slots: 1 }] } } }),
    );
    return file;
  };

  it("is found by the cluster's name", async () => {
    const file = described(settings);
    expect(await slurmOf({ name: "fleet" }, file)).toEqual(settings);
    await expect(slurmOf({ name: "lab" }, file)).rejects.toMatchObject({
      code: "job-invalid",
      details: [{ field: "cluster.name", remedy: "use launcher: ssh" }],
    });
    await expect(slurmOf({ name: "other" }, file)).rejects.toMatchObject({
      details: [{ field: "cluster.name", remedy: "use one of: fleet" }],
    });
    await expect(slurmOf({ name: "fleet" }, undefined)).rejects.toMatchObject({
      details: [{ field: "cluster.launcher", remedy: expect.stringContaining("INTERNEVO_CLUSTERS") }],
    });
  });

  it.each([
    ["partition", { partition: "--wrap=id" }],
    ["timeLimitSeconds", { timeLimitSeconds: 10 }],
    ["saveSeconds", { timeLimitSeconds: 600, saveSeconds: 400 }],
    ["start", { start: "ssh" }],
    ["start", { start: "mpirun", rest: { url: "unix:/run/slurmrestd.socket" } }],
    ["modules.0", { modules: ["$(id)"] }],
    ["directory", { directory: "relative" }],
    ["rest.url", { rest: { url: "ftp://x" } }],
    ["walltime", { walltime: "1:00:00" }],
  ])("is refused by field, value and remedy: %s", async (field, wrong) => {
    await expect(slurmOf({ name: "fleet" }, described(wrong))).rejects.toMatchObject({
      code: "unavailable",
      details: expect.arrayContaining([
        expect.objectContaining({
          field: expect.stringContaining(`clusters.fleet.slurm.${field}`),
          message: expect.any(String),
          remedy: expect.any(String),
        }),
      ]),
    });
  });
});
