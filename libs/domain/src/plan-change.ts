import { Type, type Static } from "typebox";
import { formatCounted, formatInteger, formatPercent, formatSignedPercent } from "./figures.ts";
import { CandidateSchema, type Candidate } from "./planning.ts";
import { PlanSchema } from "./plan.ts";
import { planLabel } from "./plan-fields.ts";
import { medianOfSteps, noisyRange, rangesTouch } from "./trial-statistics.ts";

/**
 * The life of a change of a run's plan:
 * - `searching`: the run's steps have changed; at its next checkpoint the cluster is measured and plans are searched.
 * - `asked`: the run goes on under its plan until its ranks have written a checkpoint.
 * - `comparing`: the run goes on under the new plan, and its steps are compared with those before.
 * - `kept`: the new plan has shown its gain, and stays.
 * - `returned`: it has not, or cannot run, or was a trial, or the job ended first: the run went back to the plan
 *   before.
 * - `dismissed`: somebody took it back before it was made, no plan was better, or the job ended first.
 * - `superseded`: another plan took its place, such as one for fewer nodes.
 */
export const PLAN_CHANGE_STATES = [
  "searching",
  "asked",
  "comparing",
  "kept",
  "returned",
  "dismissed",
  "superseded",
] as const;
export type PlanChangeState = (typeof PLAN_CHANGE_STATES)[number];

/** A run has one of these at most. */
export const OPEN_PLAN_CHANGE_STATES = [
  "searching",
  "asked",
  "comparing",
] as const satisfies readonly PlanChangeState[];
export const isOpenPlanChange = (state: PlanChangeState): boolean =>
  (OPEN_PLAN_CHANGE_STATES as readonly PlanChangeState[]).includes(state);

/** What somebody may take back: the run's plan is what it was. */
export const DISMISSIBLE_PLAN_CHANGE_STATES = [
  "searching",
  "asked",
] as const satisfies readonly PlanChangeState[];
export const isDismissible = ({ state }: { readonly state: PlanChangeState }): boolean =>
  (DISMISSIBLE_PLAN_CHANGE_STATES as readonly PlanChangeState[]).includes(state);

/**
 * Who found the plan: somebody asked for it by name, the run's own steps led to a search, or a workload was planned
 * again.
 */
export const PLAN_CHANGE_ORIGINS = ["person", "drift", "workload"] as const;
export type PlanChangeOrigin = (typeof PLAN_CHANGE_ORIGINS)[number];

export const GainThresholdSchema = Type.Number({
  minimum: -1,
  maximum: 1,
  description:
    "measured gain below which the run goes back to its plan, as a fraction of the step time; 0: it must not be slower",
});
export const CompareStepsSchema = Type.Integer({
  minimum: 1,
  maximum: 1000,
  description: "steps under the new plan, after the first of its ranks, before it is judged",
});
export const DEFAULT_COMPARE_STEPS = 10;

const nullable = <S extends ReturnType<typeof Type.Number> | ReturnType<typeof Type.String>>(schema: S) =>
  Type.Union([schema, Type.Null()]);
const seconds = (description: string) => nullable(Type.Number({ exclusiveMinimum: 0, description }));

/** What a change says of one of its two plans. */
const PlanOfChangeSchema = Type.Object(
  {
    rank: CandidateSchema.properties.rank,
    plan: PlanSchema,
    stepTimeSeconds: Type.Number({ exclusiveMinimum: 0, description: "predicted" }),
  },
  { additionalProperties: false },
);
type PlanOfChange = Static<typeof PlanOfChangeSchema>;
export const planOfChange = ({ rank, plan, predicted }: Candidate): PlanOfChange => ({
  rank,
  plan,
  stepTimeSeconds: predicted.stepTimeSeconds,
});

export const PlanChangeSchema = Type.Object(
  {
    id: Type.String(),
    jobId: Type.String(),
    state: Type.Enum(PLAN_CHANGE_STATES),
    origin: Type.Enum(PLAN_CHANGE_ORIGINS),
    askedBy: Type.String({ description: "the token or person that asked, or the service" }),
    isTrial: Type.Boolean({
      description: "true: the run goes back when its steps are compared, whatever they gained",
    }),
    proposalId: nullable(Type.String({ description: "the proposal of a workload that it carries out" })),
    from: PlanOfChangeSchema,
    to: PlanOfChangeSchema,
    predictedGain: nullable(
      Type.Number({ description: "1 − predicted step time after / before; null: no other plan was found" }),
    ),
    gainThreshold: GainThresholdSchema,
    compareSteps: CompareStepsSchema,
    appliedAtStep: Type.Union([Type.Integer({ minimum: 0 }), Type.Null()], {
      description: "the checkpoint from which the run went on under the new plan",
    }),
    firstAttempt: Type.Union([Type.Integer({ minimum: 1 }), Type.Null()], {
      description: "the first attempt under the new plan",
    }),
    secondsBefore: seconds("median step time before"),
    secondsAfter: seconds("median step time under the new plan"),
    measuredGain: nullable(Type.Number({ description: "1 − measured step time after / before" })),
    reason: nullable(Type.String({ description: "why it ended so, in words" })),
    createdAt: Type.String(),
    appliedAt: nullable(Type.String()),
    endedAt: nullable(Type.String()),
  },
  { additionalProperties: false },
);
export type PlanChange = Static<typeof PlanChangeSchema>;

