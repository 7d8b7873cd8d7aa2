import { WAITS_FOR_CLUSTER, type JobStreamEvent } from "@internevo/contracts";
import { expect, it } from "vitest";
import { aPlan } from "@internevo/test-kit";
import { createOutput } from "./output.ts";
import { createProgress } from "./progress.ts";

function follow(isTTY: boolean) {
  let text = "";
  const stream = {
    isTTY,
    columns: 200,
    write: (chunk: string) => ((text += chunk), true),
  } as unknown as NodeJS.WritableStream;
  const progress = createProgress({
    output: createOutput({ stdout: stream, stderr: stream, env: {} }, false),
    steps: 20,
  });
  let id = 0;
  const event = (type: JobStreamEvent["type"], data: Record<string, unknown>): void =>
    progress.on({ id: (id += 1), jobId: "j", type, at: new Date(1000 * id).toISOString(), data });
  return {
    state: (from: string | null, to: string, reason: string | null = null) =>
      event("state", { from, to, reason }),
    progress: (stage: string, message: string, done: number, total: number) =>
      event("progress", { stage, message, done, total, waits: message === WAITS_FOR_CLUSTER }),
    trial: (trial: unknown) => event("trial", { trial }),
    validation: (step: number, loss: number) => event("validation", { step, loss }),
    text: () => text,
  };
}

function profiled(isTTY: boolean): string {
  const job = follow(isTTY);
  job.state(null, "profiling");
  job.progress("profiling", WAITS_FOR_CLUSTER, 0, 1);
  job.progress("profiling", WAITS_FOR_CLUSTER, 0, 1);
  for (let done = 0; done <= 95; done += 1) job.progress("profiling", `point ${done}`, done, 95);
  job.state("profiling", "planning", "measured the cluster");
  job.state("planning", "trialling");
  job.progress("trialling", WAITS_FOR_CLUSTER, 0, 10);
  job.progress("trialling", "b1: step 1 of 5", 0, 10);
  return job.text();
}

it("says without a terminal how profiling goes on, a line a tenth, and that the cluster is another's", () => {
  const lines = profiled(false).trim().split("\n");
  expect(lines.filter((line) => line.includes(WAITS_FOR_CLUSTER))).toHaveLength(2);
  expect(lines.filter((line) => line.includes("point"))).toEqual(
    [0, 10, 19, 29, 38, 48, 57, 67, 76, 86, 95].map((done) => `  ${done}/95 point ${done}`),
  );
  expect(lines.some((line) => line.includes("step 1 of 5"))).toBe(false);
});

it("keeps one line up to date on a terminal", () => {
  const text = profiled(true);
  // Lines end at stages only.
  expect(text.split("\n")).toHaveLength(6);
  expect(text).toContain("\r\u001b[2K  ██████████░░░░░░░░░░ 48/95 point 48");
  expect(text).toContain(`  ${WAITS_FOR_CLUSTER}`);
});

it("marks the times of disturbed trials, and says once what the mark means", () => {
  const job = follow(false);
  const trial = (rank: number, disturbances?: string[]) =>
    job.trial({
      state: "succeeded",
      candidate: { rank, plan: aPlan(), predicted: { stepTimeSeconds: 1 } },
      measured: {
        stepTimeSeconds: 2,
        peakMemoryBytes: 2 ** 20,
        runs: [{ stepTimeSeconds: 2, ...(disturbances ? { disturbances } : {}) }],
      },
    });
  trial(1);
  trial(2, ["here"]);
  trial(3, ["here"]);
  const lines = job.text().trimEnd().split("\n");
  expect(lines).toHaveLength(4);
  expect(lines[0]).toMatch(/: 2\.00 s a step \(predicted/);
  expect(lines[1]).toMatch(/: 2\.00 s \* a step \(predicted/);
  expect(lines[2]).toMatch(/^ {2}\* Other work ran beside every run/);
});

it("has a line for every validation loss", () => {
  const job = follow(false);
  job.validation(0, 5.54512);
  job.validation(20, 2.5);
  expect(job.text()).toBe("  step 0/20: validation loss 5.5451\n  step 20/20: validation loss 2.5000\n");
});
