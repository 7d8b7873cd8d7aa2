import {
  API_PREFIX,
  WorkloadChangeSchema,
  WorkloadCreateSchema,
  WorkloadPageSchema,
} from "@internevo/contracts";
import {
  DEFAULT_PROJECT,
  MOST_WORKLOADS,
  ProblemError,
  resolveJob,
  WORKLOAD_DEFAULTS,
  WorkloadSchema,
  type JobSpec,
} from "@internevo/domain";
import { checkCluster, type LaunchCapabilities } from "@internevo/launcher";
import { assertTrainerRuns } from "@internevo/plan";
import {
  createWorkload,
  deleteWorkload,
  fireWorkloadNow,
  listWorkloads,
  takeBackChanges,
  updateWorkload,
  type Database,
} from "@internevo/store";
import type { FastifyRequest } from "fastify";
import { Type } from "typebox";
import { noWorkload } from "../http/absent.ts";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { mutate, mutateChecked } from "../http/mutations.ts";
import { PageQuery } from "../http/pages.ts";
import { projectForSubmission, visibleTo, withProjectOf } from "../http/rights.ts";
import { assertNamedProfile } from "../profile-source.ts";
import { firstRunAt } from "../schedule.ts";
import { assertQuota } from "../submission/check-quota.ts";
import { innerCheck, innerJob } from "./inner-job.ts";
import { registerProposalRoutes, workloadOf } from "./proposals.ts";
import { answers, headers, IdParams } from "./shapes.ts";

interface WorkloadRoutesOptions {
  readonly database: Database;
  readonly capabilities: LaunchCapabilities;
  readonly now: () => Date;
}
const tags = ["workloads"];

export function registerWorkloadRoutes(app: ApiInstance, options: WorkloadRoutesOptions): void {
  registerCreation(app, options);
  registerWorkloadReads(app, options.database);
  registerWorkloadChanges(app, options.database);
  registerSettings(app, options);
  registerProposalRoutes(app, options.database);
}

/** @throws ProblemError `job-invalid` for a job that would measure its whole cluster whenever it is planned */
function assertMeasuredWhenOld({ measureAgain }: JobSpec): void {
  if (measureAgain !== true) return;
  throw new ProblemError("job-invalid", "a workload measures its cluster only where measurements are old", [
    {
      field: "measureAgain",
      value: true,
      message: "would have everything measured again at each time of the schedule",
      remedy: "leave it out; to measure everything now, submit the job once with it",
    },
  ]);
}

/** The job that a workload is about. @throws ProblemError for one that could not be submitted */
async function acceptedSpec(
  request: FastifyRequest,
  job: unknown,
  { database, capabilities }: WorkloadRoutesOptions,
): Promise<JobSpec> {
  const spec = innerJob(() => {
    const resolved = resolveJob(withProjectOf(actorOf(request), job));
    assertTrainerRuns(resolved);
    assertMeasuredWhenOld(resolved);
    return resolved;
  });
  const project = await projectForSubmission(database.db, request, spec.project, "job.project");
  await innerCheck(() => assertQuota(database.db, spec, project));
  await assertNamedProfile(database.db, spec, "job.cluster.profile", visibleTo(actorOf(request)));
  // Without a profile its cluster is measured: ranks are started as for a job.
  if (spec.cluster.profile === null) await innerCheck(() => checkCluster(spec.cluster, capabilities));
  return spec;
}

function registerCreation(app: ApiInstance, options: WorkloadRoutesOptions): void {
  const { database, now } = options;
  app.post(
    "/workloads",
    {
      config: { role: "operator", scope: "submission" },
      schema: {
        tags,
        summary: "Plan a workload again by a schedule",
        description: `A project keeps ${MOST_WORKLOADS} at most; then the answer is a 403, \`quota-exceeded\`, until one is removed.`,
        headers: headers.idempotent,
        body: WorkloadCreateSchema,
        response: answers({ 201: WorkloadSchema }),
      },
    },
    async (request, reply) => {
      const { name, job, cron, ...settings } = request.body;
      const { timeZone = WORKLOAD_DEFAULTS.timeZone } = settings;
      const accept = async () => ({
        spec: await acceptedSpec(request, job, options),
        nextRunAt: firstRunAt({ cron, timeZone }, now()),
      });
      return mutateChecked(database, request, reply, accept, async (tx, { spec, nextRunAt }) => {
        const workload = await createWorkload(tx, { name, spec, cron, ...settings, nextRunAt });
        return {
          status: 201,
          body: workload,
          target: workload.id,
          location: `${API_PREFIX}/workloads/${workload.id}`,
        };
      });
    },
  );
}

