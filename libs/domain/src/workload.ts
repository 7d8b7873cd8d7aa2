import { Type, type Static } from "typebox";
import { formatPercent } from "./figures.ts";
import { JobSpecSchema, REPLANNING_DEFAULTS, ReplanningSchema } from "./job.ts";
import { CompareStepsSchema, DEFAULT_COMPARE_STEPS } from "./plan-change.ts";
import type { Plan } from "./plan.ts";
import { CandidateSchema } from "./planning.ts";
import { ProjectNameSchema } from "./project.ts";
import { Line, TIME_OF_DAY } from "./text.ts";
import { LEAST_CLEAR_GAIN } from "./trial-statistics.ts";

/**
 * What becomes of a better plan that was found for a workload, where nobody says anything:
 * - `notify`: it is proposed, and waits for somebody's answer.
 * - `try`: a run of the workload trains under it for a few steps, and goes back. Then it waits for an answer.
 * - `apply`: a run goes on under it, and goes back where it gains less than the threshold, or where that is in doubt.
 */
export const REPLAN_POLICIES = ["notify", "try", "apply"] as const;
export type ReplanPolicy = (typeof REPLAN_POLICIES)[number];

const timeOfDay = (description: string) => Type.String({ pattern: TIME_OF_DAY.pattern, description });

/** Hours of each day; over midnight where it ends before it begins. */
export const DailyWindowSchema = Type.Object(
  { from: timeOfDay("for example 22:00"), to: timeOfDay("for example 06:00") },
  { additionalProperties: false },
);
export type DailyWindow = Static<typeof DailyWindowSchema>;

/** Of a workload whose creator leaves something out. */
export const WORKLOAD_DEFAULTS = {
  timeZone: "UTC",
  catchUpWindowSeconds: 6 * 3600,
  gainThreshold: 0.05,
  policy: "notify",
  changeWindow: null,
  compareSteps: DEFAULT_COMPARE_STEPS,
  notInLastSteps: REPLANNING_DEFAULTS.notInLastSteps,
  mayMeasureRuns: false,
} as const;

/** What `apply` keeps at least, in words. */
export const LEAST_KEPT_GAIN = formatPercent(LEAST_CLEAR_GAIN);

/** A workload that is planned again by a schedule. */
export const WorkloadSchema = Type.Object(
  {
    id: Type.String(),
    name: Line(100),
    project: ProjectNameSchema,
    spec: JobSpecSchema,
    cron: Line(200, { description: "five fields, for example `0 3 * * *`" }),
    timeZone: Line(100, { description: "IANA name" }),
    catchUpWindowSeconds: Type.Integer({
      minimum: 0,
      maximum: 31_536_000,
      description: "how late a missed run may still be made up",
    }),
    gainThreshold: Type.Number({
      minimum: 0,
      maximum: 1,
      description:
        "gain in step time, as a fraction: by prediction below which nothing is proposed, and as measured below " +
        "which a run goes back; under the policy apply no run keeps less than two starts of one plan may differ by",
    }),
    policy: Type.Enum(REPLAN_POLICIES, {
      description:
        "notify: a better plan waits for an answer; try: a run tries it for a few steps first; apply: a run goes on under it",
    }),
    changeWindow: Type.Union([DailyWindowSchema, Type.Null()], {
      description: "when runs may be stopped for it, in the workload's time zone; null: at any time",
    }),
    compareSteps: CompareStepsSchema,
    notInLastSteps: ReplanningSchema.properties.notInLastSteps,
    mayMeasureRuns: Type.Boolean({
      description:
        "true: a run that holds the cluster stops at a checkpoint to measure it, where measurements are old",
    }),
    enabled: Type.Boolean({ description: "false: it is paused" }),
    nextRunAt: Type.Union([Type.String(), Type.Null()]),
    lastRunAt: Type.Union([Type.String(), Type.Null()]),
    lastOutcome: Type.Union([Type.String(), Type.Null()]),
    createdAt: Type.String(),
  },
  { additionalProperties: false },
);
export type Workload = Static<typeof WorkloadSchema>;

/** What to tell whoever sets a threshold that the policy `apply` cannot keep to; undefined where it can. */
export function thresholdNote({
  policy,
  gainThreshold,
}: Pick<Workload, "policy" | "gainThreshold">): string | undefined {
  if (policy !== "apply" || gainThreshold >= LEAST_CLEAR_GAIN) return undefined;
  return (
    `The threshold of ${formatPercent(gainThreshold)} is less than a run can show. Two starts of one plan may ` +
    `differ by ${LEAST_KEPT_GAIN}, so a run goes back from what gains less, ` +
    "and the proposal waits for an answer as tried."
  );
}

