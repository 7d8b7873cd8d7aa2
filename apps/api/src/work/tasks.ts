import type { JobSpec, Plan, Profile } from "@internevo/domain";
import type { Question } from "./advice.ts";
import type { SharedProfile } from "./shared-profile.ts";

export interface PlanTask {
  readonly spec: JobSpec;
  readonly profile: Profile;
  readonly top: number;
  /** Only the candidates of these ranks, up to `top`. */
  readonly ranks?: readonly number[];
  /** Also list so many of the best plans whatever their family. */
  readonly plans?: number;
  /** A plan whose place is asked for. */
  readonly locate?: Plan;
  /** Threads that one rank computes with; 1 unless told. */
  readonly threadsPerRank?: number;
}

/** A job, of which is counted what it measures first. */
export interface CountTask {
  readonly spec: JobSpec;
  /** What is fresh and comparable; null: nothing is. */
  readonly fresh: SharedProfile | null;
}

/** What a search may take before it comes back unanswered. */
export interface SearchLimit {
  /** Batches and families of plans: the same on every machine. */
  readonly steps: number;
  /** Of processor time, whatever a step takes. */
  readonly seconds: number;
}

/** What a thread is told while it works: see `stoppable-threads.ts`. */
export interface StoppableTask {
  /** One number of 32 bits; not zero: nobody waits for the answer any more. */
  readonly stop: SharedArrayBuffer;
}

/** A task for a thread; with a limit it may come back unanswered. */
export interface LimitedPlanTask extends Omit<PlanTask, "profile"> {
  readonly profile: SharedProfile;
  readonly limit: SearchLimit | null;
  /** Whether it may take long, and gives way to what is answered at once. */
  readonly isPatient: boolean;
}

/** A question whose profile, if it has one, is shared memory. */
export interface AdviceTask {
  readonly question: { readonly kind: Question["kind"] };
  readonly profile: SharedProfile | null;
  /** Of its searches together; with a limit it may come back unanswered. */
  readonly limitSeconds: number | null;
  /** Whether it may take long, and gives way to what is answered at once. */
  readonly isPatient: boolean;
}
