import { and, asc, between, desc, eq, gt, max, sql, type SQL } from "drizzle-orm";
import { stepsOfFinalLoss, type Report } from "@internevo/domain";
import type { Queryable } from "./database.ts";
import { attempts, stepMetrics, validationLosses } from "./schema/index.ts";

/*
 * A run may have a thousand million steps. Whoever reads it must not hold them all, and no statement may take longer
 * than its limit. So Postgres adds them up, some at a time.
 */

/** Steps that one statement adds up. It answers within a second. */
const STEPS_AT_ONCE = 50_000;
/** Rows that are read at once where each is looked at. */
const ROWS_AT_ONCE = 10_000;

/** All steps of a run that has none missing. */
export interface StepTotals {
  readonly steps: number;
  readonly seconds: number;
  /** Each step's time by the ranks that made it. */
  readonly rankSeconds: number;
  /** Sum over the last steps, as many as a final loss is the mean of. */
  readonly finalLosses: number;
}

/** Which ranks made the steps of a run. */
export interface RanksOfAttempts {
  readonly byAttempt: ReadonlyMap<number, number>;
  /** Of an attempt that nobody knows. */
  readonly otherwise: number;
}

type Sums = Pick<StepTotals, "seconds" | "rankSeconds" | "finalLosses">;

/**
 * Sums with those of some more steps. Postgres adds them in their order to what is handed to it, as a loop would: the
 * result is the same to the last bit, however many statements it takes. @returns undefined where a step is missing
 */
async function withSteps(
  db: Queryable,
  {
    runId,
    ranks,
    lossAfter,
  }: { readonly runId: string; readonly ranks: RanksOfAttempts; readonly lossAfter: number },
  sums: Sums,
  { first, last }: { readonly first: number; readonly last: number },
): Promise<Sums | undefined> {
  const numbers = sql.param([...ranks.byAttempt.keys()]);
  const counts = sql.param([...ranks.byAttempt.values()]);
  const { rows } = await db.execute<{ [K in keyof Sums]: number } & { counted: number }>(sql`
    select count(step)::int as counted,
      sum(seconds order by place) as seconds,
      sum(rank_seconds order by place) as "rankSeconds",
      sum(loss order by place) as "finalLosses"
    from (
      select null as step, 0 as place, ${sums.seconds}::float8 as seconds,
        ${sums.rankSeconds}::float8 as rank_seconds, ${sums.finalLosses}::float8 as loss
      union all
      select m.step, m.step, m.step_time_seconds,
        m.step_time_seconds * coalesce(r.ranks, ${ranks.otherwise}::int),
        case when m.step > ${lossAfter}::int then m.loss end
      from ${stepMetrics} m
        left join unnest(${numbers}::int[], ${counts}::int[]) r (attempt, ranks) on r.attempt = m.attempt
      where m.run_id = ${runId} and m.step between ${first}::int and ${last}::int
    ) added`);
  const [{ counted, ...more } = { counted: 0, ...sums }] = rows;
  return counted === last - first + 1 ? more : undefined;
}

/** The first step of some that is not stored. */
async function missingStep(
  db: Queryable,
  runId: string,
  { first, last }: { readonly first: number; readonly last: number },
): Promise<number> {
  const { rows } = await db.execute<{ step: number }>(sql`
    select step from generate_series(${first}::int, ${last}::int) step
    where not exists (select from ${stepMetrics} m where m.run_id = ${runId} and m.step = step.step)
    order by step limit 1`);
  return rows[0]?.step ?? first;
}

/**
 * Adds the steps of a run up.
 * @throws Error when a step between the first and the last is missing, or there is none: a step that was not counted
 * must not go unnoticed. The signal's reason.
 */
