import { ProblemError, type JobSpec, type PlanConstraints, type ProblemDetail } from "@internevo/domain";
import { fieldsNeverWritten, isOfPlan } from "./convert.ts";
import type { Framework } from "./framework.ts";

/** Why a plan cannot be said: a detail, whose remedy only plans have that nothing near is said of. */
export type Refusal = Omit<ProblemDetail, "remedy"> & Partial<Pick<ProblemDetail, "remedy">>;

/** How often each field was refused, and why most often. */
class Tally {
  readonly #fields = new Map<string, { count: number; readonly whys: Map<string, [Refusal, number]> }>();

  add(refusals: readonly Refusal[]): void {
    for (const refusal of refusals) {
      const of = this.#fields.get(refusal.field) ?? { count: 0, whys: new Map<string, [Refusal, number]>() };
      this.#fields.set(refusal.field, of);
      of.count += 1;
      const [first, count] = of.whys.get(refusal.message) ?? [refusal, 0];
      of.whys.set(refusal.message, [first, count + 1]);
    }
  }

  /** Of each of the fields that were refused most often: the commonest refusal. */
  get commonest(): readonly Refusal[] {
    const most = Math.max(...[...this.#fields.values()].map(({ count }) => count));
    return [...this.#fields.values()]
      .filter(({ count }) => count === most)
      .flatMap(({ whys }) => [...whys.values()].sort(([, a], [, b]) => b - a).slice(0, 1))
      .map(([refusal]) => refusal);
  }
}

/** Why a framework says none of the plans that a search came across. */
export class Refusals {
  /** Of plans whose ranks, shards and batches can be said. */
  readonly plans = new Tally();
  readonly families = new Tally();

  /** What stands in the way of the plans that come nearest: the commonest of it. */
  get commonest(): readonly Refusal[] {
    const nearest = this.plans.commonest;
    return nearest.length > 0 ? nearest : this.families.commonest;
  }
}

/** What a job fixes of its plan and a framework has no word for. */
export const neverSaid = (framework: Framework, job: JobSpec, fields: readonly string[]): Refusal[] => {
  const reasons: Readonly<Record<string, string | undefined>> = fieldsNeverWritten(framework);
  return fields.map((field) => ({
    field: `plan.${field}`,
    value: job.plan?.[field as keyof PlanConstraints],
    message: reasons[field] ?? "",
  }));
};

/**
 * That a framework says no plan of a job, whatever memory there is.
 * @param refusals why; those of fields that the job fixes are told where there are any.
 */
export function noneSaid(framework: Framework, job: JobSpec, refusals: readonly Refusal[]): ProblemError {
  const fixed = (field: string): unknown =>
    isOfPlan(field) ? job.plan?.[field.slice("plan.".length) as keyof PlanConstraints] : undefined;
  const own = refusals.filter(({ field }) => fixed(field) !== undefined);
  const details = (own.length > 0 ? own : refusals).map((refusal): ProblemDetail => {
    const value = fixed(refusal.field);
    const rest = job.plan === undefined ? "" : "fix less of the job's plan, or ";
    const remedy =
      value === undefined
        ? `${rest}export to another framework`
        : `leave ${refusal.field} free, or export to another framework`;
    return { remedy, ...refusal, ...(value === undefined ? {} : { value }) };
  });
  const [first] = details;
  return new ProblemError(
    "plan-invalid",
    `no plan of the job can be said in ${framework}'s words` +
      (first === undefined ? "" : `: ${first.field}: ${first.message}`),
    details,
  );
}
