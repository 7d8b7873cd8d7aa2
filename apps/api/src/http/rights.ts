import { API_PREFIX, ROLES, type Role } from "@internevo/contracts";
import { DEFAULT_PROJECT, ProblemError, type JobSpec } from "@internevo/domain";
import {
  getProject,
  isUuid,
  noProject,
  projectOf,
  type Database,
  type OwnedKind,
  type Queryable,
  type TokenOwner,
} from "@internevo/store";
import type { FastifyInstance, FastifyRequest, RouteOptions } from "fastify";
import { noJobOfBody, noJobOfQuery, noneOf } from "./absent.ts";

/**
 * Where a route's role must be held. A token of the whole installation holds it everywhere; a token of a project
 * in that project, and sees nothing of others:
 * - `open`: there is no role; who has no token may ask too.
 * - `any`: it is about no project; the role in any project will do.
 * - `installation`: in the whole installation.
 * - `visible`: it answers with what the token may see ({@link visibleTo}).
 * - `submission`: in the project that the body names; the handler asks {@link projectForSubmission}.
 * - `subject`: in the project of the job that `jobId` of the body names, where there is one.
 * - `jobs`: in the project of every job that `job` of the query names.
 * - `job`, `workload`, `dead-letter`, `token`, `webhook`, `webhook-delivery`: in the project of what `:id` names.
 * - `profile`: the same; the installation's profiles every token sees, and only tokens of it change them.
 * - `project`: in the project that `:name` names.
 */
export const SCOPES = [
  "open",
  "any",
  "installation",
  "visible",
  "submission",
  "subject",
  "jobs",
  "job",
  "workload",
  "dead-letter",
  "token",
  "profile",
  "webhook",
  "webhook-delivery",
  "project",
] as const;
export type Scope = (typeof SCOPES)[number];

/** The rule of a route that the API has. */
export interface RouteRule {
  readonly method: string;
  /** With its parameters, for example `/api/v1/jobs/:id`. */
  readonly url: string;
  readonly role: Role | undefined;
  readonly scope: Scope;
}

const rankOf = (role: Role): number => ROLES.indexOf(role);
const READS = new Set(["GET", "HEAD"]);

const isOwned = (scope: Scope | undefined): scope is OwnedKind => scope !== undefined && scope in noneOf;

/** The project that a token sees things of; null: it sees everything. */
export const visibleTo = (actor: TokenOwner): string | null => actor.project;

const placeOf = ({ project }: TokenOwner): string => (project === null ? "" : ` in project ${project}`);

function forbidden(actor: TokenOwner, role: Role, isOfInstallation: boolean): ProblemError {
  const needed = isOfInstallation ? `${role} in the whole installation` : role;
  const roles = ROLES.slice(rankOf(role)).join(" or ");
  return new ProblemError(
    "forbidden",
    `this needs the role ${needed}, and the token's is ${actor.role}${placeOf(actor)}`,
    [
      {
        field: "authorization",
        value: actor.role,
        message: `is a token of role ${actor.role}${placeOf(actor)}`,
        remedy: `use a token of role ${roles}${isOfInstallation ? " in the whole installation" : placeOf(actor)}`,
      },
    ],
  );
}

function assertRole(actor: TokenOwner, role: Role): void {
  if (rankOf(actor.role) < rankOf(role)) throw forbidden(actor, role, false);
}

/**
 * Whether a token may use a route, before its body is read. @throws ProblemError `not-found` for what it may not
 * see; `forbidden` for what it may see and not do
 */
export async function assertRights(
  request: FastifyRequest,
  actor: TokenOwner,
  role: Role,
  { db }: Pick<Database, "db">,
): Promise<void> {
  const { scope } = request.routeOptions.config;
  const { id, name } = request.params as { readonly id?: string; readonly name?: string };
  if (actor.project === null) {
    assertRole(actor, role);
    // The audit says whose it was; what only reads is not written down.
    if (READS.has(request.method)) return;
    if (isOwned(scope)) request.project = (await projectOf(db, scope, id ?? "")) ?? null;
    return;
  }
  if (scope === "installation") throw forbidden(actor, role, true);
  if (scope === "project" && name !== actor.project) throw noProject(name ?? "", "name");
  // What is no id names nothing in any project: the route says so.
  if (isOwned(scope) && id !== undefined && isUuid(id)) {
    const owner = await projectOf(db, scope, id);
    const isShared = scope === "profile" && owner === null;
    if (!isShared && owner !== actor.project) throw noneOf[scope](id);
    if (isShared && !READS.has(request.method)) throw forbidden(actor, role, true);
  }
  assertRole(actor, role);
  request.project = actor.project;
}