export const PLAN_CHANGE_STATE_WORDS: Readonly<Record<PlanChangeState, string>> = {
  searching: "Searching",
  asked: "Asked for",
  comparing: "Being compared",
  kept: "Kept",
  returned: "Taken back",
  dismissed: "Dismissed",
  superseded: "Superseded",
};

/** Whether a change has another plan to go to: a search may be under way, or have found none. */
export const namesAPlan = ({ from, to }: Pick<PlanChange, "from" | "to">): boolean =>
  planLabel(from.plan) !== planLabel(to.plan);

/** What became of a change, or becomes of it, in a line. */
export function planChangeWords(change: PlanChange): string {
  const { state, appliedAtStep, compareSteps: steps, predictedGain, reason } = change;
  const since = appliedAtStep === null ? "" : ` since step ${formatInteger(appliedAtStep)}`;
  if (state === "searching") return `measures the cluster anew at the next checkpoint: ${reason ?? ""}`;
  if (state === "asked")
    return `waits for a checkpoint${predictedGain === null ? "" : `; predicted to gain ${formatSignedPercent(predictedGain)}`}`;
  if (state === "comparing")
    return `trains under it${since}, and is judged after ${formatCounted(steps, "step")}`;
  return `${reason ?? "no reason was stored"}${state === "kept" ? since : ""}`;
}

/** Steps of an attempt that say nothing of its plan: the first makes what later ones have. */
export const WARM_UP_STEPS = 1;

interface TimedStep {
  readonly step: number;
  readonly attempt: number;
  readonly stepTimeSeconds: number;
}

/** Step times without the first steps of each attempt. */
function timesOf(steps: readonly TimedStep[]): number[] {
  const seen = new Map<number, number>();
  return steps.flatMap(({ attempt, stepTimeSeconds }) => {
    const before = seen.get(attempt) ?? 0;
    seen.set(attempt, before + 1);
    return before < WARM_UP_STEPS ? [] : [stepTimeSeconds];
  });
}

export interface Comparison {
  readonly secondsBefore: number | null;
  readonly secondsAfter: number | null;
  readonly measuredGain: number | null;
  /** Noise of either median, as a fraction of it, as trials count theirs; absent where there is no median. */
  readonly noiseBefore?: number;
  readonly noiseAfter?: number;
  /** Steps that count under the new plan. */
  readonly steps: number;
}

/** No step was there to compare, or nobody looked. */
export const NOTHING_COMPARED: Comparison = {
  secondsBefore: null,
  secondsAfter: null,
  measuredGain: null,
  steps: 0,
};

/**
 * Why what was compared says little, as a clause; undefined where nothing speaks against it.
 * @param disturbances what else the hosts did under either plan, in sentences, where the ranks said it
 */
export function comparisonDoubt(
  { secondsBefore, secondsAfter, noiseBefore, noiseAfter }: Comparison,
  disturbances: readonly string[],
): string | undefined {
  if (secondsBefore === null || secondsAfter === null) return undefined;
  const [first, ...more] = disturbances;
  const others = more.length > 0 ? `; and ${more.length} more` : "";
  const doubts = [
    ...(first === undefined ? [] : [`other work ran on the hosts meanwhile (${first}${others})`]),
    ...(noiseBefore !== undefined &&
    noiseAfter !== undefined &&
    rangesTouch(noisyRange(secondsBefore, noiseBefore), noisyRange(secondsAfter, noiseAfter))
      ? [
          `the noise of both, ±${formatPercent(noiseBefore)} and ±${formatPercent(noiseAfter)}, ` +
            "is as large as what lies between them",
        ]
      : []),
  ];
  return doubts.length === 0 ? undefined : doubts.join(", and ");
}

/**
 * What a run's steps say of a change of its plan: medians of as many steps under the new plan as were asked for, and of
 * as many before. Steps beyond the checkpoint that ran under the old plan are neither.
 * @param steps in order, of these two plans only
 */
export function compareSteps(
  steps: readonly TimedStep[],
  change: Pick<PlanChange, "appliedAtStep" | "firstAttempt" | "compareSteps">,
): Comparison {
  const { appliedAtStep, firstAttempt, compareSteps: most } = change;
  if (appliedAtStep === null || firstAttempt === null) return NOTHING_COMPARED;
  const isNew = ({ attempt }: TimedStep): boolean => attempt >= firstAttempt;
  const before = timesOf(steps.filter((one) => one.step <= appliedAtStep && !isNew(one))).slice(-most);
  const after = timesOf(steps.filter((one) => one.step > appliedAtStep && isNew(one))).slice(0, most);
  const medianBefore = before.length === 0 ? undefined : medianOfSteps(before);
  const medianAfter = after.length === 0 ? undefined : medianOfSteps(after);
  return {
    secondsBefore: medianBefore?.seconds ?? null,
    secondsAfter: medianAfter?.seconds ?? null,
    measuredGain: medianBefore && medianAfter ? 1 - medianAfter.seconds / medianBefore.seconds : null,
    ...(medianBefore && { noiseBefore: medianBefore.noise }),
    ...(medianAfter && { noiseAfter: medianAfter.noise }),
    steps: after.length,
  };
}
