import { sql } from "drizzle-orm";
import {
  bigint,
  bigserial,
  boolean,
  check,
  doublePrecision,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  text,
  unique,
  uniqueIndex,
  uuid,
} from "drizzle-orm/pg-core";
import {
  DEFAULT_PROJECT,
  JOB_STATES,
  TRIAL_STATES,
  ATTEMPT_STATES,
  OPEN_PLAN_CHANGE_STATES,
  PLAN_CHANGE_ORIGINS,
  PLAN_CHANGE_STATES,
  type Attempt,
  type Candidate,
  type Failure,
  type JobSpec,
  type JobState,
  type Measurement,
  type Plan,
  type PlanChange,
  type PlanChangeState,
  type PlanningResult,
  type Profile,
  type Report,
  type Trial,
} from "@internevo/domain";
import { JOB_STREAM_EVENTS, type JobStreamEvent } from "@internevo/contracts";
import { instant, oneOf } from "./columns.ts";
import { projects } from "./projects.ts";

/** What was measured of a cluster. */
export const profiles = pgTable(
  "profiles",
  {
    id: uuid("id").primaryKey(),
    name: text("name").notNull(),
    clusterKey: text("cluster_key").notNull(),
    profile: jsonb("profile").$type<Profile>().notNull(),
    createdAt: instant("created_at").notNull().defaultNow(),
    freshUntil: instant("fresh_until").notNull(),
    /** Whose it is: of the token that gave it; null: the installation's, as everything measured is. */
    project: text("project").references(() => projects.name),
    /** When somebody discarded it: jobs that used it still show it, no other job does. */
    discardedAt: instant("discarded_at"),
    /**
     * SHA-256 of a profile that somebody gave, so that the same content has one row in its project that is not
     * discarded; null for what was measured.
     */
    givenSha256: text("given_sha256"),
  },
  (table) => [
    index("profiles_cluster").on(table.clusterKey, table.createdAt),
    index("profiles_page").on(table.createdAt, table.id),
    uniqueIndex("profiles_given_sha256")
      .on(table.givenSha256)
      .where(sql`discarded_at is null and project is null`),
    uniqueIndex("profiles_project_given_sha256")
      .on(table.project, table.givenSha256)
      .where(sql`discarded_at is null`),
  ],
);

/** One search: everything of its result but the candidates, which are rows. */
export const plannings = pgTable(
  "plannings",
  {
    id: uuid("id").primaryKey(),
    /** The job or the workload that asked. */
    jobId: uuid("job_id"),
    workloadId: uuid("workload_id"),
    profileId: uuid("profile_id").references(() => profiles.id),
    summary: jsonb("summary")
      .$type<Omit<PlanningResult, "candidates" | "runnableCandidates" | "counts">>()
      .notNull(),
    counts: jsonb("counts").$type<PlanningResult["counts"]>().notNull(),
    createdAt: instant("created_at").notNull().defaultNow(),
  },
  (table) => [
    index("plannings_job").on(table.jobId),
    index("plannings_workload").on(table.workloadId, table.createdAt),
    index("plannings_profile").on(table.profileId),
  ],
);

export const planningCandidates = pgTable(
  "planning_candidates",
  {
    planningId: uuid("planning_id")
      .notNull()
      .references(() => plannings.id, { onDelete: "cascade" }),
    list: text("list").$type<"all" | "runnable">().notNull(),
    /** Place in its list, from 1. */
    position: integer("position").notNull(),
    rank: integer("rank").notNull(),
    stepTimeSeconds: doublePrecision("step_time_seconds").notNull(),
    peakMemoryBytes: bigint("peak_memory_bytes", { mode: "number" }).notNull(),
    candidate: jsonb("candidate").$type<Candidate>().notNull(),
  },
  (table) => [primaryKey({ columns: [table.planningId, table.list, table.position] })],
);

