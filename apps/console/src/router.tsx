import { AuditFilterSchema, JobFilterSchema, type AuditFilter, type JobFilter } from "@internevo/contracts";
import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  redirect,
} from "@tanstack/react-router";
import type { Static, TObject } from "typebox";
import { Value } from "typebox/value";
import { Layout } from "./components/layout.tsx";
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

/** Those fields of an address that are what the filter may be; others are ignored. */
function filterOf<T extends TObject>(search: Record<string, unknown>, schema: T): Static<T> {
  const fields = Object.entries(schema.properties).filter(([name, field]) =>
    Value.Check(field, search[name]),
  );
  return Object.fromEntries(
    fields.flatMap(([name]) => (search[name] === undefined ? [] : [[name, search[name]]])),
  ) as Static<T>;
}

const jobs = createRoute({
  getParentRoute: () => root,
  path: "/jobs",
  validateSearch: (search: Record<string, unknown>): JobFilter => filterOf(search, JobFilterSchema),
  component: lazyRouteComponent(() => import("./pages/jobs.tsx"), "JobsPage"),
});
const submit = createRoute({
  getParentRoute: () => root,
  path: "/submit",
  component: lazyRouteComponent(() => import("./pages/submit.tsx"), "SubmitPage"),
});
const job = createRoute({
  getParentRoute: () => root,
  path: "/jobs/$jobId",
  component: lazyRouteComponent(() => import("./pages/job.tsx"), "JobPage"),
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
  validateSearch: (search: Record<string, unknown>): { job?: string } =>
    typeof search["job"] === "string" ? { job: search["job"] } : {},
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
const tokens = createRoute({
  getParentRoute: () => root,
  path: "/tokens",
  component: lazyRouteComponent(() => import("./pages/tokens.tsx"), "TokensPage"),
});
const audit = createRoute({
  getParentRoute: () => root,
  path: "/audit",
  validateSearch: (search: Record<string, unknown>): AuditFilter => filterOf(search, AuditFilterSchema),
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
  plan,
  imported,
  whatIf,
  profiles,
  profile,
  workloads,
  workload,
  tokens,
  audit,
  deadLetters,
]);

export const createConsoleRouter = () =>
  createRouter({
    routeTree,
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
