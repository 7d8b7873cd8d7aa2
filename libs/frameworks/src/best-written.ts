import {
  allowedBy,
  formatBytes,
  NONE_DIVIDES_REMEDY,
  planLabel,
  planValue,
  ProblemError,
  rejectionCounts,
  type JobSpec,
  type Plan,
  type PlanConstraints,
  type PlanExtension,
  type PlanField,
  type Profile,
} from "@internevo/domain";
import { OVERLAPS, planOfJob, type PlanOfJob } from "@internevo/plan";
import { planJob, type PlanFilter } from "@internevo/search";
import {
  assertJobSaid,
  exportConfiguration,
  fieldsNeverWritten,
  isExact,
  isOfPlan,
  notWritten,
  type NotWritten,
} from "./convert.ts";
import type { ExportedConfiguration, Framework } from "./framework.ts";
import { neverSaid, noneSaid, Refusals, type Refusal } from "./refusals.ts";
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

const neverFields = (framework: Framework): readonly PlanExtension[] =>
  Object.keys(fieldsNeverWritten(framework)) as PlanExtension[];

/** Fields that the job fixes to what the framework has no word for. */
const fixedUnsaid = (framework: Framework, { plan: asked = {} }: JobSpec): readonly PlanExtension[] =>
  neverFields(framework).filter((field) => !allowedBy<unknown>(asked[field], planValue({}, field)));

/** The job's space: overlap is as the framework does it, unless the job says which it may be. */
const spaceOf = (job: JobSpec): PlanConstraints => ({
  forwardOverlap: overlapsOf("forwardOverlap"),
  backwardOverlap: overlapsOf("backwardOverlap"),
  ...job.plan,
});

/** What of the job's space the framework may say. */
const constraintsOf = (framework: Framework, job: JobSpec): PlanConstraints => ({
  ...spaceOf(job),
  ...Object.fromEntries(neverFields(framework).map((field) => [field, planValue({}, field)])),
});

/** Fields in which plans of one layout, batch, sharding and overlap differ. */
const BELOW: readonly PlanField[] = ["pipelineChunks", "recompute", "recomputeLayers", "gateUp"];
const OVERLAP: readonly PlanField[] = ["forwardOverlap", "backwardOverlap"];

/**
 * The plans that a framework can say field by field.
 * @param refusals where it is noted why others cannot be said.
 */