/**
 * The project that something is submitted into: the one that is named, else the token's, else the default.
 * @param field that names it. @throws ProblemError `not-found` for one that is not there, or that the token may
 * not see
 */
export async function projectForSubmission(
  db: Queryable,
  request: FastifyRequest,
  named: string | undefined,
  field: string,
): Promise<string> {
  const visible = request.actor?.project ?? null;
  const project = named ?? visible ?? DEFAULT_PROJECT;
  if (visible !== null && project !== visible) throw noProject(project, field);
  await getProject(db, project, field);
  request.project = project;
  return project;
}

/**
 * The project whose profiles a job may name, before anything else was checked of it: the token's, else the one
 * that it will be submitted into.
 */
export const namingProject = (
  visible: string | null,
  { project = DEFAULT_PROJECT }: Pick<JobSpec, "project">,
): string => visible ?? project;

/** A job file that names no project, with the token's. */
export function withProjectOf(actor: TokenOwner, written: unknown): unknown {
  if (actor.project === null || typeof written !== "object" || written === null || Array.isArray(written))
    return written;
  const { project } = written as { readonly project?: unknown };
  return project === undefined ? { ...written, project: actor.project } : written;
}

/** The rule of a route, from its configuration. @throws TypeError for a route of the API without one */
function ruleOf({ method, url, config }: RouteOptions): RouteRule | undefined {
  const { role, scope } = config ?? {};
  const isOfApi = url.startsWith(`${API_PREFIX}/`);
  if (!isOfApi && role === undefined && scope === undefined) return undefined;
  if (scope === undefined || (scope === "open") !== (role === undefined))
    throw new TypeError(
      `route ${String(method)} ${url} has no rule: give its config a role and a scope (${SCOPES.join(", ")}), or the scope open without a role`,
    );
  if (scope === "visible" && (url.includes("/:id") || !READS.has(String(method))))
    throw new TypeError(
      `route ${String(method)} ${url} is about one thing, or changes something: the scope visible is for lists`,
    );
  return { method: String(method), url, role, scope };
}

/**
 * Every route of the API that is registered after this has a rule: one without is an error at start.
 * @returns the rules, one a route, as they come
 */
export function registerRights(app: FastifyInstance, { db }: Pick<Database, "db">): readonly RouteRule[] {
  const rules: RouteRule[] = [];
  app.decorateRequest("project", null);
  app.addHook("onRoute", (route) => {
    const rule = ruleOf(route);
    if (rule !== undefined) rules.push(rule);
  });
  app.addHook("preHandler", async (request) => {
    const visible = request.actor?.project ?? null;
    const { scope } = request.routeOptions.config;
    if (visible === null) return;
    const isHidden = async (id: unknown): Promise<boolean> =>
      typeof id === "string" && isUuid(id) && (await projectOf(db, "job", id)) !== visible;
    if (scope === "subject") {
      const { jobId } = (request.body ?? {}) as { readonly jobId?: unknown };
      if (await isHidden(jobId)) throw noJobOfBody(String(jobId));
    }
    if (scope === "jobs") {
      const { job: ids } = request.query as { readonly job: readonly string[] };
      for (const id of ids) if (await isHidden(id)) throw noJobOfQuery(id);
    }
  });
  return rules;
}

declare module "fastify" {
  interface FastifyRequest {
    /** The project of what is asked for, for the audit; null: the installation's, or not known. */
    project: string | null;
  }
  interface FastifyContextConfig {
    /** Where the role must be held. */
    scope?: Scope;
  }
}
