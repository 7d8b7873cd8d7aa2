import {
  API_PREFIX,
  JobCheckSchema,
  JobDetailSchema,
  JobFilterSchema,
  JobLogPageSchema,
  JobPageSchema,
  MetricPageSchema,
  ValidationPageSchema,
  SubmittedJobSchema,
  type JobDetail,
  type Removal,
} from "@internevo/contracts";
import {
  JobFileSchema,
  Line,
  formatInteger,
  isTerminal,
  MOST_UNENDED_JOBS,
  PrioritySchema,
  ProblemError,
  removalWords,
  RESUMABLE_JOB_STATES,
  statedFields,
  writtenJob,
  type JobState,
  type RetentionKind,
} from "@internevo/domain";
import { checkpointDirectory, timelineDirectory } from "@internevo/stages";
import {
  findRemoval,
  getJob,
  getJobDetail,
  listJobLog,
  listJobs,
  listStepMetrics,
  listValidations,
  lockJobState,
  lockProjectOfJob,
  requestCancel,
  setPriority,
  resumeJob,
  submitJob,
  type Database,
  type Page,
  type Queryable,
  type Transaction,
} from "@internevo/store";
import { Type, type Static } from "typebox";
import { noJob } from "../http/absent.ts";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { etagOf, versionOfIfMatch } from "../http/etag.ts";
import { mutate, mutateChecked } from "../http/mutations.ts";
import { numberOfCursor, PageQuery } from "../http/pages.ts";
import { visibleTo } from "../http/rights.ts";
import { lastEventIdOf, type OpenStreams } from "../http/sse.ts";
import { jobStream } from "../jobs-stream.ts";
import { Acceptance, type AcceptanceOptions } from "../submission/acceptance.ts";
import { assertStillKept, type WeightsOfJob } from "../submission/kept-weights.ts";
import { goneSignal } from "../http/gone.ts";
import { answers, headers, IdParams } from "./shapes.ts";

/** What the store counts steps with. */
const LAST_STEP = 2 ** 31 - 1;

export interface JobRoutesOptions extends AcceptanceOptions {
  readonly streams: OpenStreams;
  readonly heartbeatMilliseconds: number;
}

/** @param only the project whose jobs its queue names; null: names all */
async function detailOf(
  db: Queryable,
  id: string,
  dataDirectory: string | undefined,
  only: string | null,
): Promise<JobDetail> {
  const job = await getJobDetail(db, id, only);
  if (!job) throw noJob(id);
  return dataDirectory === undefined
    ? job
    : {
        ...job,
        files: {
          checkpoints: checkpointDirectory(dataDirectory, job.id),
          timelines: timelineDirectory(dataDirectory, job.id),
        },
      };
}

/** Everything of one job at one moment. */
const readDetail = (
  database: Database,
  id: string,
  dataDirectory: string | undefined,
  only: string | null,
): Promise<JobDetail> =>
  database.db.transaction((tx) => detailOf(tx, id, dataDirectory, only), {
    isolationLevel: "repeatable read",
    accessMode: "read only",
  });

async function assertVersion(tx: Transaction, id: string, expected: number | undefined): Promise<void> {
  if ((await lockJobState(tx, id)) === undefined) throw noJob(id);
  const job = await getJob(tx, id);
  if (job && expected !== undefined && job.version !== expected) {
    throw new ProblemError("precondition-failed", `job ${id} has version ${job.version} now`, [
      {
        field: "if-match",
        value: etagOf(expected),
        message: `is not the job's version ${etagOf(job.version)}`,
        remedy: "read the job again, and decide anew",
      },
    ]);
  }
}

export function registerJobRoutes(app: ApiInstance, options: JobRoutesOptions): void {
  registerSubmission(app, options);
  registerJobReads(app, options);
  registerCancel(app, options);
  registerPriority(app, options);
  registerResume(app, options);
  registerJobHistory(app, options);
  registerJobEvents(app, options);
}

