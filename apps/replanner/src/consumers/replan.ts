import {
  formatPercent,
  formatSignedPercent,
  isAnswerable,
  isCarriedOut,
  isWithinWindow,
  planLabel,
  PROPOSAL_STATE_WORDS,
  ProblemError,
  type Candidate,
  type PlanningResult,
  type Proposal,
  type Workload,
} from "@internevo/domain";
import { OthersGoFirstError, type CommandContext, type Effect } from "@internevo/service-kit";
import {
  assertChangeableRun,
  freshProfile,
  noFeasiblePlan,
  obtainProfile,
  searchPlans,
  type ObtainProfileOutcome,
  type ProfilingSettings,
} from "@internevo/stages";
import {
  createProposal,
  earlierProposal,
  finishFiring,
  getFiring,
  getWorkload,
  holdWorkload,
  isBeingTrained,
  mayChangeRuns,
  noteFiringWait,
  planInUse,
  runningWork,
  storePlanChange,
  storePlanning,
  type Database,
  type RunningWork,
  type Transaction,
} from "@internevo/store";
import { comparePlans } from "../compare.ts";

export interface ReplannerSettings extends ProfilingSettings {
  /** Plans that are kept of each search. */
  readonly top: number;
}

const finish =
  (firingId: string, state: "succeeded" | "failed", outcome: string) =>
  (tx: Transaction): Promise<void> =>
    finishFiring(tx, firingId, { state, outcome }).then(() => {});

/**
 * The plan in use with its prediction from the newest measurements; null when it is not feasible any more.
 */
function currentNow(current: Candidate | undefined, result: PlanningResult): Candidate | null | undefined {
  if (!current) return undefined;
  const { located } = result;
  return located?.feasible && located.predicted ? { ...current, predicted: located.predicted } : null;
}

/** The cluster's measurements. @param acceptsOld a run holds the cluster, and keeps it from being measured */
async function measured(
  settings: ReplannerSettings,
  database: Database,
  context: CommandContext<"workload.replan">,
  workload: Workload,
  acceptsOld: boolean,
): Promise<ObtainProfileOutcome | { readonly status: "problem"; readonly problem: ProblemError }> {
  const { firingId } = context.data;
  // A workload of an earlier version may ask to measure everything each time. Only what is old is measured.
  const { measureAgain: _, ...spec } = workload.spec;
  let wait: string | null = null;
  try {
    return await obtainProfile({
      settings,
      database,
      spec,
      asker: { workloadId: workload.id },
      acceptsOld,
      signal: context.signal,
      claimHosts: (hosts) => context.claimHosts(hosts),
      confirm: () => context.confirm(),
      onProgress: (message, done, total, waits = false) => {
        wait = waits ? message : null;
        context.log.debug({ done, total }, message);
      },
      onLog: (line) => context.log.warn({ source: "internevo-probe" }, line),
      onDetails: (message) => context.log.info(message),
    });
  } catch (error) {
    if (error instanceof ProblemError) return { status: "problem", problem: error };
    // It is called again when its turn has come. Until then people see why it waits.
    if (error instanceof OthersGoFirstError)
      await database.transaction((tx) => noteFiringWait(tx, firingId, wait));
    throw error;
  }
}

/** Whether the run that holds a workload's cluster is to measure it, by the workload's policy. */
async function isToMeasure(
  settings: ReplannerSettings,
  database: Database,
  { spec, enabled, policy, mayMeasureRuns, changeWindow, timeZone, notInLastSteps }: Workload,
  run: RunningWork,
): Promise<boolean> {
  if (!enabled || !mayMeasureRuns || policy === "notify" || spec.cluster.profile !== null) return false;
  if (run.lastStep + notInLastSteps >= run.spec.steps) return false;
  if (!isWithinWindow(changeWindow, timeZone, new Date())) return false;
  return (await freshProfile(database, spec, settings)) === undefined;
}

/** Has a run measure its cluster at its next checkpoint, and search: what it finds is a proposal of the workload. */
async function askToMeasure(
  tx: Transaction,
  { id, name, policy, gainThreshold, compareSteps }: Workload,
  run: RunningWork,
  firingId: string,
): Promise<string> {
  if (!(await mayChangeRuns(tx, id))) return "kept the plan in use: the workload was paused meanwhile";
  try {
    assertChangeableRun({ id: run.jobId, spec: run.spec }, run.candidate);
    await storePlanChange(tx, run, {
      state: "searching",
      reason: `workload ${name} is planned again, and no measurements of its cluster are fresh`,
      origin: "workload",
      askedBy: "replanner",
      from: run.candidate,
      to: run.candidate,
      predictedGain: 0,
      gainThreshold,
      compareSteps,
      isTrial: policy === "try",
      firingId,
    });
    return `job ${run.jobId} measures the cluster at its next checkpoint, and searches`;
  } catch (error) {
    if (error instanceof ProblemError) return `kept the plan in use: ${error.message}`;
    throw error;
  }
}

