import { getPriority, setPriority } from "node:os";
import { firstCounts, type FirstCounts } from "@internevo/cost-model";
import type { PlanningResult } from "@internevo/domain";
import { boundSearches, planJob, SearchLimitError, SearchTimeError, threadSeconds } from "@internevo/search";
import { answer, type Question } from "./advice.ts";
import { sharedProfile } from "./shared-profile.ts";
import type { AdviceTask, CountTask, LimitedPlanTask, StoppableTask } from "./tasks.ts";
import { resultOf, type WorkResult } from "./work-result.ts";

/** Niceness of a thread that works for long: what is answered at once goes first. */
const PATIENT = 10;

function giveWay(): void {
  // On Linux the priority of a thread, on other systems that of the process.
  if (process.platform === "linux") setPriority(0, Math.max(PATIENT, getPriority(0)));
}

class TooLong extends Error {}

/** The work's result, or null when it takes more than it may. Its searches end when nobody waits for them. */
async function unlessTooLong<T>(
  seconds: number | null,
  stop: SharedArrayBuffer,
  work: () => T | Promise<T>,
): Promise<WorkResult<T> | null> {
  const told = new Int32Array(stop);
  const isCancelled = (): boolean => Atomics.load(told, 0) !== 0;
  try {
    return await resultOf(async () => {
      try {
        return await boundSearches({ seconds: seconds ?? Infinity, clock: threadSeconds, isCancelled }, work);
      } catch (error) {
        throw error instanceof SearchTimeError ? new TooLong() : error;
      }
    });
  } catch (error) {
    if (error instanceof TooLong) return null;
    throw error;
  }
}

/**
 * What runs on the threads of `workers.ts`: the answer, or null when the search takes more than the task may.
 */
export async function plan({
  spec,
  profile,
  top,
  ranks,
  plans,
  locate,
  threadsPerRank,
  limit,
  isPatient,
  stop,
}: LimitedPlanTask & StoppableTask): Promise<WorkResult<PlanningResult> | null> {
  if (isPatient) giveWay();
  return unlessTooLong(limit?.seconds ?? null, stop, () => {
    try {
      return planJob(spec, sharedProfile(profile), {
        top,
        ...(ranks === undefined ? {} : { ranks }),
        ...(plans === undefined ? {} : { plans }),
        ...(locate === undefined ? {} : { locate }),
        ...(threadsPerRank === undefined ? {} : { threadsPerRank }),
        ...(limit === null ? {} : { maximumSteps: limit.steps }),
      });
    } catch (error) {
      throw error instanceof SearchLimitError && limit !== null ? new TooLong() : error;
    }
  });
}

/** A question about plans; null when its searches take more than it may. */
export async function advise({
  question,
  profile,
  limitSeconds,
  isPatient,
  stop,
}: AdviceTask & StoppableTask): Promise<WorkResult<unknown> | null> {
  if (isPatient) giveWay();
  return unlessTooLong(limitSeconds, stop, () =>
    answer({ ...question, ...(profile === null ? {} : { profile: sharedProfile(profile) }) } as Question),
  );
}

/** How much a job measures first. */
export const count = ({ spec, fresh }: CountTask): FirstCounts =>
  firstCounts(spec, fresh === null ? undefined : sharedProfile(fresh));

/** Does nothing: a thread that has answered it is there for what comes next. */
export const warm = (): void => undefined;
