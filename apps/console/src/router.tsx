import type { AuditFilter, JobFilter, UsageQuery } from "@internevo/contracts";
import { JOB_STATES, QUEUED_STATE } from "@internevo/domain";
import {
  createRootRoute,
  createRoute,
  createRouter,
  defaultStringifySearch,
  lazyRouteComponent,
  redirect,
} from "@tanstack/react-router";
import { Layout } from "./components/layout.tsx";
import { JOB_PARTS, type JobPart } from "./data/job-parts.ts";
import { NotFound, PageError } from "./components/page-errors.tsx";
import { Loading } from "./components/states.tsx";

const root = createRootRoute({ component: Layout, notFoundComponent: NotFound });

const home = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () => {
    redirect({ to: "/jobs", replace: true, throw: true });
  },
});

/** What the fields of a filter may be. The schemas say it too, but are too large for the first page. */
type Checks<F> = { readonly [K in keyof F]-?: (value: unknown) => value is Exclude<F[K], undefined> };

const isText = (value: unknown): value is string => typeof value === "string";
const isOneOf =
  <T extends string>(...values: readonly T[]) =>
  (value: unknown): value is T =>
    values.some((each) => each === value);

const JOB_FILTER: Checks<JobFilter> = {
  state: isOneOf(QUEUED_STATE, ...JOB_STATES),
  name: isText,
  owner: isText,
  project: isText,
  cluster: isText,
  label: isText,
};
const AUDIT_FILTER: Checks<AuditFilter> = {
  actor: isText,
  target: isText,
  project: isText,
  action: isText,
  outcome: isOneOf("done", "refused"),
  from: isText,
  until: isText,
};
const USAGE_QUERY: Checks<UsageQuery> = {
  by: isOneOf("project", "owner", "cluster", "day"),
  from: isText,
  to: isText,
  project: isText,
};

/** Those fields of an address that are what the filter may be; others are ignored. */
function filterOf<F extends object>(search: Record<string, unknown>, checks: Checks<F>): F {
  const fields = Object.entries<(value: unknown) => boolean>(checks);
  return Object.fromEntries(
    fields.filter(([name, check]) => check(search[name])).map(([name]) => [name, search[name]]),
  ) as F;
}

/** The job that an address names. */
const jobOf = ({ job: id }: Record<string, unknown>): { job?: string } => (isText(id) ? { job: id } : {});

const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  validateSearch: (search: Record<string, unknown>): JobFilter => filterOf(search, JOB_FILTER),
  component: lazyRouteComponent(() => import("./pages/jobs.tsx"), "JobsPage"),
});
const submit = createRoute({
  getParentRoute: () => root,
  path: "/submit",
  validateSearch: jobOf,
  component: lazyRouteComponent(() => import("./pages/submit.tsx"), "SubmitPage"),
});
const isPart = (value: unknown): value is JobPart => isText(value) && Object.hasOwn(JOB_PARTS, value);

