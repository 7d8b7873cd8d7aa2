import { getPriority, setPriority } from "node:os";
import type { PlanningResult } from "@internevo/domain";
import { planJob, SearchLimitError } from "@internevo/search";
import { answer, type Question } from "./advice.ts";
import { sharedProfile } from "./shared-profile.ts";
import type { AdviceTask, LimitedPlanTask } from "./tasks.ts";
import { resultOf, type WorkResult } from "./work-result.ts";

/** Niceness of a thread that works for long: what is answered at once goes first. */
const PATIENT = 10;

function giveWay(): void {
  // On Linux the priority of a thread, on other systems that of the process.
  if (process.platform === "linux") setPriority(0, Math.max(PATIENT, getPriority(0)));
}

/**
 * What runs on the threads of `workers.ts`: the answer, or null when the search takes more steps than the
 * task may.
 */
export async function plan({
  spec,
  profile,
  top,
  ranks,
  plans,
  locate,
  threadsPerRank,
  maximumSteps,
  isPatient,
}: LimitedPlanTask): Promise<WorkResult<PlanningResult> | null> {
  if (isPatient) giveWay();
  try {
    return await resultOf(() => {
      try {
        return planJob(spec, sharedProfile(profile), {
          top,
          ...(ranks === undefined ? {} : { ranks }),
          ...(plans === undefined ? {} : { plans }),
          ...(locate === undefined ? {} : { locate }),
          ...(threadsPerRank === undefined ? {} : { threadsPerRank }),
          ...(maximumSteps === null ? {} : { maximumSteps }),
        });
      } catch (error) {
        throw error instanceof SearchLimitError && maximumSteps !== null ? new TooLong() : error;
      }
    });
  } catch (error) {
    if (error instanceof TooLong) return null;
    throw error;
  }
}

class TooLong extends Error {}

/** A question about plans. */
export async function advise({ question, profile, isPatient }: AdviceTask): Promise<WorkResult<unknown>> {
  if (isPatient) giveWay();
  return resultOf(() =>
    answer({ ...question, ...(profile === null ? {} : { profile: sharedProfile(profile) }) } as Question),
  );
}