const { spec: _spec, ...summarized } = WorkloadSchema.properties;
/** A workload as lists say it: without its job, which may be large. */
export const WorkloadSummarySchema = Type.Object(summarized, { additionalProperties: false });
export type WorkloadSummary = Static<typeof WorkloadSummarySchema>;

/**
 * The life of a proposal:
 * - `proposed`: it waits for an answer, or for a run that the workload's policy lets try it.
 * - `trying`: a run trains under it for a few steps, and goes back.
 * - `tried`: the run has gone back; what the plan gained is known.
 * - `applying`: a run goes over to it, and compares.
 * - `applied`: the run keeps it.
 * - `returned`: the run went back: it gained too little, or its ranks failed.
 * - `dismissed`: somebody said no, or nothing was left to change.
 * - `superseded`: a newer proposal, or another plan of the run, took its place.
 */
export const PROPOSAL_STATES = [
  "proposed",
  "trying",
  "tried",
  "applying",
  "applied",
  "returned",
  "dismissed",
  "superseded",
] as const;
export type ProposalState = (typeof PROPOSAL_STATES)[number];

/** Those that somebody can still answer. */
export const ANSWERABLE_PROPOSAL_STATES = ["proposed", "tried"] as const satisfies readonly ProposalState[];
export const isAnswerable = ({ state }: { readonly state: ProposalState }): boolean =>
  (ANSWERABLE_PROPOSAL_STATES as readonly ProposalState[]).includes(state);

/** Those under which a run trains now, or will from its next checkpoint on. */
export const CARRIED_OUT_PROPOSAL_STATES = ["trying", "applying"] as const satisfies readonly ProposalState[];
export const isCarriedOut = ({ state }: { readonly state: ProposalState }): boolean =>
  (CARRIED_OUT_PROPOSAL_STATES as readonly ProposalState[]).includes(state);

export const PROPOSAL_STATE_WORDS: Readonly<Record<ProposalState, string>> = {
  proposed: "Proposed",
  trying: "Being tried",
  tried: "Tried",
  applying: "Being applied",
  applied: "Applied",
  returned: "Taken back",
  dismissed: "Dismissed",
  superseded: "Superseded",
};

/** A better plan that the replanner found: predicted gain and every field that differs. */
export const ProposalSchema = Type.Object(
  {
    id: Type.String(),
    workloadId: Type.String(),
    state: Type.Enum(PROPOSAL_STATES),
    current: Type.Union([CandidateSchema, Type.Null()]),
    proposed: CandidateSchema,
    predictedGain: Type.Number({ description: "1 − proposed step time / current step time" }),
    measuredGain: Type.Union([Type.Number(), Type.Null()], {
      description: "1 − median step time under it / before; null: no run has compared it",
    }),
    jobId: Type.Union([Type.String(), Type.Null()], { description: "the job whose run tried or got it" }),
    reason: Type.Union([Type.String(), Type.Null()], { description: "why it is in its state, in words" }),
    differences: Type.Array(Type.Object({ field: Type.String(), from: Type.Unknown(), to: Type.Unknown() })),
    createdAt: Type.String(),
    changedAt: Type.String({ description: "when it came into its state" }),
  },
  { additionalProperties: false },
);
export type Proposal = Static<typeof ProposalSchema>;

/** The fields in which two plans differ. */
export function differencesOf(
  current: Plan | null,
  proposed: Plan,
): { readonly field: keyof Plan; readonly from: unknown; readonly to: unknown }[] {
  return (Object.keys({ ...current, ...proposed }) as (keyof Plan)[])
    .filter((field) => current?.[field] !== proposed[field])
    .map((field) => ({ field, from: current?.[field] ?? null, to: proposed[field] ?? null }));
}

/** Whether a window is open at a moment. @param window null: always */
export function isWithinWindow(window: DailyWindow | null, timeZone: string, at: Date): boolean {
  if (window === null) return true;
  const now = new Intl.DateTimeFormat("en-GB", {
    timeZone,
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
  }).format(at);
  const { from, to } = window;
  // Times of day sort as their texts do. The same twice: the whole day.
  return from < to ? from <= now && now < to : now >= from || now < to;
}
