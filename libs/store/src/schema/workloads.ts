import { sql } from "drizzle-orm";
import {
  boolean,
  check,
  doublePrecision,
  index,
  integer,
  jsonb,
  pgTable,
  text,
  unique,
  uuid,
} from "drizzle-orm/pg-core";
import {
  ANSWERABLE_PROPOSAL_STATES,
  DEFAULT_PROJECT,
  PROPOSAL_STATES,
  REPLAN_POLICIES,
  WORKLOAD_DEFAULTS,
  type Candidate,
  type DailyWindow,
  type JobSpec,
  type Proposal,
  type ProposalState,
  type ReplanPolicy,
} from "@internevo/domain";
import { instant, oneOf } from "./columns.ts";
import { plannings } from "./jobs.ts";
import { projects } from "./projects.ts";

export const workloads = pgTable(
  "workloads",
  {
    id: uuid("id").primaryKey(),
    name: text("name").notNull(),
    project: text("project")
      .notNull()
      .default(DEFAULT_PROJECT)
      .references(() => projects.name),
    spec: jsonb("spec").$type<JobSpec>().notNull(),
    cron: text("cron").notNull(),
    timeZone: text("time_zone").notNull(),
    catchUpWindowSeconds: integer("catch_up_window_seconds").notNull(),
    gainThreshold: doublePrecision("gain_threshold").notNull(),
    policy: text("policy").$type<ReplanPolicy>().notNull().default(WORKLOAD_DEFAULTS.policy),
    changeWindow: jsonb("change_window").$type<DailyWindow>(),
    compareSteps: integer("compare_steps").notNull().default(WORKLOAD_DEFAULTS.compareSteps),
    notInLastSteps: integer("not_in_last_steps").notNull().default(WORKLOAD_DEFAULTS.notInLastSteps),
    mayMeasureRuns: boolean("may_measure_runs").notNull().default(WORKLOAD_DEFAULTS.mayMeasureRuns),
    enabled: boolean("enabled").notNull().default(true),
    nextRunAt: instant("next_run_at"),
    lastRunAt: instant("last_run_at"),
    lastOutcome: text("last_outcome"),
    createdAt: instant("created_at").notNull().defaultNow(),
  },
  (table) => [
    // A name of its project: whether another project has it is nobody's business.
    unique("workloads_project_name").on(table.project, table.name),
    index("workloads_due")
      .on(table.nextRunAt)
      .where(sql`enabled`),
    index("workloads_page").on(table.createdAt, table.id),
    check("workloads_policy_known", oneOf("policy", REPLAN_POLICIES)),
  ],
);

export const FIRING_STATES = ["pending", "succeeded", "failed", "skipped"] as const;
export type FiringState = (typeof FIRING_STATES)[number];

/** One planned time of a workload; unique, so that nothing fires twice. */
export const workloadFirings = pgTable(
  "workload_firings",
  {
    id: uuid("id").primaryKey(),
    workloadId: uuid("workload_id")
      .notNull()
      .references(() => workloads.id, { onDelete: "cascade" }),
    scheduledFor: instant("scheduled_for").notNull(),
    trigger: text("trigger").$type<"schedule" | "person">().notNull(),
    state: text("state").$type<FiringState>().notNull(),
    outcome: text("outcome"),
    traceparent: text("traceparent").notNull(),
    createdAt: instant("created_at").notNull().defaultNow(),
    endedAt: instant("ended_at"),
  },
  (table) => [unique("workload_firings_once").on(table.workloadId, table.scheduledFor, table.trigger)],
);

export const proposals = pgTable(
  "proposals",
  {
    id: uuid("id").primaryKey(),
    workloadId: uuid("workload_id")
      .notNull()
      .references(() => workloads.id, { onDelete: "cascade" }),
    /** One firing makes one proposal at most. */
    firingId: uuid("firing_id")
      .notNull()
      .unique()
      .references(() => workloadFirings.id, { onDelete: "cascade" }),
    planningId: uuid("planning_id").references(() => plannings.id),
    current: jsonb("current").$type<Candidate>(),
    proposed: jsonb("proposed").$type<Candidate>().notNull(),
    predictedGain: doublePrecision("predicted_gain").notNull(),
    state: text("state").$type<ProposalState>().notNull().default("proposed"),
    measuredGain: doublePrecision("measured_gain"),
    /** The job whose run tried or got it. It may be gone. */
    jobId: uuid("job_id"),
    reason: text("reason"),
    changedAt: instant("changed_at").notNull().defaultNow(),
    differences: jsonb("differences").$type<Proposal["differences"]>().notNull(),
    createdAt: instant("created_at").notNull().defaultNow(),
  },
  (table) => [
    index("proposals_page").on(table.workloadId, table.createdAt, table.id),
    index("proposals_waiting").on(table.workloadId).where(oneOf("state", ANSWERABLE_PROPOSAL_STATES)),
    check("proposals_state_known", oneOf("state", PROPOSAL_STATES)),
  ],
);