function registerWorkloadReads(app: ApiInstance, database: Database): void {
  app.get(
    "/workloads",
    {
      config: { role: "viewer", scope: "visible" },
      schema: {
        tags,
        summary: "List workloads, newest first, without their jobs",
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers({ 200: WorkloadPageSchema }),
      },
    },
    async (request) => listWorkloads(database.db, request.query, visibleTo(actorOf(request))),
  );

  app.get(
    "/workloads/:id",
    {
      config: { role: "viewer", scope: "workload" },
      schema: {
        tags,
        summary: "One workload, with its next and last run",
        params: IdParams,
        response: answers({ 200: WorkloadSchema }),
      },
    },
    async (request) => workloadOf(database.db, request.params.id),
  );
}

function registerWorkloadChanges(app: ApiInstance, database: Database): void {
  app.delete(
    "/workloads/:id",
    {
      config: { role: "operator", scope: "workload" },
      schema: {
        tags,
        summary: "Forget a workload, its runs and its proposals",
        params: IdParams,
        response: answers({ 204: Type.Null() }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const { id } = request.params;
        await takeBackChanges(tx, id, `the workload was removed by ${actorOf(request).name}`);
        if (!(await deleteWorkload(tx, id))) throw noWorkload(id);
        return { status: 204, body: null, target: id };
      }),
  );

  app.post(
    "/workloads/:id/run",
    {
      config: { role: "operator", scope: "workload" },
      schema: {
        tags,
        summary: "Plan a workload again now",
        headers: headers.idempotent,
        params: IdParams,
        response: answers({ 202: WorkloadSchema }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const { id } = request.params;
        await fireWorkloadNow(tx, id);
        return { status: 202, body: await workloadOf(tx, id), target: id };
      }),
  );
}

/** A workload stays in its project: who may see its history does not change. */
function assertSameProject(spec: JobSpec, project: string): void {
  const { project: other = DEFAULT_PROJECT } = spec;
  if (other === project) return;
  throw new ProblemError("bad-request", `the workload is of project ${project}, and stays in it`, [
    {
      field: "job.project",
      value: other,
      message: `is another project than ${project}`,
      remedy: `write ${project}, or create another workload`,
    },
  ]);
}

function registerSettings(app: ApiInstance, options: WorkloadRoutesOptions): void {
  const { database, now } = options;
  app.patch(
    "/workloads/:id",
    {
      config: { role: "operator", scope: "workload" },
      schema: {
        tags,
        summary: "Change a workload, pause it, or let it go on",
        description:
          "What is left out stays as it is. A run that is at work goes on with what it began with. With another job, " +
          "what was proposed for the one before can be answered still. A pause takes back what the workload has jobs " +
          "change by itself and none has begun; such proposals wait for an answer again.",
        headers: headers.idempotent,
        params: IdParams,
        body: WorkloadChangeSchema,
        response: answers({ 200: WorkloadSchema }),
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { job, ...settings } = request.body;
      const accept = async () => {
        const before = await workloadOf(database.db, id);
        const spec = job === undefined ? undefined : await acceptedSpec(request, job, options);
        if (spec) assertSameProject(spec, before.project);
        const { cron, timeZone, enabled } = { ...before, ...settings };
        const isOther = cron !== before.cron || timeZone !== before.timeZone || (enabled && !before.enabled);
        return {
          ...settings,
          ...(spec && { spec }),
          ...(isOther && { nextRunAt: firstRunAt({ cron, timeZone }, now()) }),
        };
      };
      return mutateChecked(database, request, reply, accept, async (tx, change) => {
        // First: a new name locks the workload against runs that have found a plan, and hold their change.
        if (change.enabled === false)
          await takeBackChanges(tx, id, `the workload was paused by ${actorOf(request).name}`);
        const workload = await updateWorkload(tx, id, change);
        if (!workload) throw noWorkload(id);
        return { status: 200, body: workload, target: id };
      });
    },
  );
}