function registerSubmission(app: ApiInstance, options: JobRoutesOptions): void {
  const { database, capabilities } = options;
  const acceptance = new Acceptance(options);
  // The job is checked by resolveJob, whose problems name fields as people wrote them.
  const validatorCompiler = () => (data: unknown) => ({ value: data });

  app.post(
    "/jobs/check",
    {
      config: { role: "operator", scope: "submission" },
      validatorCompiler,
      schema: {
        tags: ["jobs"],
        summary: "Check a job as submission does, and store nothing",
        description: "What would be refused is the same problem as of `POST /jobs`.",
        body: JobFileSchema,
        response: answers({ 200: JobCheckSchema }),
      },
    },
    async (request, reply) => {
      const accepted = await acceptance.accept(request, reply);
      return { job: writtenJob(accepted.spec), ...(await acceptance.remarks(accepted, goneSignal(reply))) };
    },
  );

  app.post(
    "/jobs",
    {
      config: { role: "operator", scope: "submission" },
      validatorCompiler,
      schema: {
        tags: ["jobs"],
        summary: "Submit a job",
        headers: headers.idempotent,
        body: JobFileSchema,
        response: answers({ 201: SubmittedJobSchema }),
      },
    },
    async (request, reply) => {
      return mutateChecked(
        database,
        request,
        reply,
        async () => {
          const accepted = await acceptance.accept(request, reply);
          const { spec, weights } = accepted;
          const { warnings, ...remarks } = await acceptance.remarks(accepted, goneSignal(reply));
          // Where there is nothing to warn of, the answer is the job.
          return { spec, weights, told: { ...remarks, ...(warnings.length > 0 ? { warnings } : {}) } };
        },
        async (tx, { spec, weights, told }) => {
          const id = await submitJob(tx, spec, {
            traceparent: request.trace.traceparent,
            owner: actorOf(request).name,
            // Accepted: it is the job file that it is taken for.
            stated: statedFields(request.body),
            weightsOf: weights?.owner,
          });
          // Behind the lock of the project, as where a job is let go on: the two would wait for each other otherwise.
          await assertStillKept(tx, weights);
          const job = await detailOf(tx, id, capabilities.dataDirectory, visibleTo(actorOf(request)));
          return {
            status: 201,
            body: { ...job, ...told },
            target: id,
            location: `${API_PREFIX}/jobs/${id}`,
            etag: etagOf(job.version),
          };
        },
      );
    },
  );
}

function registerJobReads(app: ApiInstance, { database, capabilities }: JobRoutesOptions): void {
  app.get(
    "/jobs",
    {
      config: { role: "viewer", scope: "visible" },
      schema: {
        tags: ["jobs"],
        summary: "List jobs, newest first",
        querystring: Type.Object(
          { ...PageQuery, ...JobFilterSchema.properties },
          { additionalProperties: false },
        ),
        response: answers({ 200: JobPageSchema }),
      },
    },
    async (request) => listJobs(database.db, { ...request.query, only: visibleTo(actorOf(request)) }),
  );

  app.get(
    "/jobs/:id",
    {
      config: { role: "viewer", scope: "job" },
      schema: {
        tags: ["jobs"],
        summary: "Everything of one job; its ETag is its version",
        params: IdParams,
        response: answers({ 200: JobDetailSchema }),
      },
    },
    async (request, reply) => {
      const job = await readDetail(
        database,
        request.params.id,
        capabilities.dataDirectory,
        visibleTo(actorOf(request)),
      );
      reply.header("etag", etagOf(job.version));
      return job;
    },
  );
}

/** Why somebody cancels a job, or lets it go on. */
const ReasonBody = Type.Optional(
  Type.Union([
    Type.Object({ reason: Type.Optional(Line(500)) }, { additionalProperties: false }),
    Type.Null(),
  ]),
);

