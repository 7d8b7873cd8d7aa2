import { planLabel, type Candidate, type Plan, type PlanChangeState } from "@internevo/domain";
import pg from "pg";
import { brokenPlanPromises, type StoredPlans } from "./plan-changes.ts";

interface Step {
  readonly step: number;
  readonly loss: number;
  /** That made it. */
  readonly attempt: number;
}

/** Losses of runs that nothing disturbed: under the plan that a job chose, and under the one that it changed to. */
interface Undisturbed {
  readonly losses: readonly number[];
  readonly otherLosses?: readonly number[];
}

/** What is stored of a job that has ended. */
export interface Stored {
  readonly state: string;
  readonly reason: string | null;
  readonly trials: readonly { readonly state: string; readonly measured: boolean }[];
  /** In the order of steps. */
  readonly steps: readonly Step[];
  readonly attempts: number;
  readonly plans: StoredPlans;
}

type Ask = <T>(text: string) => Promise<T[]>;

async function plansOf(ask: Ask): Promise<StoredPlans> {
  const changes = await ask<{
    state: PlanChangeState;
    from_candidate: Candidate;
    to_candidate: Candidate;
    applied_at_step: number | null;
  }>(
    `select c.state, c.from_candidate, c.to_candidate, c.applied_at_step
     from plan_changes c join runs r on r.id = c.run_id where r.job_id = $1 order by c.created_at`,
  );
  const attempts = await ask<{ plan: Plan }>(
    `select a.plan from attempts a join runs r on r.id = a.run_id
     where r.job_id = $1 and a.plan is not null order by a.number`,
  );
  const [run] = await ask<{ candidate: Candidate }>("select candidate from runs where job_id = $1");
  return {
    changes: changes.map((row) => ({
      state: row.state,
      from: planLabel(row.from_candidate.plan),
      to: planLabel(row.to_candidate.plan),
      appliedAtStep: row.applied_at_step,
    })),
    attempts: attempts.map(({ plan }) => planLabel(plan)),
    run: run === undefined ? null : planLabel(run.candidate.plan),
  };
}

/** Reads what is stored of a job, past the API: what is counted twice there would be hidden. */
export async function storedOf(databaseUrl: string, jobId: string): Promise<Stored> {
  const db = new pg.Client({ connectionString: databaseUrl });
  await db.connect();
  try {
    const ask: Ask = async <T>(text: string): Promise<T[]> => (await db.query(text, [jobId])).rows as T[];
    const [job] = await ask<{ state: string; reason: string | null }>(
      "select state, reason from jobs where id = $1",
    );
    const [attempts] = await ask<{ count: string }>(
      "select count(*) from attempts a join runs r on r.id = a.run_id where r.job_id = $1",
    );
    return {
      state: job?.state ?? "gone",
      reason: job?.reason ?? null,
      trials: await ask("select state, measured is not null as measured from trials where job_id = $1"),
      steps: await ask(
        "select m.step, m.loss, m.attempt from step_metrics m join runs r on r.id = m.run_id " +
          "where r.job_id = $1 order by m.step",
      ),
      attempts: Number(attempts?.count ?? 0),
      plans: await plansOf(ask),
    };
  } finally {
    await db.end();
  }
}

/** The promises that a job has to keep whatever died. */
export function brokenPromises(
  stored: Stored,
  expected: Undisturbed & { readonly trials: number; readonly steps: number },
): string[] {
  const broken: string[] = [];
  if (stored.state !== "succeeded") broken.push(`it ended as ${stored.state}: ${stored.reason ?? ""}`);
  const { length: trials } = stored.trials;
  if (trials !== expected.trials) broken.push(`it has ${trials} trials and not ${expected.trials}`);
  const unmeasured = stored.trials.filter(({ measured }) => !measured).length;
  if (unmeasured > 0) broken.push(`${unmeasured} of its trials were not measured`);
  const steps = stored.steps.map(({ step }) => step);
  if (steps.some((step, index) => step !== index + 1) || steps.length !== expected.steps)
    broken.push(`its ${steps.length} steps are not each of 1 to ${expected.steps} once`);
  const back = stored.steps.find(({ attempt }, index) => attempt < (stored.steps[index - 1]?.attempt ?? 0));
  if (back !== undefined)
    broken.push(`its step ${back.step} is of attempt ${back.attempt}, and the one before is of a later one`);
  const isExpected = isAsUndisturbed(stored, expected);
  const other = stored.steps.find((each) => !isExpected(each));
  if (other !== undefined)
    broken.push(`the loss of step ${other.step} is not that of a run that nothing disturbed`);
  return [...broken, ...brokenPlanPromises(stored.plans)];
}

/** So much a loss may differ at once when sums are added in another order, as they are under another plan. */
const OTHER_ORDER_DIFFERENCE = 1e-6;
/** So many times as far as two undisturbed runs under the two plans lie apart: each step amplifies the difference. */
const TIMES_APART = 2;

const apart = (loss: number, other: number): number => Math.abs(loss / other - 1);

/**
 * Bit by bit, until a change of plan was made. After it at most so far apart as undisturbed runs under both plans came
 * by that step: what was not carried over whole would be further off at once.
 */
function isAsUndisturbed(
  { plans }: Stored,
  { losses, otherLosses = [] }: Undisturbed,
): (at: Step) => boolean {
  const from = plans.changes[0]?.appliedAtStep ?? Infinity;
  let most = OTHER_ORDER_DIFFERENCE;
  return ({ step, loss }) => {
    const expected = losses[step - 1];
    const other = otherLosses[step - 1];
    if (expected === undefined) return false;
    if (other !== undefined) most = Math.max(most, TIMES_APART * apart(other, expected));
    return loss === expected || (step > from && apart(loss, expected) <= most);
  };
}

/** The largest relative difference of a loss from that of a run that nothing disturbed. */
export const largestDifference = ({ steps }: Stored, losses: readonly number[]): number =>
  steps.reduce((most, { step, loss }) => Math.max(most, apart(loss, losses[step - 1] ?? loss)), 0);
