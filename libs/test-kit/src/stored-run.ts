import {
  createTrials,
  ensureRun,
  finishAttempt,
  finishTrial,
  recordSteps,
  recordValidations,
  startAttempt,
  startTrial,
  submitJob,
  transitionJob,
  updateJob,
  type Database,
} from "@internevo/store";
import type { JobSpec } from "@internevo/domain";
import { exampleCandidate, exampleMeasurement, exampleSpec, exampleStep } from "./fixtures.ts";

/** A job as its stages leave it in Postgres, without the ranks: what trackers read. */
export interface StoredRun {
  readonly jobId: string;
  readonly runId: string;
  /** Stores steps of an attempt, from one to another. */
  step(first: number, last: number): Promise<void>;
  validate(step: number): Promise<void>;
  /** The ranks begin anew from a checkpoint. */
  restart(resumedFromStep: number): Promise<void>;
  end(to: "succeeded" | "failed" | "cancelled"): Promise<void>;
}

/** Brings a job through its stages to where its ranks begin. */
export async function storedRun(
  database: Database,
  name: string,
  over: Pick<JobSpec, "project" | "tracking"> = {},
): Promise<StoredRun> {
  const candidate = exampleCandidate();
  const jobId = await database.transaction((tx) =>
    submitJob(tx, { ...exampleSpec(name), ...over }, { owner: "ada" }),
  );
  const move = (
    from: "profiling" | "planning" | "trialling" | "running",
    to: "planning" | "trialling" | "running",
  ) => database.transaction((tx) => transitionJob(tx, { jobId, from, to }));
  await move("profiling", "planning");
  await move("planning", "trialling");
  const [trial] = await database.transaction((tx) =>
    createTrials(tx, jobId, [candidate, exampleCandidate(2)]),
  );
  if (!trial) throw new Error("no trial");
  await database.transaction((tx) => startTrial(tx, trial.id));
  await database.transaction((tx) => finishTrial(tx, trial.id, { measured: exampleMeasurement() }));
  await database.transaction((tx) => updateJob(tx, jobId, { chosen: candidate }));
  await move("trialling", "running");
  const { id: runId } = await database.transaction((tx) => ensureRun(tx, jobId, candidate));
  let { number } = await database.transaction((tx) => startAttempt(tx, runId));
  return {
    jobId,
    runId,
    async step(first, last) {
      const steps = Array.from({ length: last - first + 1 }, (_, index) =>
        exampleStep(first + index, number, 5 + 1 / (first + index)),
      );
      await database.transaction((tx) => recordSteps(tx, { jobId, runId }, steps));
    },
    async validate(step) {
      const at = new Date(1_700_000_000_000 + step).toISOString();
      const loss = { step, loss: 6 + step, tokens: 10, seconds: 1, attempt: number, at };
      await database.transaction((tx) => recordValidations(tx, { jobId, runId }, [loss]));
    },
    async restart(resumedFromStep) {
      await database.transaction((tx) => finishAttempt(tx, runId, number, { state: "lost" }));
      ({ number } = await database.transaction((tx) => startAttempt(tx, runId, resumedFromStep)));
    },
    async end(to) {
      await database.transaction((tx) => transitionJob(tx, { jobId, from: "running", to }));
    },
  };
}