export function writtenPlans(framework: Framework, job: JobSpec, refusals = new Refusals()): PlanFilter {
  const judged = (plan: Plan): NotWritten => notWritten(framework, job, planOfJob(plan, job));
  const isBut = ({ fields: unsaid }: NotWritten, fields: readonly string[]): boolean =>
    unsaid?.every((field) => fields.includes(field)) ?? false;
  const refuse = (
    tally: Refusals["plans"],
    { fields, reasons }: NotWritten,
    but: readonly string[],
  ): false => {
    tally.add(fields === null ? reasons : reasons.filter((_, index) => !but.includes(fields[index] ?? "")));
    return false;
  };
  const asked: PlanConstraints = job.plan ?? {};
  const overlaps = OVERLAPS.filter(
    ({ forwardOverlap, backwardOverlap }) =>
      allowedBy(asked.forwardOverlap, forwardOverlap) && allowedBy(asked.backwardOverlap, backwardOverlap),
  );
  return {
    plan: (plan) => {
      const found = judged(plan);
      return isBut(found, []) || refuse(refusals.plans, found, []);
    },
    // How ranks share the work decides which overlap a framework does.
    like: (plan) => {
      const but = [...BELOW, ...OVERLAP];
      const found = judged(plan);
      if (!isBut(found, but)) return refuse(refusals.families, found, but);
      const refused: NotWritten[] = [];
      for (const overlap of overlaps) {
        const one = judged({ ...plan, ...overlap });
        if (isBut(one, BELOW)) return true;
        refused.push(one);
      }
      for (const one of refused) refuse(refusals.families, one, BELOW);
      return false;
    },
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
  refusals?: Refusals,
): PlanOfJob | null {
  if (fixedUnsaid(framework, job).length > 0) return null;
  const accepts = writtenPlans(framework, job, refusals);
  const searched = { ...writtenJob(job, said), plan: constraintsOf(framework, job) };
  const plan = planJob(searched, profile, { top: 1, accepts }).candidates[0]?.plan;
  return plan === undefined ? null : planOfJob(plan, job);
}

/** The job on GPUs without a limit of memory. */
const roomy = (job: JobSpec): JobSpec => ({
  ...job,
  cluster: { ...job.cluster, memoryPerGpuBytes: Number.MAX_SAFE_INTEGER },
});

/**
 * The fastest plan that a framework can say, whether it fits or not.
 * @throws ProblemError `plan-invalid` where it says none: with what stands in the way.
 */
function bestSaid(framework: Framework, job: JobSpec, profile: Profile): PlanOfJob {
  assertJobSaid(framework, job);
  const fixed = fixedUnsaid(framework, job);
  if (fixed.length > 0) throw noneSaid(framework, job, neverSaid(framework, job, fixed));
  const refusals = new Refusals();
  const any = bestWritten(framework, roomy(job), { inexpressible: [] }, profile, refusals);
  if (any !== null) return any;
  if (refusals.commonest.length > 0) throw noneSaid(framework, job, refusals.commonest);
  throw noneSaid(framework, job, refusalsOfSpace(framework, job, profile));
}

/** Why no plan is said where every one of the job has what the framework has no word for, or where it has none. */
function refusalsOfSpace(framework: Framework, job: JobSpec, profile: Profile): readonly Refusal[] {
  const refusals = new Refusals();
  const { like } = writtenPlans(framework, job, refusals);
  const accepts = { like: (plan: Plan) => like(plan) && false, plan: () => false };
  planJob({ ...roomy(job), plan: spaceOf(job) }, profile, { top: 1, accepts });
  if (refusals.commonest.length > 0) return refusals.commonest;
  const { unmet, counts } = planJob(roomy(job), profile, { top: 1 });
  const message = unmet ?? `no plan divides the job: ${rejectionCounts(counts.rejected)}`;
  const remedy = `${NONE_DIVIDES_REMEDY}, or fix less of the job's plan`;
  return [{ field: "plan", value: job.plan ?? null, message, remedy }];
}

/**
 * The best plan that fits, as it is written: with what the framework says of the job itself, which every plan
 * of it shares.
 * @throws ProblemError `plan-invalid` where no such plan of the job can be said, or fits.
 */
function exportFitting(framework: Framework, job: JobSpec, profile: Profile): ExportedConfiguration {
  const any = exportConfiguration(framework, job, bestSaid(framework, job, profile));
  const best = bestWritten(framework, job, any, profile);
  if (best !== null) return exportConfiguration(framework, job, best);
  const { peakMemoryBytes, memoryLimitBytes } = predictWritten(job, any, profile);
  const limit = formatBytes(memoryLimitBytes);
  throw new ProblemError("plan-invalid", `no plan that fits can be said in ${framework}'s words`, [
    {
      field: "cluster.memoryPerGpu",
      value: limit,
      message:
        `is too little for every plan that ${framework} can say: the fastest, ` +
        `${planLabel(any.plan)}, needs ${formatBytes(peakMemoryBytes)}`,
      remedy: `choose more GPUs or more memory, ${job.plan === undefined ? "" : "fix less of the job's plan, "}or export to another framework`,
    },
  ]);
}

/**
 * The best plan that a framework can say field by field, as its configuration.
 * @throws ProblemError `plan-invalid` where no such plan of the job can be said, or fits.
 */
export function exportBest(framework: Framework, job: JobSpec, profile: Profile): PredictedConfiguration {
  const exported = exportFitting(framework, job, profile);
  return { ...exported, predicted: predictWritten(job, exported, profile) };
}

/** As {@link exportFitting}; null where it refuses. */
function exportBestOrNull(
  framework: Framework,
  job: JobSpec,
  profile: Profile,
): ExportedConfiguration | null {
  try {
    return exportFitting(framework, job, profile);
  } catch (error) {
    if (error instanceof ProblemError && error.code === "plan-invalid") return null;
    throw error;
  }
}

/** Names the best plan that can be said where the one that was asked for cannot. */
function withBestAsRemedy(error: unknown, framework: Framework, job: JobSpec, profile: Profile): unknown {
  if (!(error instanceof ProblemError && error.code === "plan-invalid")) return error;
  if (!error.details.some(({ field }) => isOfPlan(field))) return error;
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
