import { isWithinWindow, planLabel, ProblemError, type Proposal, type Workload } from "@internevo/domain";
import { carryOutProposal } from "@internevo/stages";
import { mayChangeRuns, moveProposal, proposalsToPursue, runningWork, type Database } from "@internevo/store";

export interface Pursued {
  readonly proposal: Proposal;
  readonly workload: Workload;
}

/**
 * Has runs try or get what was proposed for their workloads, as far as the workloads' policies and windows let them.
 * What cannot be done now is looked at again the next time.
 * @param askedBy the service
 * @returns what runs were asked for
 */
export async function pursueProposals(database: Database, now: Date, askedBy: string): Promise<Pursued[]> {
  const asked: Pursued[] = [];
  for (const { workload, proposal } of await proposalsToPursue(database.db)) {
    if (workload.policy === "notify" || !isWithinWindow(workload.changeWindow, workload.timeZone, now))
      continue;
    const how = workload.policy;
    const moved = await database
      .transaction(async (tx) => {
        if (!(await mayChangeRuns(tx, workload.id))) return undefined;
        const run = await runningWork(tx, workload);
        if (!run || run.lastStep + workload.notInLastSteps >= run.spec.steps) return undefined;
        const inUse = planLabel(run.candidate.plan);
        const { current, proposed } = proposal;
        if (planLabel(proposed.plan) === inUse || (current && planLabel(current.plan) !== inUse)) {
          const reason = `job ${run.jobId} trains with ${inUse} by now`;
          await moveProposal(tx, proposal.id, { to: "superseded", reason, jobId: run.jobId });
          return undefined;
        }
        return carryOutProposal(tx, { workload, proposalId: proposal.id, how, askedBy, origin: "workload" });
      })
      .catch((error: unknown) => {
        // Somebody else changes the run's plan, or has answered: the next look sees what came of it.
        if (error instanceof ProblemError) return undefined;
        throw error;
      });
    if (moved) asked.push({ proposal: moved, workload });
  }
  return asked;
}
