import { API_PREFIX, PlanChangeCreateSchema, PlanChangePageSchema } from "@internevo/contracts";
import {
  DEFAULT_COMPARE_STEPS,
  isTerminal,
  Line,
  planLabel,
  PlanChangeSchema,
  ProblemError,
  withoutTrainer,
  type Candidate,
  type Plan,
} from "@internevo/domain";
import { isRunnable, placementOf, type PlanOfJob } from "@internevo/plan";
import { assertChangeableRun, unchangeable } from "@internevo/stages";
import {
  dismissPlanChange,
  findRun,
  getJob,
  listPlanChanges,
  lockJobState,
  storePlanChange,
  type JobRow,
  type NewPlanChange,
} from "@internevo/store";
import { Type } from "typebox";
import { noJob } from "../http/absent.ts";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { mutate, mutateChecked } from "../http/mutations.ts";
import { PageQuery } from "../http/pages.ts";
import { visibleTo } from "../http/rights.ts";
import { goneSignal } from "../http/gone.ts";
import { answers, headers, IdParams } from "./shapes.ts";
import { planOf, subjectOf, type Subject, type SubjectSource } from "./subject.ts";

const tags = ["jobs"];
const ChangeParams = Type.Object({ ...IdParams.properties, changeId: Line(100) });

type Run = NonNullable<Awaited<ReturnType<typeof findRun>>>;

/** @throws ProblemError `conflict` for a job whose plan nothing can change */
function assertChangeable(job: JobRow, run: Run | undefined): asserts run is Run {
  if (isTerminal(job.state)) throw unchangeable(job.id, `has ${job.state}`, "ask of a job that trains");
  if (run === undefined)
    throw unchangeable(
      job.id,
      "does not train yet",
      "ask when it trains; until then it chooses its plan by its trials",
    );
  assertChangeableRun(job, run.candidate);
}

/** Changes of the plan that a job trains with: asked for, made at a checkpoint, and judged by its steps. */
export function registerPlanChangeRoutes(app: ApiInstance, source: SubjectSource): void {
  registerAsking(app, source);
  const { database } = source;
  app.get(
    "/jobs/:id/plan-changes",
    {
      config: { role: "viewer", scope: "job" },
      schema: {
        tags,
        summary: "The changes of a job's plan, newest first",
        params: IdParams,
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers({ 200: PlanChangePageSchema }),
      },
    },
    async (request) => {
      const { id } = request.params;
      if (!(await getJob(database.db, id))) throw noJob(id);
      return listPlanChanges(database.db, id, request.query);
    },
  );
  app.delete(
    "/jobs/:id/plan-changes/:changeId",
    {
      config: { role: "operator", scope: "job" },
      schema: {
        tags,
        summary: "Dismiss a change of a job's plan that was not made yet",
        headers: headers.idempotent,
        params: ChangeParams,
        response: answers({ 200: PlanChangeSchema }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const { id, changeId } = request.params;
        if ((await lockJobState(tx, id)) === undefined) throw noJob(id);
        const reason = `dismissed by ${actorOf(request).name}`;
        return { status: 200, body: await dismissPlanChange(tx, id, changeId, reason), target: id };
      }),
  );
}

const refused = (
  plan: Plan,
  message: string,
  remedy = "name a plan that fits; why-not says what keeps this one from it",
): ProblemError =>
  new ProblemError("plan-invalid", `the plan ${message}`, [
    { field: "plan", value: planLabel(plan), message, remedy },
  ]);

/**
 * The candidate that a plan of the run's job is, by prediction, and what it gains on the run's plan by the same
 * measurements. @throws ProblemError `plan-invalid` for one that does not fit, or that the trainer cannot run
 */
async function predicted(
  plan: PlanOfJob,
  { candidate: inUse }: Run,
  { spec, profile }: Subject,
  { workers }: SubjectSource,
  gone: AbortSignal,
): Promise<Pick<NewPlanChange, "from" | "to" | "predictedGain">> {
  if (planLabel(plan) === planLabel(inUse.plan))
    throw refused(plan, "is the one that the job has", "name another of its plans; show lists them");
  const [now, next] = await Promise.all(
    [inUse.plan, plan].map(
      async (locate) => (await workers.plan({ spec, profile, top: 1, locate }, gone)).located,
    ),
  );
  if (!next?.feasible || next.predicted === null)
    throw refused(plan, `does not fit: ${next?.reason ?? "it was not found"}`);
  const { runnable, reason } = isRunnable(plan, spec);
  if (!runnable) throw refused(plan, withoutTrainer(reason ?? ""));
  const to: Candidate = {
    rank: next.rank ?? 1,
    plan,
    placement: placementOf(plan, spec.cluster),
    predicted: next.predicted,
    runnable,
    notRunnableReason: reason,
  };
  // By the newest measurements, as the other: those of its own search may be older.
  const from: Candidate = {
    ...inUse,
    rank: now?.rank ?? inUse.rank,
    predicted: now?.predicted ?? inUse.predicted,
  };
  return { from, to, predictedGain: 1 - to.predicted.stepTimeSeconds / from.predicted.stepTimeSeconds };
}

function registerAsking(app: ApiInstance, source: SubjectSource): void {
  const { database } = source;
  app.post(
    "/jobs/:id/plan-changes",
    {
      config: { role: "operator", scope: "job" },
      schema: {
        tags,
        summary: "Change the plan that a job trains with",
        description:
          "Its ranks write a checkpoint, and go on under the new plan. When `compareSteps` steps have run, their " +
          "median time is compared with that of the steps before: with a gain below `gainThreshold` the job goes " +
          "back to its plan by itself.",
        headers: headers.idempotent,
        params: IdParams,
        body: PlanChangeCreateSchema,
        response: answers({ 201: PlanChangeSchema }),
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const gone = goneSignal(reply);
      const check = async (): Promise<{ run: Run; change: NewPlanChange }> => {
        const job = await getJob(database.db, id);
        if (!job) throw noJob(id);
        const run = await findRun(database.db, id);
        assertChangeable(job, run);
        const actor = actorOf(request);
        const subject = await subjectOf({ jobId: id }, visibleTo(actor), source);
        const { plan: choice, gainThreshold = 0, compareSteps = DEFAULT_COMPARE_STEPS } = request.body;
        const plan = await planOf(choice, "plan", subject, source, gone);
        const plans = await predicted(plan, run, subject, source, gone);
        return {
          run,
          change: { origin: "person", askedBy: actor.name, ...plans, gainThreshold, compareSteps },
        };
      };
      return mutateChecked(database, request, reply, check, async (tx, { run, change }) => {
        await lockJobState(tx, id);
        const job = await getJob(tx, id);
        if (!job) throw noJob(id);
        // The search took its time.
        assertChangeable(job, run);
        const body = await storePlanChange(tx, { id: run.id, jobId: id }, change);
        return { status: 201, body, target: id, location: `${API_PREFIX}/jobs/${id}/plan-changes` };
      });
    },
  );
}
