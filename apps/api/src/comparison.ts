import { MOST_CURVE_POINTS, type Comparison, type JobDetail, type ProfileRecord } from "@internevo/contracts";
import {
  arrangedJob,
  differingFields,
  measuredMfu,
  tokensPerRankPerSecond,
  planLabel,
  RUN_FIGURE_NAMES,
  stepsOfFinalLoss,
  trainedPlan,
  worldSize,
  writtenJob,
  measurementOfPlan,
  type RunFigure,
  type TimedSteps,
} from "@internevo/domain";
import {
  getProfile,
  profileOfPlanning,
  thinnedValidations,
  trainedSteps,
  type MeanOfSteps,
  type Queryable,
  type StepsOfAttempt,
  type ValidationPoint,
} from "@internevo/store";

/** What a comparison knows of one job. */
interface Compared {
  readonly job: JobDetail;
  readonly profile: ProfileRecord | undefined;
  readonly steps: readonly MeanOfSteps[];
  readonly attempts: readonly StepsOfAttempt[];
  readonly validation: readonly ValidationPoint[];
}

/** The profile that a job's plan was chosen by. Its run may have measured the cluster anew since. */
async function choosingProfile(
  db: Queryable,
  { planningId, profileId }: JobDetail,
): Promise<ProfileRecord | undefined> {
  const ofPlanning = planningId === null ? undefined : await profileOfPlanning(db, planningId);
  const id = ofPlanning ?? profileId;
  return id === null ? undefined : getProfile(db, id);
}

async function comparedOf(db: Queryable, job: JobDetail): Promise<Compared> {
  const { points, attempts } = await trainedSteps(db, job.id, MOST_CURVE_POINTS);
  return {
    job,
    profile: await choosingProfile(db, job),
    steps: points,
    attempts,
    validation: await thinnedValidations(db, job.id, MOST_CURVE_POINTS),
  };
}

/** The loss of steps, of which some stand for many. */
function meanLoss(steps: readonly MeanOfSteps[]): number | null {
  const count = steps.reduce((sum, each) => sum + each.steps, 0);
  return count === 0 ? null : steps.reduce((sum, each) => sum + each.steps * each.loss, 0) / count;
}

/** Whether retention took steps of a job: those that are left say nothing of all of them. */
const lacksSteps = ({ removed = [] }: JobDetail): boolean => removed.some(({ kind }) => kind === "steps");

/** The steps of a training by the ranks that made them: as its report counts them, or those that are stored. */
function timedSteps({ job, attempts }: Compared): TimedSteps[] {
  const { report, spec, chosen } = job;
  if (report !== null) {
    const { steps, meanStepTimeSeconds, tokensPerGpuPerSecond } = report;
    const seconds = steps * meanStepTimeSeconds;
    // The report counts each step's time by the ranks that made it: what follows is their mean over all attempts.
    const rankSeconds = (steps * spec.globalBatchTokens) / tokensPerGpuPerSecond;
    return [{ steps, seconds, ranks: rankSeconds / seconds }];
  }
  if (lacksSteps(job)) return [];
  const asked = spec.cluster.nodes * spec.cluster.gpusPerNode;
  return attempts.map(({ attempt, steps, seconds }) => {
    const plan = job.attempts.find(({ number }) => number === attempt)?.plan ?? chosen?.plan;
    return { steps, seconds, ranks: plan === undefined ? asked : worldSize(plan) };
  });
}

/** What a training measured: by its report, or by its steps so far. */
function figuresOf(compared: Compared): Readonly<Record<RunFigure, number | null>> {
  const { job, steps } = compared;
  const { report, chosen, trials, lastValidation } = job;
  const timed = timedSteps(compared);
  const seconds = timed.reduce((sum, each) => sum + each.seconds, 0);
  const counted = timed.reduce((sum, each) => sum + each.steps, 0);
  const lastTenth = steps.slice(-stepsOfFinalLoss(steps.length));
  const plan = trainedPlan(job);
  // Of the plan that is shown, and of no other: where that was not tried, nobody measured it.
  const measured = plan === null ? undefined : measurementOfPlan(trials, plan);
  return {
    steps: report?.steps ?? (job.lastStep > 0 ? job.lastStep : null),
    stepTimeSeconds: counted === 0 ? null : seconds / counted,
    tokensPerGpuPerSecond: counted === 0 ? null : tokensPerRankPerSecond(job.spec, timed),
    mfu: counted === 0 || chosen === null ? null : measuredMfu(chosen, timed),
    peakMemoryBytes: measured?.peakMemoryBytes ?? null,
    lossNats: report?.finalLossNats ?? (lacksSteps(job) ? null : meanLoss(lastTenth)),
    validationLossNats: report?.validation?.lossNats ?? lastValidation?.loss ?? null,
  };
}

/** What of a profile matters to whoever compares what came of it. */
function profileFacts({ job, profile }: Compared): object | null {
  if (profile === undefined) return job.planning === null ? null : { name: job.planning.profile };
  const { device, cluster, executor, quality, provenance } = profile.profile;
  const { source, measuredAt } = provenance;
  return {
    id: profile.id,
    name: profile.name,
    cluster,
    device,
    executor,
    source,
    measuredAt,
    quality: quality?.verdict ?? null,
  };
}

/** What differs between jobs, and how they trained. @param db at one moment for all of them */
export async function compareJobs(db: Queryable, jobs: readonly JobDetail[]): Promise<Comparison> {
  const compared: Compared[] = [];
  for (const job of jobs) compared.push(await comparedOf(db, job));
  const files = jobs.map(({ spec }) => {
    const { name: _, project: _project, cluster, ...file } = arrangedJob(writtenJob(spec));
    return { file, cluster };
  });
  const figures = compared.map(figuresOf);
  return {
    jobs: jobs.map((job) => {
      const { id, name, project, state, createdAt } = job;
      const plan = trainedPlan(job);
      return { id, name, project, state, createdAt, plan: plan && planLabel(plan) };
    }),
    file: differingFields(files.map(({ file }) => file)),
    plan: differingFields(jobs.map(trainedPlan)),
    cluster: differingFields(files.map(({ cluster }) => cluster)),
    profile: differingFields(compared.map(profileFacts)),
    figures: RUN_FIGURE_NAMES.map((figure) => ({
      figure,
      values: figures.map((each) => each[figure]),
    })).filter(({ values }) => values.some((value) => value !== null)),
    losses: compared.map(({ steps, validation }) => ({
      training: steps.map(({ step, loss }) => ({ step, loss })),
      validation: [...validation],
    })),
  };
}