/**
 * Why the same change of plans is not proposed once more; undefined where it is. What was refused, or gained too little,
 * is proposed again when it promises more by the workload's threshold.
 */
function knownAnswer(
  earlier: Proposal | undefined,
  predictedGain: number,
  gainThreshold: number,
): string | undefined {
  if (!earlier) return undefined;
  const { state, measuredGain } = earlier;
  if (isAnswerable(earlier)) return "what was proposed before waits for an answer";
  if (isCarriedOut(earlier)) return "a run goes over to it already";
  if (state !== "dismissed" && state !== "returned") return undefined;
  if (predictedGain > earlier.predictedGain + gainThreshold) return undefined;
  return measuredGain === null
    ? `it was ${PROPOSAL_STATE_WORDS[state].toLowerCase()} before`
    : `it was tried before, and gained ${formatSignedPercent(measuredGain)}`;
}

/**
 * Plans a workload again: measures what is stale, searches, compares with the plan in use, and proposes what
 * is better. Where a run does the workload's work, and holds its cluster, the newest measurements do, however old; or
 * the run measures, where the workload lets it.
 */
export const replan =
  (settings: ReplannerSettings, database: Database) =>
  async (context: CommandContext<"workload.replan">): Promise<Effect> => {
    const { workloadId, firingId } = context.data;
    const workload = await getWorkload(database.db, workloadId);
    const firing = await getFiring(database.db, firingId);
    // Deleted meanwhile, or done by a delivery before this one.
    if (!workload || firing?.state !== "pending") return async () => {};
    await database.transaction((tx) => noteFiringWait(tx, firingId, null));
    const run = await runningWork(database.db, workload);
    if (run && (await isToMeasure(settings, database, workload, run)))
      return async (tx) => finish(firingId, "succeeded", await askToMeasure(tx, workload, run, firingId))(tx);
    const isHeld = run !== undefined || (await isBeingTrained(database.db, workload));
    const profile = await measured(settings, database, context, workload, isHeld);
    if (profile.status !== "obtained")
      return finish(
        firingId,
        "failed",
        `no profile: ${profile.status === "problem" ? profile.problem.message : profile.failure.message}`,
      );
    const current = await planInUse(database.db, workload);
    const result = await searchPlans(
      workload.spec,
      profile.profile,
      {
        top: settings.top,
        threadsPerRank: settings.threadsPerRank,
        ...(current ? { locate: current.plan } : {}),
      },
      context.signal,
    );
    const proposed = result.runnableCandidates[0] ?? result.candidates[0];
    if (!proposed) return finish(firingId, "failed", noFeasiblePlan(workload.spec, result).message);
    const now = currentNow(current, result);
    const comparison = comparePlans(now, proposed, workload.gainThreshold);
    context.log.info(
      { comparison: comparison.kind, proposed: planLabel(proposed.plan) },
      "the workload was planned again",
    );
    const predictedGain = comparison.kind === "better" ? comparison.predictedGain : 0;
    const known = knownAnswer(
      await earlierProposal(database.db, workloadId, {
        current: current?.plan ?? null,
        proposed: proposed.plan,
      }),
      predictedGain,
      workload.gainThreshold,
    );
    return async (tx) => {
      // It may have been deleted while its plans were searched: then nobody asks for them.
      if (!(await holdWorkload(tx, workloadId))) return;
      const profileId = await profile.persist(tx);
      const planningId = await storePlanning(tx, result, { workloadId, profileId });
      if (comparison.kind === "keep")
        return finish(firingId, "succeeded", `kept the plan in use: ${comparison.reason}`)(tx);
      if (known !== undefined)
        return finish(
          firingId,
          "succeeded",
          `proposed nothing new: for ${planLabel(proposed.plan)}, ${known}`,
        )(tx);
      await createProposal(tx, {
        workloadId,
        firingId,
        planningId,
        current: current ?? null,
        proposed,
        predictedGain,
        differences: comparison.differences,
      });
      await finish(firingId, "succeeded", outcomeOf(proposed, current, predictedGain))(tx);
    };
  };

function outcomeOf(proposed: Candidate, current: Candidate | undefined, predictedGain: number): string {
  const label = planLabel(proposed.plan);
  if (!current) return `proposed ${label}: no plan was in use`;
  return predictedGain > 0
    ? `proposed ${label}: predicted to gain ${formatPercent(predictedGain)}`
    : `proposed ${label}: the plan in use does not fit any more`;
}
