import {
  API_PREFIX,
  ProposalPageSchema,
  WorkloadCreateSchema,
  WorkloadPageSchema,
} from "@internevo/contracts";
import { resolveJob, WorkloadSchema, type Workload } from "@internevo/domain";
import { checkCluster, type LaunchCapabilities } from "@internevo/launcher";
import { assertTrainerRuns } from "@internevo/plan";
import {
  createWorkload,
  deleteWorkload,
  fireWorkloadNow,
  getWorkload,
  listProposals,
  listWorkloads,
  type Database,
  type Queryable,
} from "@internevo/store";
import { Type } from "typebox";
import { noWorkload } from "../http/absent.ts";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { mutate, mutateChecked } from "../http/mutations.ts";
import { PageQuery } from "../http/pages.ts";
import { projectForSubmission, visibleTo, withProjectOf } from "../http/rights.ts";
import { assertNamedProfile } from "../profile-source.ts";
import { firstRunAt } from "../schedule.ts";
import { innerCheck, innerJob } from "./inner-job.ts";
import { answers, headers, IdParams } from "./shapes.ts";

const DEFAULTS = { timeZone: "UTC", catchUpWindowSeconds: 6 * 3600, gainThreshold: 0.05 };

async function workloadOf(db: Queryable, id: string): Promise<Workload> {
  const workload = await getWorkload(db, id);
  if (!workload) throw noWorkload(id);
  return workload;
}

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
  registerProposals(app, options.database);
}

function registerCreation(app: ApiInstance, options: WorkloadRoutesOptions): void {
  const { database, capabilities, now } = options;
  app.post(
    "/workloads",
    {
      config: { role: "operator", scope: "submission" },
      schema: {
        tags,
        summary: "Plan a workload again by a schedule",
        headers: headers.idempotent,
        body: WorkloadCreateSchema,
        response: answers({ 201: WorkloadSchema }),
      },
    },
    async (request, reply) => {
      const { name, job, cron, ...given } = request.body;
      const settings = { ...DEFAULTS, ...given };
      const accept = async () => {
        const spec = innerJob(() => {
          const resolved = resolveJob(withProjectOf(actorOf(request), job));
          assertTrainerRuns(resolved);
          return resolved;
        });
        await projectForSubmission(database.db, request, spec.project, "job.project");
        await assertNamedProfile(database.db, spec, "job.cluster.profile", visibleTo(actorOf(request)));
        // Without a profile its cluster is measured: ranks are started as for a job.
        if (spec.cluster.profile === null) await innerCheck(() => checkCluster(spec.cluster, capabilities));
        return { spec, nextRunAt: firstRunAt({ cron, timeZone: settings.timeZone }, now()) };
      };
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
        summary: "List workloads, newest first",
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

function registerProposals(app: ApiInstance, database: Database): void {
  app.get(
    "/workloads/:id/proposals",
    {
      config: { role: "viewer", scope: "workload" },
      schema: {
        tags,
        summary: "Better plans that were found, newest first",
        params: IdParams,
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers({ 200: ProposalPageSchema }),
      },
    },
    async (request) => {
      await workloadOf(database.db, request.params.id);
      return listProposals(database.db, request.params.id, request.query);
    },
  );
}
