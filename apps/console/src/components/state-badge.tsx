import type { Attempt, JobState, Trial } from "@internevo/domain";
import { ATTEMPT_STATE_WORDS, JOB_STATE_WORDS, QUEUED_WORD, TRIAL_STATE_WORDS } from "../text/words.ts";

type Tone = "active" | "waiting" | "warning" | "good" | "bad" | "quiet";

const JOB_TONES: Readonly<Record<JobState, Tone>> = {
  profiling: "active",
  planning: "active",
  trialling: "active",
  running: "active",
  held: "warning",
  cancelling: "warning",
  succeeded: "good",
  failed: "bad",
  cancelled: "quiet",
};
const TRIAL_TONES: Readonly<Record<Trial["state"], Tone>> = {
  pending: "waiting",
  running: "active",
  succeeded: "good",
  failed: "bad",
  cancelled: "quiet",
};
const ATTEMPT_TONES: Readonly<Record<Attempt["state"], Tone>> = {
  running: "active",
  succeeded: "good",
  failed: "bad",
  lost: "bad",
  stopped: "quiet",
};

export function Badge({ tone, children }: { tone: Tone; children: string }) {
  return (
    <span className={`badge badge-${tone}`}>
      <span className="badge-dot" aria-hidden="true" />
      {children}
    </span>
  );
}

/** A job that waits for its hosts is queued, whatever stage it is in. */
export const JobStateBadge = ({ state, isQueued = false }: { state: JobState; isQueued?: boolean }) =>
  isQueued ? (
    <Badge tone="waiting">{QUEUED_WORD}</Badge>
  ) : (
    <Badge tone={JOB_TONES[state]}>{JOB_STATE_WORDS[state]}</Badge>
  );
export const TrialStateBadge = ({ state }: { state: Trial["state"] }) => (
  <Badge tone={TRIAL_TONES[state]}>{TRIAL_STATE_WORDS[state]}</Badge>
);
export const AttemptStateBadge = ({ state }: { state: Attempt["state"] }) => (
  <Badge tone={ATTEMPT_TONES[state]}>{ATTEMPT_STATE_WORDS[state]}</Badge>
);