export const jobs = pgTable(
  "jobs",
  {
    id: uuid("id").primaryKey(),
    name: text("name").notNull(),
    spec: jsonb("spec").$type<JobSpec>().notNull(),
    /** Fields that its file stated, of those whose defaults follow from others; none for jobs of before. */
    stated: jsonb("stated").$type<readonly string[]>().notNull().default([]),
    state: text("state").$type<JobState>().notNull(),
    reason: text("reason"),
    /** The job among whose files its weights lay when it was submitted, whose files its token saw; null: no job's. */
    weightsOf: uuid("weights_of"),
    /** Who submitted it, as the token's name; null for jobs of before owners were kept. */
    owner: text("owner"),
    project: text("project")
      .notNull()
      .default(DEFAULT_PROJECT)
      .references(() => projects.name),
    /** Counts transitions: the ETag. */
    version: integer("version").notNull().default(1),
    /** W3C trace context, the same through all of the job's messages and logs. */
    traceparent: text("traceparent").notNull(),
    profileId: uuid("profile_id").references(() => profiles.id),
    planningId: uuid("planning_id").references(() => plannings.id),
    chosen: jsonb("chosen").$type<Candidate>(),
    failure: jsonb("failure").$type<Failure>(),
    report: jsonb("report").$type<Report>(),
    createdAt: instant("created_at").notNull().defaultNow(),
    updatedAt: instant("updated_at").notNull().defaultNow(),
    endedAt: instant("ended_at"),
    /** Retention removes nothing of it. */
    keep: boolean("keep").notNull().default(false),
  },
  (table) => [
    index("jobs_page").on(table.createdAt, table.id),
    index("jobs_state_page").on(table.state, table.createdAt, table.id),
    index("jobs_project_page").on(table.project, table.createdAt, table.id),
    index("jobs_owner_page").on(table.owner, table.createdAt, table.id),
    index("jobs_cluster_page").on(sql`(spec -> 'cluster' ->> 'name')`, table.createdAt, table.id),
    // Trigrams: any part of a name, in either case.
    index("jobs_name").using("gin", table.name.op("gin_trgm_ops")),
    index("jobs_labels").using("gin", sql`(spec -> 'labels')`),
    index("jobs_profile").on(table.profileId),
    index("jobs_ended").on(table.endedAt),
    index("jobs_named_profile").using("hash", sql`(spec -> 'cluster' ->> 'profile')`),
    check("jobs_state_known", oneOf("state", JOB_STATES)),
  ],
);

export const jobTransitions = pgTable(
  "job_transitions",
  {
    jobId: uuid("job_id")
      .notNull()
      .references(() => jobs.id),
    /** The job's version after it. */
    version: integer("version").notNull(),
    from: text("from_state").$type<JobState>(),
    to: text("to_state").$type<JobState>().notNull(),
    reason: text("reason"),
    at: instant("at").notNull().defaultNow(),
  },
  (table) => [primaryKey({ columns: [table.jobId, table.version] })],
);

/** A step in the log whose figures are no longer the run's. */
export const REPLACED_STEP = "replaced-step";

/** What is written into the log itself. */
export type LoggedType = Exclude<JobStreamEvent["type"], "step"> | typeof REPLACED_STEP;
const LOGGED_TYPES: readonly LoggedType[] = [
  ...JOB_STREAM_EVENTS.filter((type) => type !== "step"),
  REPLACED_STEP,
];

/**
 * The log that people follow, in the order in which it became visible (writers of one job are serialised by
 * its row lock). The steps of it are rows of {@link stepMetrics}, which take their numbers from the same sequence.
 * Here are only those that a later attempt ran again. Services of an earlier version find both under the name
 * `job_events`, which is a view: see the migration `0029_log_for_earlier_versions`.
 */
export const jobEvents = pgTable(
  "job_log",
  {
    id: bigserial("id", { mode: "number" }).primaryKey(),
    jobId: uuid("job_id")
      .notNull()
      .references(() => jobs.id),
    type: text("type").$type<LoggedType>().notNull(),
    at: instant("at").notNull().defaultNow(),
    data: jsonb("data").$type<Record<string, unknown>>().notNull(),
  },
  (table) => [
    index("job_events_job").on(table.jobId, table.id),
    // What is read newest first, out of a hundred times as many steps.
    index("job_events_words")
      .on(table.jobId, table.type, table.id)
      .where(sql`type in ('progress', 'log')`),
    check("job_log_type_known", oneOf("type", LOGGED_TYPES)),
  ],
);

export const trials = pgTable(
  "trials",
  {
    id: uuid("id").primaryKey(),
    jobId: uuid("job_id")
      .notNull()
      .references(() => jobs.id),
    /** The candidate's rank among all plans; unique in a job. */
    rank: integer("rank").notNull(),
    candidate: jsonb("candidate").$type<Candidate>().notNull(),
    state: text("state").$type<Trial["state"]>().notNull().default("pending"),
    measured: jsonb("measured").$type<Measurement>(),
    failure: jsonb("failure").$type<Failure>(),
    startedAt: instant("started_at"),
    endedAt: instant("ended_at"),
  },
  (table) => [
    unique("trials_job_rank").on(table.jobId, table.rank),
    check("trials_state_known", oneOf("state", TRIAL_STATES)),
  ],
);

/**
 * The training of a job; `candidate` is what its next attempt goes by: the chosen plan, until nodes are lost.
 */
export const runs = pgTable("runs", {
  id: uuid("id").primaryKey(),
  jobId: uuid("job_id")
    .notNull()
    .unique()
    .references(() => jobs.id),
  candidate: jsonb("candidate").$type<Candidate>().notNull(),
  createdAt: instant("created_at").notNull().defaultNow(),
});