function registerCancel(app: ApiInstance, { database, capabilities }: JobRoutesOptions): void {
  app.post(
    "/jobs/:id/cancel",
    {
      config: { role: "operator", scope: "job" },
      schema: {
        tags: ["jobs"],
        summary: "Cancel a job, in whatever state it is",
        headers: headers.conditional,
        params: IdParams,
        body: ReasonBody,
        response: answers({ 202: JobDetailSchema }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const { id } = request.params;
        await assertVersion(tx, id, versionOfIfMatch(request.headers["if-match"]));
        const outcome = await requestCancel(tx, id, request.body?.reason);
        const job = await detailOf(tx, id, capabilities.dataDirectory, visibleTo(actorOf(request)));
        if (outcome === "already-ended")
          throw new ProblemError("conflict", `job ${id} has ${job.state} already`, [
            {
              field: "id",
              value: id,
              message: `is in the terminal state ${job.state}`,
              remedy: "nothing is left to cancel",
            },
          ]);
        return { status: 202, body: job, target: id, etag: etagOf(job.version) };
      }),
  );
}

function registerPriority(app: ApiInstance, { database, capabilities }: JobRoutesOptions): void {
  app.post(
    "/jobs/:id/priority",
    {
      config: { role: "operator", scope: "job" },
      schema: {
        tags: ["jobs"],
        summary: "Give a job another priority, and another place in the queue where it waits",
        headers: headers.conditional,
        params: IdParams,
        body: Type.Object({ priority: PrioritySchema }, { additionalProperties: false }),
        response: answers({ 200: JobDetailSchema }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const { id } = request.params;
        const { priority } = request.body;
        await assertVersion(tx, id, versionOfIfMatch(request.headers["if-match"]));
        const job = await getJob(tx, id);
        if (!job) throw noJob(id);
        if (isTerminal(job.state))
          throw new ProblemError("conflict", `job ${id} has ${job.state} already`, [
            {
              field: "id",
              value: id,
              message: `is in the terminal state ${job.state}`,
              remedy: "it waits for nothing any more",
            },
          ]);
        await setPriority(tx, job, priority, actorOf(request).name);
        const body = await detailOf(tx, id, capabilities.dataDirectory, visibleTo(actorOf(request)));
        return { status: 200, body, target: id, etag: etagOf(body.version) };
      }),
  );
}

/** What somebody can do who wants a job to go on that is not at rest, or has succeeded. */
function resumeRemedy(state: JobState): string {
  if (state === "succeeded") return "nothing is left to do; submit another job to train further";
  return state === "cancelling" ? "wait until it is cancelled, and let it go on then" : "it goes on already";
}

/** A job that retention took what it would go on from. */
const removedJob = (id: string, removal: Removal): ProblemError =>
  new ProblemError("conflict", `job ${id} cannot be let go on: what it would go on from is gone`, [
    {
      field: "id",
      value: id,
      message: `its ${removal.kind} were ${removalWords(removal)}`,
      remedy: `train anew with a copy of it: internevo clone ${id}, or GET /api/v1/jobs/${id}/file and POST /api/v1/jobs`,
    },
  ]);

function registerResume(app: ApiInstance, options: JobRoutesOptions): void {
  const { database, capabilities } = options;
  const acceptance = new Acceptance(options);
  app.post(
    "/jobs/:id/resume",
    {
      config: { role: "operator", scope: "job" },
      schema: {
        tags: ["jobs"],
        summary: "Let a job go on that is held, failed or was cancelled",
        description:
          "It goes on in the stage in which it stopped, with what it measured and its last checkpoint. " +
          `409 when it is in no state of ${RESUMABLE_JOB_STATES.join(", ")}, ` +
          "and when retention removed its checkpoints or steps. " +
          "403, `quota-exceeded`, for one that has ended, where its project has " +
          `${formatInteger(MOST_UNENDED_JOBS)} jobs that have not.`,
        headers: headers.conditional,
        params: IdParams,
        body: ReasonBody,
        response: answers({ 202: JobDetailSchema }),
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const weightsAgain = async (): Promise<WeightsOfJob | undefined> => {
        const job = await getJob(database.db, id);
        return job && acceptance.weightsAgain(job.spec, goneSignal(reply));
      };
      return mutateChecked(database, request, reply, weightsAgain, async (tx, weights) => {
        // Before the job's row is locked.
        await lockProjectOfJob(tx, id);
        await assertVersion(tx, id, versionOfIfMatch(request.headers["if-match"]));
        await assertStillKept(tx, weights);
        const resumed = await resumeJob(tx, id, request.body?.reason);
        if (resumed.outcome === "removed") throw removedJob(id, resumed.removal);
        if (resumed.outcome === "not-resumable")
          throw new ProblemError("conflict", `job ${id} is ${resumed.state}: it cannot be let go on`, [
            {
              field: "id",
              value: id,
              message: `is in the state ${resumed.state}, not in one of ${RESUMABLE_JOB_STATES.join(", ")}`,
              remedy: resumeRemedy(resumed.state),
            },
          ]);
        const job = await detailOf(tx, id, capabilities.dataDirectory, visibleTo(actorOf(request)));
        return { status: 202, body: job, target: id, etag: etagOf(job.version) };
      });
    },
  );
}

const StepsQuery = Type.Object(
  {
    after: Type.Optional(
      Type.Integer({ minimum: 0, maximum: LAST_STEP, description: "only steps after this one" }),
    ),
    cursor: Type.Optional(Type.String({ maxLength: 20, description: "`nextCursor` of the page before" })),
    limit: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 1000, description: "items a page; 200 when absent" }),
    ),
  },
  { additionalProperties: false },
);

