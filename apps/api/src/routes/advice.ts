import { clusterSizes, measuredOfBoth, sweptJobs } from "@internevo/advisor";
import {
  CheapestClusterRequestSchema,
  CheapestClusterSchema,
  ExplainRequestSchema,
  ExplanationSchema,
  LargestSequenceRequestSchema,
  LargestSequenceSchema,
  MemoryRequestSchema,
  MOST_PARETO_POINTS,
  ParetoRequestSchema,
  ParetoSchema,
  PlanMemorySchema,
  SweepRequestSchema,
  SweepSchema,
  WhyNotRequestSchema,
  WhyNotSchema,
  type ClusterChoiceAnswer,
} from "@internevo/contracts";
import { assertHeadroomOfAxis, withoutHeadroom, type Candidate, type Tried } from "@internevo/domain";
import type { PlanOfJob } from "@internevo/plan";
import { listTrials } from "@internevo/store";
import type { TSchema } from "typebox";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { visibleTo } from "../http/rights.ts";
import { inTurns } from "../work/turns.ts";
import { EXAMPLES } from "./advice-examples.ts";
import { withEstimates } from "./estimates.ts";
import { goneSignal } from "../http/gone.ts";
import { answers, withExample } from "./shapes.ts";
import { anyPlanOf, headroomOf, planOf, plansOf, subjectOf, type SubjectSource } from "./subject.ts";

/** Points of a front that are one turn of a thread. */
const POINTS_A_TURN = 4;

/** A question that every role may ask, and that stores nothing. */
const question = <Body extends TSchema, Answer extends TSchema>(
  tag: string,
  summary: string,
  body: Body,
  example: unknown,
  answer: Answer,
) => ({
  config: { role: "viewer" as const, scope: "subject" as const },
  schema: { tags: [tag], summary, body: withExample(body, example), response: answers({ 200: answer }) },
});

/** What a submitted job's trials were, and what they measured; of a job file there are none. */
async function triedOf(jobId: string | undefined, { database }: SubjectSource): Promise<Tried[]> {
  const trials = jobId === undefined ? [] : await listTrials(database.db, jobId);
  return trials.map(({ candidate, measured }) => ({ candidate, measured }));
}

/** Why a plan is not chosen, how one wins over another, and what a rank's memory holds. */
function registerPlanQuestions(app: ApiInstance, source: SubjectSource): void {
  const { workers } = source;
  app.post(
    "/plans/why-not",
    question(
      "plans",
      "Why a plan is not chosen, and the smallest change that makes it feasible; or what is better",
      WhyNotRequestSchema,
      EXAMPLES.whyNot,
      WhyNotSchema,
    ),
    async (request, reply) => {
      const gone = goneSignal(reply);
      const subject = await subjectOf(request.body, visibleTo(actorOf(request)), source);
      return workers.advise<"why-not">(
        {
          kind: "why-not",
          ...subject,
          plan: await anyPlanOf(request.body.plan, "plan", subject, source, gone),
          trials: await triedOf(request.body.jobId, source),
        },
        gone,
      );
    },
  );
  app.post(
    "/plans/explain",
    question(
      "plans",
      "How one plan wins over another, term by term",
      ExplainRequestSchema,
      EXAMPLES.explain,
      ExplanationSchema,
    ),
    async (request, reply) => {
      const gone = goneSignal(reply);
      const subject = await subjectOf(request.body, visibleTo(actorOf(request)), source);
      const [a, b] = (await plansOf(
        [
          { choice: request.body.a, field: "a" },
          { choice: request.body.b, field: "b" },
        ],
        subject,
        source,
        gone,
      )) as [PlanOfJob, PlanOfJob];
      const measured = measuredOfBoth(await triedOf(request.body.jobId, source), a, b);
      return workers.advise<"explain">({ kind: "explain", ...subject, a, b, measured }, gone);
    },
  );
  app.post(
    "/plans/memory",
    question(
      "plans",
      "Predicted memory of a rank of every pipeline stage, by line",
      MemoryRequestSchema,
      EXAMPLES.memory,
      PlanMemorySchema,
    ),
    async (request, reply) => {
      const gone = goneSignal(reply);
      const subject = await subjectOf(request.body, visibleTo(actorOf(request)), source);
      return workers.advise<"memory">(
        { kind: "memory", ...subject, plan: await planOf(request.body.plan, "plan", subject, source, gone) },
        gone,
      );
    },
  );
}

