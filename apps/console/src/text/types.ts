import type { Attempt, Trial } from "@internevo/domain";

export type {
  FailureCode,
  JobState,
  MemoryLines,
  Plan,
  RejectionReason,
  TimeBreakdown,
} from "@internevo/domain";
export type TrialState = Trial["state"];
export type AttemptState = Attempt["state"];