function stepsAsked({ after, cursor, limit }: Static<typeof StepsQuery>): { after?: number; limit?: number } {
  const from = cursor === undefined ? after : numberOfCursor(cursor, LAST_STEP);
  return { ...(from === undefined ? {} : { after: from }), ...(limit === undefined ? {} : { limit }) };
}

/** A page of a job's history, with what retention took of it. */
async function withRemoval<T>(
  db: Queryable,
  jobId: string,
  kind: RetentionKind,
  page: Page<T>,
): Promise<Page<T> & { removed?: Removal }> {
  const removal = await findRemoval(db, jobId, [kind]);
  return { ...page, ...(removal ? { removed: removal } : {}) };
}

/** What a job's training said: steps, validation losses and log lines, in pages. */
function registerJobHistory(app: ApiInstance, { database }: JobRoutesOptions): void {
  app.get(
    "/jobs/:id/metrics",
    {
      config: { role: "viewer", scope: "job" },
      schema: {
        tags: ["jobs"],
        summary: "The training's steps, oldest first",
        params: IdParams,
        querystring: StepsQuery,
        response: answers({ 200: MetricPageSchema }),
      },
    },
    async (request) => {
      const { id } = request.params;
      if (!(await getJob(database.db, id))) throw noJob(id);
      return withRemoval(
        database.db,
        id,
        "steps",
        await listStepMetrics(database.db, id, stepsAsked(request.query)),
      );
    },
  );

  app.get(
    "/jobs/:id/validations",
    {
      config: { role: "viewer", scope: "job" },
      schema: {
        tags: ["jobs"],
        summary: "The losses of held-out data, oldest first; step 0 is before training",
        params: IdParams,
        querystring: StepsQuery,
        response: answers({ 200: ValidationPageSchema }),
      },
    },
    async (request) => {
      const { id } = request.params;
      if (!(await getJob(database.db, id))) throw noJob(id);
      return withRemoval(
        database.db,
        id,
        "steps",
        await listValidations(database.db, id, stepsAsked(request.query)),
      );
    },
  );

  app.get(
    "/jobs/:id/log",
    {
      config: { role: "viewer", scope: "job" },
      schema: {
        tags: ["jobs"],
        summary: "A job's log lines, newest first",
        params: IdParams,
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers({ 200: JobLogPageSchema }),
      },
    },
    async (request) => {
      const { id } = request.params;
      const { cursor, limit } = request.query;
      if (!(await getJob(database.db, id))) throw noJob(id);
      const page = await listJobLog(database.db, id, {
        ...(cursor === undefined ? {} : { before: numberOfCursor(cursor, Number.MAX_SAFE_INTEGER) }),
        ...(limit === undefined ? {} : { limit }),
      });
      return withRemoval(database.db, id, "logs", page);
    },
  );
}

function registerJobEvents(app: ApiInstance, options: JobRoutesOptions): void {
  const { database, heartbeatMilliseconds } = options;
  app.get(
    "/jobs/:id/events",
    {
      config: { role: "viewer", scope: "job", isStream: true },
      schema: {
        tags: ["jobs"],
        summary: "A job's events as they happen (server-sent events); `Last-Event-ID` resumes",
        description:
          "`event:` is the type, `id:` the event's number, `data:` a JobStreamEvent. " +
          "The last message is `event: end`: the job has ended and nothing was left out.",
        produces: ["text/event-stream"],
        headers: headers.stream,
        params: IdParams,
        querystring: Type.Object(
          {
            follow: Type.Optional(
              Type.Boolean({ description: "false: end after the events that are there now" }),
            ),
          },
          { additionalProperties: false },
        ),
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      if (!(await getJob(database.db, id))) throw noJob(id);
      return options.streams.send(reply, actorOf(request), (signal) =>
        jobStream({
          database,
          jobId: id,
          afterId: lastEventIdOf(request),
          follow: request.query.follow ?? true,
          heartbeatMilliseconds,
          signal,
        }),
      );
    },
  );
}
