import {
  formatPercent,
  planLabel,
  ProblemError,
  type Candidate,
  type PlanningResult,
  type Workload,
} from "@internevo/domain";
import type { CommandContext, Effect } from "@internevo/service-kit";
import {
  noFeasiblePlan,
  obtainProfile,
  searchPlans,
  type ObtainProfileOutcome,
  type ProfilingSettings,
} from "@internevo/stages";
import {
  createProposal,
  finishFiring,
  getFiring,
  getWorkload,
  planInUse,
  storePlanning,
  type Database,
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

async function measured(
  settings: ReplannerSettings,
  database: Database,
  context: CommandContext<"workload.replan">,
  workload: Workload,
): Promise<ObtainProfileOutcome | { readonly status: "problem"; readonly problem: ProblemError }> {
  try {
    return await obtainProfile({
      settings,
      database,
      spec: workload.spec,
      asker: { workloadId: workload.id },
      signal: context.signal,
      claimHosts: (hosts) => context.claimHosts(hosts),
      confirm: () => context.confirm(),
      onProgress: (message, done, total) => context.log.debug({ done, total }, message),
      onLog: (line) => context.log.warn({ source: "internevo-probe" }, line),
    });
  } catch (error) {
    if (error instanceof ProblemError) return { status: "problem", problem: error };
    throw error;
  }
}

/**
 * Plans a workload again: measures what is stale, searches, compares with the plan in use, and proposes what
 * is better.
 */
export const replan =
  (settings: ReplannerSettings, database: Database) =>
  async (context: CommandContext<"workload.replan">): Promise<Effect> => {
    const { workloadId, firingId } = context.data;
    const workload = await getWorkload(database.db, workloadId);
    const firing = await getFiring(database.db, firingId);
    // Deleted meanwhile, or done by a delivery before this one.
    if (!workload || firing?.state !== "pending") return async () => {};
    const profile = await measured(settings, database, context, workload);
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
    return async (tx) => {
      const profileId = await profile.persist(tx);
      const planningId = await storePlanning(tx, result, { workloadId, profileId });
      if (comparison.kind === "keep")
        return finish(firingId, "succeeded", `kept the plan in use: ${comparison.reason}`)(tx);
      const predictedGain = comparison.kind === "better" ? comparison.predictedGain : 0;
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