/** One start of the ranks. */
export const attempts = pgTable(
  "attempts",
  {
    runId: uuid("run_id")
      .notNull()
      .references(() => runs.id),
    number: integer("number").notNull(),
    state: text("state").$type<Attempt["state"]>().notNull().default("running"),
    resumedFromStep: integer("resumed_from_step").notNull().default(0),
    lastStep: integer("last_step").notNull().default(0),
    /** Of its newest checkpoint that was announced; null: it has written none. */
    checkpointStep: integer("checkpoint_step"),
    failure: jsonb("failure").$type<Failure>(),
    /** What the ranks run: the run's plan may change between attempts. */
    plan: jsonb("plan").$type<Plan>(),
    /** What else its hosts did, in sentences; null: its ranks have not said it. */
    disturbances: jsonb("disturbances").$type<readonly string[]>(),
    /** For whom it ended, in words; null: for nobody. */
    gaveWayTo: text("gave_way_to"),
    startedAt: instant("started_at").notNull().defaultNow(),
    endedAt: instant("ended_at"),
  },
  (table) => [
    primaryKey({ columns: [table.runId, table.number] }),
    check("attempts_state_known", oneOf("state", ATTEMPT_STATES)),
  ],
);

/** A run's changes from one plan to another: one at a time. */
export const planChanges = pgTable(
  "plan_changes",
  {
    id: uuid("id").primaryKey(),
    runId: uuid("run_id")
      .notNull()
      .references(() => runs.id),
    state: text("state").$type<PlanChangeState>().notNull().default("asked"),
    origin: text("origin").$type<PlanChange["origin"]>().notNull(),
    askedBy: text("asked_by").notNull(),
    from: jsonb("from_candidate").$type<Candidate>().notNull(),
    to: jsonb("to_candidate").$type<Candidate>().notNull(),
    predictedGain: doublePrecision("predicted_gain").notNull(),
    gainThreshold: doublePrecision("gain_threshold").notNull(),
    compareSteps: integer("compare_steps").notNull(),
    appliedAtStep: integer("applied_at_step"),
    firstAttempt: integer("first_attempt"),
    secondsBefore: doublePrecision("seconds_before"),
    secondsAfter: doublePrecision("seconds_after"),
    measuredGain: doublePrecision("measured_gain"),
    /** The run goes back when its steps are compared, whatever they gained. */
    isTrial: boolean("is_trial").notNull().default(false),
    /** The proposal of a workload that it carries out. It may be gone. */
    proposalId: uuid("proposal_id"),
    /** The run of a workload's schedule that asked the job to search. It may be gone. */
    firingId: uuid("firing_id"),
    reason: text("reason"),
    createdAt: instant("created_at").notNull().defaultNow(),
    appliedAt: instant("applied_at"),
    endedAt: instant("ended_at"),
  },
  (table) => [
    uniqueIndex("plan_changes_open").on(table.runId).where(oneOf("state", OPEN_PLAN_CHANGE_STATES)),
    index("plan_changes_page").on(table.runId, table.createdAt, table.id),
    check("plan_changes_state_known", oneOf("state", PLAN_CHANGE_STATES)),
    check("plan_changes_origin_known", oneOf("origin", PLAN_CHANGE_ORIGINS)),
  ],
);

/**
 * Each step counted once: a step that is run again after a restart replaces what the earlier attempt
 * measured. It is the step's event in the job's log too.
 */
export const stepMetrics = pgTable(
  "step_metrics",
  {
    runId: uuid("run_id")
      .notNull()
      .references(() => runs.id),
    step: integer("step").notNull(),
    attempt: integer("attempt").notNull(),
    loss: doublePrecision("loss").notNull(),
    gradientNorm: doublePrecision("gradient_norm").notNull(),
    learningRate: doublePrecision("learning_rate").notNull(),
    stepTimeSeconds: doublePrecision("step_time_seconds").notNull(),
    tokensPerSecond: doublePrecision("tokens_per_second").notNull(),
    exposedCommunicationSeconds: doublePrecision("exposed_communication_seconds").notNull(),
    at: instant("at").notNull(),
    /** Its place in the job's log, among {@link jobEvents}. */
    eventId: bigint("event_id", { mode: "number" })
      .notNull()
      .default(sql`nextval('job_events_id_seq')`),
  },
  (table) => [
    primaryKey({ columns: [table.runId, table.step] }),
    index("step_metrics_event").on(table.runId, table.eventId),
  ],
);

/** The loss of held-out data, once a step; step 0: before training. */
export const validationLosses = pgTable(
  "validation_losses",
  {
    runId: uuid("run_id")
      .notNull()
      .references(() => runs.id),
    step: integer("step").notNull(),
    attempt: integer("attempt").notNull(),
    loss: doublePrecision("loss").notNull(),
    tokens: bigint("tokens", { mode: "number" }).notNull(),
    seconds: doublePrecision("seconds").notNull(),
    at: instant("at").notNull(),
  },
  (table) => [primaryKey({ columns: [table.runId, table.step] })],
);