/** The best plan under other circumstances. */
function registerWhatIf(app: ApiInstance, source: SubjectSource): void {
  const { workers } = source;
  app.post(
    "/what-if/sweep",
    question(
      "what-if",
      "The best plan at each value of one axis, everything else as in the job",
      SweepRequestSchema,
      EXAMPLES.sweep,
      SweepSchema,
    ),
    async (request, reply) => {
      const { axis, values, headroom } = request.body;
      assertHeadroomOfAxis(axis, headroomOf(headroom), "headroom");
      const subject = await subjectOf(request.body, visibleTo(actorOf(request)), source);
      const gone = goneSignal(reply);
      const rows = await inTurns(values, workers.adviceThreads, gone, (value, signal) =>
        workers.advise<"sweep">({ kind: "sweep", ...subject, axis, value }, signal),
      );
      const swept = sweptJobs(subject.spec, axis, rows);
      return withEstimates({ axis, rows }, { asked: request.body, subject }, swept, workers, gone);
    },
  );
  app.post(
    "/what-if/largest-sequence",
    question(
      "what-if",
      "The longest sequence for which a plan fits, and what ends it",
      LargestSequenceRequestSchema,
      EXAMPLES.largestSequence,
      LargestSequenceSchema,
    ),
    async (request, reply) => {
      const { unitTokens = 1024, sequences = 1 } = request.body;
      const gone = goneSignal(reply);
      const subject = await subjectOf(request.body, visibleTo(actorOf(request)), source);
      const answer = await workers.advise<"largest-sequence">(
        { kind: "largest-sequence", ...subject, unitTokens, sequences },
        gone,
      );
      const { best, sequenceLengthTokens, globalBatchTokens } = answer;
      const planned = best === null ? [] : [{ ...subject.spec, sequenceLengthTokens, globalBatchTokens }];
      return withEstimates(answer, { asked: request.body, subject }, planned, workers, gone);
    },
  );
}

function registerPareto(app: ApiInstance, source: SubjectSource): void {
  const { workers } = source;
  app.post(
    "/what-if/pareto",
    question(
      "what-if",
      "The Pareto-optimal plans: no other is both faster and smaller",
      ParetoRequestSchema,
      EXAMPLES.pareto,
      ParetoSchema,
    ),
    async (request, reply) => {
      const { points = MOST_PARETO_POINTS } = request.body;
      const gone = goneSignal(reply);
      const subject = await subjectOf(request.body, visibleTo(actorOf(request)), source);
      const { profile } = subject;
      const spec = withoutHeadroom(subject.spec);
      const front: Candidate[] = [];
      // The front below a point is the front of a cluster with a little less memory than the point needs.
      let memoryPerGpuBytes = spec.cluster.memoryPerGpuBytes;
      let isWhole = false;
      while (!isWhole && front.length < points) {
        const asked = Math.min(POINTS_A_TURN, points - front.length);
        const found = await workers.advise<"pareto">(
          {
            kind: "pareto",
            spec: { ...spec, cluster: { ...spec.cluster, memoryPerGpuBytes } },
            profile,
            points: asked,
          },
          gone,
        );
        front.push(...found);
        memoryPerGpuBytes = (found.at(-1)?.predicted.peakMemoryBytes ?? 0) - 1;
        isWhole = found.length < asked || memoryPerGpuBytes < 1;
      }
      const planned = front.length > 0 ? [spec] : [];
      return withEstimates({ front, isWhole }, { asked: request.body, subject }, planned, workers, gone);
    },
  );
}

function registerCheapestCluster(app: ApiInstance, source: SubjectSource): void {
  const { workers } = source;
  app.post(
    "/what-if/cheapest-cluster",
    question(
      "what-if",
      "The cheapest cluster that trains so many tokens in time",
      CheapestClusterRequestSchema,
      EXAMPLES.cheapestCluster,
      CheapestClusterSchema,
    ),
    async (request, reply) => {
      const { tokens, seconds, pricePerGpuHour, nodes: asked } = request.body;
      const subject = await subjectOf(request.body, visibleTo(actorOf(request)), source);
      const sizes = asked ?? clusterSizes(subject.spec);
      const price = pricePerGpuHour === undefined ? {} : { pricePerGpuHour };
      const gone = goneSignal(reply);
      const choices = await inTurns(sizes, workers.adviceThreads, gone, (nodes, signal) =>
        workers.advise<"cluster">({ kind: "cluster", ...subject, nodes, tokens, seconds, ...price }, signal),
      );
      const considered = choices.filter((choice): choice is ClusterChoiceAnswer => choice !== null);
      const inTime = considered
        .filter(({ meetsDeadline }) => meetsDeadline)
        .sort((a, b) => a.gpuHours - b.gpuHours || a.gpus - b.gpus);
      const answer = { cheapest: inTime[0] ?? null, considered };
      const planned = considered.map(({ nodes, best }) => ({ value: nodes, best }));
      const swept = sweptJobs(subject.spec, "nodes", planned);
      return withEstimates(answer, { asked: request.body, subject }, swept, workers, gone);
    },
  );
}

export function registerAdviceRoutes(app: ApiInstance, source: SubjectSource): void {
  registerPlanQuestions(app, source);
  registerWhatIf(app, source);
  registerPareto(app, source);
  registerCheapestCluster(app, source);
}
