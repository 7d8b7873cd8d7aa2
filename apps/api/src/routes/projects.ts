import {
  API_PREFIX,
  ProjectChangeSchema,
  ProjectCreateSchema,
  ProjectPageSchema,
  ProjectRecordSchema,
} from "@internevo/contracts";
import { Line } from "@internevo/domain";
import {
  createProject,
  deleteProject,
  getProject,
  listProjects,
  updateProject,
  type Database,
} from "@internevo/store";
import { Type } from "typebox";
import { actorOf } from "../http/auth.ts";
import type { ApiInstance } from "../http/instance.ts";
import { mutate } from "../http/mutations.ts";
import { visibleTo } from "../http/rights.ts";
import { answers, headers } from "./shapes.ts";

const NameParams = Type.Object({ name: Line(100) });
const tags = ["projects"];

/** Projects: whose jobs are kept apart, and what they may use. */
export function registerProjectRoutes(app: ApiInstance, options: { readonly database: Database }): void {
  registerProjectReads(app, options.database);
  registerProjectChanges(app, options.database);
}

function registerProjectReads(app: ApiInstance, database: Database): void {
  app.get(
    "/projects",
    {
      config: { role: "viewer", scope: "visible" },
      schema: {
        tags,
        summary: "Projects that the token may see, with their quotas and what they use of them",
        response: answers({ 200: ProjectPageSchema }),
      },
    },
    async (request) => ({
      items: await listProjects(database.db, visibleTo(actorOf(request)) ?? undefined),
      nextCursor: null,
    }),
  );
  app.get(
    "/projects/:name",
    {
      config: { role: "viewer", scope: "project" },
      schema: {
        tags,
        summary: "One project",
        params: NameParams,
        response: answers({ 200: ProjectRecordSchema }),
      },
    },
    async (request) => getProject(database.db, request.params.name),
  );
}

function registerProjectChanges(app: ApiInstance, database: Database): void {
  app.post(
    "/projects",
    {
      config: { role: "admin", scope: "installation" },
      schema: {
        tags,
        summary: "Create a project",
        headers: headers.idempotent,
        body: ProjectCreateSchema,
        response: answers({ 201: ProjectRecordSchema }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const project = await createProject(tx, request.body);
        request.project = project.name;
        return {
          status: 201,
          body: project,
          target: project.name,
          location: `${API_PREFIX}/projects/${project.name}`,
        };
      }),
  );
  app.patch(
    "/projects/:name",
    {
      config: { role: "admin", scope: "installation" },
      schema: {
        tags,
        summary: "Change a project's description and quotas",
        description:
          "What is left out stays as it is; null takes a quota away. What waits for a quota goes on where it allows it now. What runs is never stopped.",
        params: NameParams,
        body: ProjectChangeSchema,
        response: answers({ 200: ProjectRecordSchema }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const { name } = request.params;
        const project = await updateProject(tx, name, request.body);
        request.project = project.name;
        return { status: 200, body: project, target: project.name };
      }),
  );
  app.delete(
    "/projects/:name",
    {
      config: { role: "admin", scope: "installation" },
      schema: {
        tags,
        summary: "Delete a project that nothing belongs to",
        description:
          "409 where it has jobs, workloads, valid tokens or profiles, and for the project `default`.",
        params: NameParams,
        response: answers({ 204: Type.Null() }),
      },
    },
    async (request, reply) =>
      mutate(database, request, reply, async (tx) => {
        const { name } = request.params;
        await deleteProject(tx, name);
        return { status: 204, body: null, target: name };
      }),
  );
}