export async function stepTotals(
  db: Queryable,
  runId: string,
  ranks: RanksOfAttempts,
  signal?: AbortSignal,
): Promise<StepTotals> {
  const [{ steps } = { steps: null }] = await db
    .select({ steps: max(stepMetrics.step) })
    .from(stepMetrics)
    .where(eq(stepMetrics.runId, runId));
  if (steps === null) throw new Error("step 1 is missing: no step is stored");
  const of = { runId, ranks, lossAfter: steps - stepsOfFinalLoss(steps) };
  let sums: Sums = { seconds: 0, rankSeconds: 0, finalLosses: 0 };
  for (let first = 1; first <= steps; first += STEPS_AT_ONCE) {
    signal?.throwIfAborted();
    const some = { first, last: Math.min(steps, first + STEPS_AT_ONCE - 1) };
    const more = await withSteps(db, of, sums, some);
    if (more === undefined) {
      const step = await missingStep(db, runId, some);
      throw new Error(`step ${step} is missing among the stored steps, of which ${steps} is the last`);
    }
    sums = more;
  }
  return { ...sums, steps };
}

/** All validation losses of a run, as its report tells them. */
export type ValidationTotals = NonNullable<Report["validation"]>;

/** Adds the validation losses of a run up. @returns undefined where there is none @throws the signal's reason */
export async function validationTotals(
  db: Queryable,
  runId: string,
  signal?: AbortSignal,
): Promise<ValidationTotals | undefined> {
  let totals: ValidationTotals | undefined;
  for (let after = -1; ;) {
    signal?.throwIfAborted();
    const rows = await db
      .select({ step: validationLosses.step, loss: validationLosses.loss, seconds: validationLosses.seconds })
      .from(validationLosses)
      .where(and(eq(validationLosses.runId, runId), gt(validationLosses.step, after)))
      .orderBy(asc(validationLosses.step))
      .limit(ROWS_AT_ONCE);
    for (const { step, loss, seconds } of rows)
      totals = {
        lossNats: loss,
        best: totals && !(loss < totals.best.lossNats) ? totals.best : { step, lossNats: loss },
        evaluations: (totals?.evaluations ?? 0) + 1,
        seconds: (totals?.seconds ?? 0) + seconds,
      };
    const last = rows.at(-1);
    if (last === undefined || rows.length < ROWS_AT_ONCE) return totals;
    after = last.step;
  }
}

/** A step and how long it took. */
export interface TimedStep {
  readonly step: number;
  readonly stepTimeSeconds: number;
}

/** What is read of an attempt whose beginning is compared with its end. */
export interface EdgesOfAttempt {
  /** Steps of its beginning. */
  readonly first: number;
  /** Steps of its end at least, */
  readonly last: number;
  /** and so many that they took so long together. */
  readonly lastSeconds: number;
}

/** The first and the latest steps of an attempt, in order; all of them where they are few. */
export async function edgesOfAttempt(
  db: Queryable,
  { runId, attempt }: { readonly runId: string; readonly attempt: number },
  { first, last, lastSeconds }: EdgesOfAttempt,
): Promise<TimedStep[]> {
  const resumedFrom = db
    .select({ step: attempts.resumedFromStep })
    .from(attempts)
    .where(and(eq(attempts.runId, runId), eq(attempts.number, attempt)));
  const read = (where: SQL, order: SQL, limit: number): Promise<TimedStep[]> =>
    db
      .select({ step: stepMetrics.step, stepTimeSeconds: stepMetrics.stepTimeSeconds })
      .from(stepMetrics)
      .where(and(eq(stepMetrics.runId, runId), eq(stepMetrics.attempt, attempt), where))
      .orderBy(order)
      .limit(limit);
  const beginning = await read(gt(stepMetrics.step, resumedFrom), asc(stepMetrics.step), first);
  const { step: after = 0 } = beginning.at(-1) ?? {};
  const end: TimedStep[] = [];
  let seconds = 0;
  const isEnough = (): boolean => end.length >= last && seconds >= lastSeconds;
  for (let rest = gt(stepMetrics.step, after); !isEnough();) {
    const rows = await read(rest, desc(stepMetrics.step), ROWS_AT_ONCE);
    for (const each of rows) {
      if (isEnough()) break;
      end.push(each);
      seconds += each.stepTimeSeconds;
    }
    const earliest = rows.at(-1);
    if (earliest === undefined || rows.length < ROWS_AT_ONCE) break;
    rest = between(stepMetrics.step, after + 1, earliest.step - 1);
  }
  return [...beginning, ...end.reverse()];
}
