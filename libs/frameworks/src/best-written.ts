import {
  allowedBy,
  planLabel,
  planValue,
  ProblemError,
  type JobSpec,
  type Plan,
  type PlanConstraints,
  type PlanField,
  type Profile,
} from "@internevo/domain";
import { OVERLAPS, planOfJob, type PlanOfJob } from "@internevo/plan";
import { planJob, type PlanFilter } from "@internevo/search";
import { exportConfiguration, fieldsNeverWritten, fieldsNotWritten, isExact } from "./convert.ts";
import type { ExportedConfiguration, Framework } from "./framework.ts";
import { predictWritten, writtenJob, type WrittenPrediction } from "./written-prediction.ts";

/** A configuration, what it needs and takes, and what the framework can say instead. */
export interface PredictedConfiguration extends ExportedConfiguration {
  readonly predicted: WrittenPrediction;
  /**
   * The fastest plan of the job that fits and that the framework can say field by field; null where none
   * does. Only where what is written is another plan than the one asked for, or does not fit, and where a
   * profile says times.
   */
  readonly best?: WrittenPrediction | null;
}

/** Values of an overlap that some plan has. */
const overlapsOf = <Field extends keyof (typeof OVERLAPS)[number]>(field: Field) => [
  ...new Set(OVERLAPS.map((overlap) => overlap[field])),
];

/**
 * What of the job's space the framework may say: overlap is as the framework does it, unless the job says
 * which it may be. Null where the job asks for what the framework has no word for.
 */
function constraintsOf(framework: Framework, job: JobSpec): PlanConstraints | null {
  const asked: PlanConstraints = job.plan ?? {};
  const defaults = fieldsNeverWritten(framework).map((field) => [field, planValue({}, field)] as const);
  if (defaults.some(([field, value]) => !allowedBy<unknown>(asked[field], value))) return null;
  return {
    forwardOverlap: overlapsOf("forwardOverlap"),
    backwardOverlap: overlapsOf("backwardOverlap"),
    ...asked,
    ...Object.fromEntries(defaults),
  };
}

/** Fields in which plans of one layout, batch, sharding and overlap differ. */
const BELOW: readonly PlanField[] = ["pipelineChunks", "recompute", "recomputeLayers", "gateUp"];
const OVERLAP: readonly PlanField[] = ["forwardOverlap", "backwardOverlap"];

/** The plans that a framework can say field by field. */
export function writtenPlans(framework: Framework, job: JobSpec): PlanFilter {
  const isWrittenBut = (plan: Plan, fields: readonly string[]): boolean =>
    fieldsNotWritten(framework, job, planOfJob(plan, job))?.every((field) => fields.includes(field)) ?? false;
  const asked: PlanConstraints = job.plan ?? {};
  const overlaps = OVERLAPS.filter(
    ({ forwardOverlap, backwardOverlap }) =>
      allowedBy(asked.forwardOverlap, forwardOverlap) && allowedBy(asked.backwardOverlap, backwardOverlap),
  );
  return {
    plan: (plan) => isWrittenBut(plan, []),
    // How ranks share the work decides which overlap a framework does.
    like: (plan) =>
      isWrittenBut(plan, [...BELOW, ...OVERLAP]) &&
      overlaps.some((overlap) => isWrittenBut({ ...plan, ...overlap }, BELOW)),
  };
}

/**
 * The fastest plan that fits and that a framework can say field by field; null where none does.
 * @param said what the framework has no words for, of any plan of the job: its precision, for instance.
 */
function bestWritten(
  framework: Framework,
  job: JobSpec,
  said: Pick<ExportedConfiguration, "inexpressible">,
  profile: Profile,
): PlanOfJob | null {
  const constraints = constraintsOf(framework, job);
  if (constraints === null) return null;
  const accepts = writtenPlans(framework, job);
  const searched = { ...writtenJob(job, said), plan: constraints };
  const plan = planJob(searched, profile, { top: 1, accepts }).candidates[0]?.plan;
  return plan === undefined ? null : planOfJob(plan, job);
}

/** As it is written: with what the framework says of the job itself, which every plan of it shares. */
function exportBestOrNull(
  framework: Framework,
  job: JobSpec,
  profile: Profile,
): ExportedConfiguration | null {
  const roomy = { ...job, cluster: { ...job.cluster, memoryPerGpuBytes: Number.MAX_SAFE_INTEGER } };
  const any = bestWritten(framework, roomy, { inexpressible: [] }, profile);
  if (any === null) return null;
  const ofJob = exportConfiguration(framework, job, any);
  const best = bestWritten(framework, job, ofJob, profile);
  return best && exportConfiguration(framework, job, best);
}

/**
 * The best plan that a framework can say field by field, as its configuration.
 * @throws ProblemError `plan-invalid` where no such plan of the job fits.
 */
export function exportBest(framework: Framework, job: JobSpec, profile: Profile): PredictedConfiguration {
  const exported = exportBestOrNull(framework, job, profile);
  if (exported === null)
    throw new ProblemError("plan-invalid", `no plan that fits can be said in ${framework}'s words`, [
      {
        field: "framework",
        value: framework,
        message: "can say none of the job's plans that fit",
        remedy: "choose another framework, more GPUs or more memory, or fix less of the plan",
      },
    ]);
  return { ...exported, predicted: predictWritten(job, exported, profile) };
}

/** Names the best plan that can be said where the one that was asked for cannot. */
function withBestAsRemedy(error: unknown, framework: Framework, job: JobSpec, profile: Profile): unknown {
  if (!(error instanceof ProblemError && error.code === "plan-invalid")) return error;
  if (error.details.every(({ field }) => !field.startsWith("plan."))) return error;
  const best = exportBestOrNull(framework, job, profile);
  if (best === null) return error;
  const details = error.details.map((detail) => ({
    ...detail,
    remedy: `${detail.remedy}; the best plan that it can say is ${planLabel(best.plan)}`,
  }));
  return new ProblemError(error.code, error.message, details, { cause: error });
}

/**
 * A plan as configuration of another framework, with what that needs and takes.
 * @param profile what was measured; null: memory alone is predicted, and no other plan is looked for.
 * @throws ProblemError `plan-invalid` when nothing near can be said.
 */
export function exportPredicted(
  framework: Framework,
  job: JobSpec,
  plan: PlanOfJob,
  profile: Profile | null,
): PredictedConfiguration {
  let exported: ExportedConfiguration;
  try {
    exported = exportConfiguration(framework, job, plan);
  } catch (error) {
    throw profile === null ? error : withBestAsRemedy(error, framework, job, profile);
  }
  const predicted = predictWritten(job, exported, profile);
  if (profile === null || (isExact(exported) && predicted.fits)) return { ...exported, predicted };
  const best = bestWritten(framework, job, exported, profile);
  return { ...exported, predicted, best: best && predictWritten(job, { ...exported, plan: best }, profile) };
}
