import { planLabel, ProblemError, type Proposal, type Workload } from "@internevo/domain";
import {
  assertAnswerable,
  lockJobState,
  lockProposal,
  moveProposal,
  runningWork,
  storePlanChange,
  type Transaction,
} from "@internevo/store";
import { assertChangeableRun } from "./changeable-run.ts";

export interface CarryOut {
  readonly workload: Workload;
  readonly proposalId: string;
  /** `try`: the run goes back when its steps are compared. */
  readonly how: "try" | "apply";
  /** The token or person that asked, or the service. */
  readonly askedBy: string;
  readonly origin: "person" | "workload";
}

const refused = ({ id, proposed }: Proposal, message: string, remedy: string): ProblemError =>
  new ProblemError("conflict", `proposal ${id} cannot be carried out: ${message}`, [
    { field: "proposalId", value: planLabel(proposed.plan), message, remedy },
  ]);

/**
 * Has the run that does a workload's work go over to a proposed plan at its next checkpoint. The proposal goes the
 * way of that change of plan.
 * @throws ProblemError `not-found`; `conflict` where nobody can answer it any more, or no run can go over to it now
 */
export async function carryOutProposal(
  tx: Transaction,
  { workload, proposalId, how, askedBy, origin }: CarryOut,
): Promise<Proposal> {
  const proposal = await lockProposal(tx, workload.id, proposalId);
  assertAnswerable(proposal);
  const { current, proposed } = proposal;
  if (!proposed.runnable)
    throw refused(
      proposal,
      `the trainer cannot run its plan: ${proposed.notRunnableReason ?? ""}`,
      "dismiss it, or export the plan for a framework that runs it",
    );
  const run = await runningWork(tx, workload);
  if (!run || (await lockJobState(tx, run.jobId)) !== "running")
    throw refused(
      proposal,
      "no job of the workload trains now",
      "submit one with its plan: the proposal's `job` of --json is its job file",
    );
  assertChangeableRun({ id: run.jobId, spec: run.spec }, run.candidate);
  const inUse = planLabel(run.candidate.plan);
  if (planLabel(proposed.plan) === inUse)
    throw refused(
      proposal,
      `job ${run.jobId} trains with its plan already`,
      "dismiss it: nothing is left to change",
    );
  if (current !== null && planLabel(current.plan) !== inUse)
    throw refused(
      proposal,
      `it was found for another plan than the ${inUse} of job ${run.jobId}`,
      "plan the workload again, or ask for a change of the job's plan",
    );
  const change = await storePlanChange(tx, run, {
    origin,
    askedBy,
    // By the measurements of the proposal, as its gain: those of the run's own search may be older.
    from: { ...run.candidate, ...(current && { rank: current.rank, predicted: current.predicted }) },
    to: proposed,
    predictedGain: proposal.predictedGain,
    gainThreshold: workload.gainThreshold,
    compareSteps: workload.compareSteps,
    isTrial: how === "try",
    proposalId,
  });
  const moved = await moveProposal(tx, proposalId, {
    to: how === "try" ? "trying" : "applying",
    reason: `asked for by ${askedBy}: plan change ${change.id} of job ${run.jobId}`,
    jobId: run.jobId,
  });
  if (!moved) throw new Error(`proposal ${proposalId} was locked, and moved`);
  return moved;
}
