import { and, asc, desc, eq, gt, gte, inArray, lt, lte, type SQL } from "drizzle-orm";
import { planLabel, type PlanChange, type StepMetric } from "@internevo/domain";
import type { Queryable } from "./database.ts";
import { metricOf } from "./runs.ts";
import { attempts, stepMetrics } from "./schema/index.ts";

/** Attempts that are looked through for the plan before: far more than any run has between two changes of its plan. */
const MOST_ATTEMPTS = 1000;

export interface ComparedSteps {
  /** In order: those under the plan before, up to the checkpoint, and those under the new plan after it. */
  readonly steps: readonly StepMetric[];
  /** What else the hosts did in the attempts of these steps, in sentences, as far as their ranks have said it. */
  readonly disturbances: readonly string[];
}

/**
 * What a change of a run's plan is judged by. Other plans may have run shortly before it, such as one that was tried
 * and taken back: their steps are left out.
 * @param most steps before, and as many after
 */
export async function comparedSteps(
  db: Queryable,
  runId: string,
  change: Pick<PlanChange, "appliedAtStep" | "firstAttempt"> & {
    readonly from: Pick<PlanChange["from"], "plan">;
  },
  most: number,
): Promise<ComparedSteps> {
  const { appliedAtStep, firstAttempt, from } = change;
  if (appliedAtStep === null || firstAttempt === null) return { steps: [], disturbances: [] };
  const ofRun = eq(attempts.runId, runId);
  const earlier = await db
    .select({ number: attempts.number, plan: attempts.plan })
    .from(attempts)
    .where(and(ofRun, lt(attempts.number, firstAttempt)))
    .orderBy(desc(attempts.number))
    .limit(MOST_ATTEMPTS);
  // Attempts of older versions have no plan: then the run had one only.
  const before = earlier.flatMap(({ number, plan }) =>
    plan === null || planLabel(plan) === planLabel(from.plan) ? [number] : [],
  );
  const nearest = (where: SQL | undefined, order: SQL) =>
    db
      .select()
      .from(stepMetrics)
      .where(and(eq(stepMetrics.runId, runId), where))
      .orderBy(order)
      .limit(most);
  const rowsBefore = await nearest(
    and(lte(stepMetrics.step, appliedAtStep), inArray(stepMetrics.attempt, before)),
    desc(stepMetrics.step),
  );
  const rowsAfter = await nearest(
    and(gt(stepMetrics.step, appliedAtStep), gte(stepMetrics.attempt, firstAttempt)),
    asc(stepMetrics.step),
  );
  const steps = [...rowsBefore.reverse(), ...rowsAfter].map(metricOf);
  const said = await db
    .select({ said: attempts.disturbances })
    .from(attempts)
    .where(and(ofRun, inArray(attempts.number, [...new Set(steps.map(({ attempt }) => attempt))])))
    .orderBy(asc(attempts.number));
  return { steps, disturbances: said.flatMap((each) => each.said ?? []) };
}