const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$jobId",
  validateSearch: ({ part }: Record<string, unknown>): { part?: JobPart } => (isPart(part) ? { part } : {}),
  component: lazyRouteComponent(() => import("./pages/job.tsx"), "JobPage"),
});
/** Jobs that an address names. */
function jobsOf({ job: ids }: Record<string, unknown>): { job?: string[] } {
  const named = [ids].flat().filter(isText);
  return named.length === 0 ? {} : { job: [...new Set(named)] };
}
const compare = createRoute({
  getParentRoute: () => root,
  path: "/compare",
  validateSearch: jobsOf,
  component: lazyRouteComponent(() => import("./pages/compare.tsx"), "ComparePage"),
});
const plan = createRoute({
  getParentRoute: () => root,
  path: "/plan",
  component: lazyRouteComponent(() => import("./pages/plan.tsx"), "PlanPage"),
});
const imported = createRoute({
  getParentRoute: () => root,
  path: "/import",
  component: lazyRouteComponent(() => import("./pages/import.tsx"), "ImportPage"),
});
const whatIf = createRoute({
  getParentRoute: () => root,
  path: "/what-if",
  validateSearch: jobOf,
  component: lazyRouteComponent(() => import("./pages/what-if.tsx"), "WhatIfPage"),
});
const profiles = createRoute({
  getParentRoute: () => root,
  path: "/clusters",
  component: lazyRouteComponent(() => import("./pages/profiles.tsx"), "ProfilesPage"),
});
const profile = createRoute({
  getParentRoute: () => root,
  path: "/clusters/$profileId",
  component: lazyRouteComponent(() => import("./pages/profile.tsx"), "ProfilePage"),
});
const workloads = createRoute({
  getParentRoute: () => root,
  path: "/workloads",
  component: lazyRouteComponent(() => import("./pages/workloads.tsx"), "WorkloadsPage"),
});
const workload = createRoute({
  getParentRoute: () => root,
  path: "/workloads/$workloadId",
  component: lazyRouteComponent(() => import("./pages/workload.tsx"), "WorkloadPage"),
});
const projects = createRoute({
  getParentRoute: () => root,
  path: "/projects",
  component: lazyRouteComponent(() => import("./pages/projects.tsx"), "ProjectsPage"),
});
const usage = createRoute({
  getParentRoute: () => root,
  path: "/usage",
  validateSearch: (search: Record<string, unknown>): UsageQuery => filterOf(search, USAGE_QUERY),
  component: lazyRouteComponent(() => import("./pages/usage.tsx"), "UsagePage"),
});
const retention = createRoute({
  getParentRoute: () => root,
  path: "/retention",
  component: lazyRouteComponent(() => import("./pages/retention.tsx"), "RetentionPage"),
});
const tokens = createRoute({
  getParentRoute: () => root,
  path: "/tokens",
  component: lazyRouteComponent(() => import("./pages/tokens.tsx"), "TokensPage"),
});
const webhooks = createRoute({
  getParentRoute: () => root,
  path: "/webhooks",
  component: lazyRouteComponent(() => import("./pages/webhooks.tsx"), "WebhooksPage"),
});
const webhook = createRoute({
  getParentRoute: () => root,
  path: "/webhooks/$webhookId",
  component: lazyRouteComponent(() => import("./pages/webhook.tsx"), "WebhookPage"),
});
const audit = createRoute({
  getParentRoute: () => root,
  path: "/audit",
  validateSearch: (search: Record<string, unknown>): AuditFilter => filterOf(search, AUDIT_FILTER),
  component: lazyRouteComponent(() => import("./pages/audit.tsx"), "AuditPage"),
});
const deadLetters = createRoute({
  getParentRoute: () => root,
  path: "/dead-letters",
  component: lazyRouteComponent(() => import("./pages/dead-letters.tsx"), "DeadLettersPage"),
});

const routeTree = root.addChildren([
  home,
  jobs,
  submit,
  job,
  compare,
  plan,
  imported,
  whatIf,
  profiles,
  profile,
  workloads,
  workload,
  projects,
  usage,
  retention,
  tokens,
  webhooks,
  webhook,
  audit,
  deadLetters,
]);

/** A search as text. A list's name stands once for each of it: `?job=A&job=B`. */
function searchText(search: Record<string, unknown>): string {
  const lists = Object.entries(search).filter((entry): entry is [string, unknown[]] =>
    Array.isArray(entry[1]),
  );
  const single = Object.fromEntries(Object.entries(search).filter(([, value]) => !Array.isArray(value)));
  const named = new URLSearchParams(
    lists.flatMap(([name, values]) => values.map((value) => [name, String(value)])),
  ).toString();
  const text = defaultStringifySearch(single);
  return named === "" ? text : `${text === "" ? "?" : `${text}&`}${named}`;
}

export const createConsoleRouter = () =>
  createRouter({
    routeTree,
    stringifySearch: searchText,
    scrollRestoration: true,
    defaultPreload: "intent",
    defaultPendingComponent: () => (
      <div className="page">
        <Loading label="page" />
      </div>
    ),
    defaultErrorComponent: PageError,
  });

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof createConsoleRouter>;
  }
}
