import { API_PREFIX, PlanChangeCreateSchema, PlanChangePageSchema } from "@internevo/contracts";
import {
  DEFAULT_COMPARE_STEPS,
  isTerminal,
  Line,
  planLabel,
  PlanChangeSchema,
  ProblemError,
  withoutTrainer,
  worldSize,
  type Candidate,
} from "@internevo/domain";
import { clusterRanks, isRunnable, placementOf } from "@internevo/plan";
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
import { goneSignal } from "./gone.ts";
import { answers, headers, IdParams } from "./shapes.ts";
import { planOf, subjectOf, type SubjectSource } from "./subject.ts";

const tags = ["jobs"];
const ChangeParams = Type.Object({ ...IdParams.properties, changeId: Line(100) });

type Run = NonNullable<Awaited<ReturnType<typeof findRun>>>;

/** @throws ProblemError `conflict` for a job whose plan nothing can change */
function assertChangeable(job: JobRow, run: Run | undefined): asserts run is Run {
  const refuse = (message: string, remedy: string): never => {
    throw new ProblemError("conflict", `the plan of job ${job.id} cannot be changed: it ${message}`, [
      { field: "id", value: job.id, message, remedy },
    ]);
  };
  if (isTerminal(job.state)) refuse(`has ${job.state}`, "ask of a job that trains");
  if (run === undefined)
    return refuse("does not train yet", "ask when it trains; until then it chooses its plan by its trials");
  if (job.spec.checkpointing === null)
    refuse(
      "writes no checkpoints to go on from",
      "submit it with `checkpointing`, or submit it again with the other plan",
    );
  if (worldSize(run.candidate.plan) !== clusterRanks(job.spec))
    refuse("runs on fewer nodes than it asked for", "wait until it has ended, and submit it again");
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

function registerAsking(app: ApiInstance, source: SubjectSource): void {
  const { database, workers } = source;
  app.post(
    "/jobs/:id/plan-changes",
    {
      config: { role: "operator", scope: "job" },
      schema: {
        tags,
        summary: "Change the plan that a job trains with",
        description:
          "Its ranks write a checkpoint, and go on under the new plan. When `compareSteps` steps have run, their " +
          "median time is compared with that of the steps before: with a gain below `gainThreshold` the job goes back to its plan by itself.",
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
        const subject = await subjectOf({ jobId: id }, visibleTo(actorOf(request)), source);
        const { plan: choice, gainThreshold = 0, compareSteps = DEFAULT_COMPARE_STEPS } = request.body;
        const plan = await planOf(choice, "plan", subject, source, gone);
        const { located } = await workers.plan({ ...subject, top: 1, locate: plan }, gone);
        const refused = (message: string): ProblemError =>
          new ProblemError("plan-invalid", `the plan ${message}`, [
            {
              field: "plan",
              value: planLabel(plan),
              message,
              remedy: "name a plan that fits; why-not says what keeps this one from it",
            },
          ]);
        if (planLabel(plan) === planLabel(run.candidate.plan)) throw refused("is the one that the job has");
        if (!located?.feasible || located.predicted === null)
          throw refused(`does not fit: ${located?.reason ?? "it was not found"}`);
        const { runnable, reason } = isRunnable(plan, subject.spec);
        if (!runnable) throw refused(withoutTrainer(reason ?? ""));
        const to: Candidate = {
          rank: located.rank ?? 1,
          plan,
          placement: placementOf(plan, subject.spec.cluster),
          predicted: located.predicted,
          runnable,
          notRunnableReason: reason,
        };
        const predictedGain = 1 - to.predicted.stepTimeSeconds / run.candidate.predicted.stepTimeSeconds;
        const askedBy = actorOf(request).name;
        return {
          run,
          change: {
            origin: "person",
            askedBy,
            from: run.candidate,
            to,
            predictedGain,
            gainThreshold,
            compareSteps,
          },
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
