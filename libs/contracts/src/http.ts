import { Type, type Static, type TSchema } from "typebox";
import { HeadroomSchema } from "./advice.ts";
import { RemovalSchema, type Removal } from "./retention.ts";
import {
  AttemptSchema,
  CandidateSchema,
  FailureSchema,
  JOB_STATES,
  JobSpecSchema,
  LabelsSchema,
  Line,
  VisibleName,
  MeasuredFirstSchema,
  PlanningResultSchema,
  PreemptibleSchema,
  PrioritySchema,
  ProfileQualitySchema,
  ProfileSchema,
  PROBLEM_CODES,
  ProjectNameSchema,
  QUEUED_STATE,
  PlanChangeSchema,
  ProposalSchema,
  QueuePlaceSchema,
  QueuePositionSchema,
  ReportSchema,
  StepMetricSchema,
  ValidationLossSchema,
  TrialSchema,
  type WORKLOAD_DEFAULTS,
  WorkloadSchema,
  WorkloadSummarySchema,
  type PlanChange,
  type ValidationLoss,
  type JobFile,
} from "@internevo/domain";

/** The HTTP API's shapes, below `/api/v1`: one place for server, client and console. */
export const ROLES = ["viewer", "operator", "admin"] as const;
export const RoleSchema = Type.Enum(ROLES);
export type Role = Static<typeof RoleSchema>;

/** In what a request that changes something says that it comes from the console, and not from another site. */
export const CSRF_HEADER = "x-csrf-token";

/** Where a role is held. */
const HeldInSchema = Type.Union([ProjectNameSchema, Type.Null()], {
  description: "where it has its role; null: in the whole installation",
});

/** A role, and where it is held. */
export const PlaceSchema = Type.Object({ role: RoleSchema, project: HeldInSchema });
export type Place = Static<typeof PlaceSchema>;

/**
 * What a token is: one that an admin made, a browser's session, or one that `internevo login` keeps. The last
 * two belong to a person who signed in.
 */
export const TOKEN_KINDS = ["token", "session", "login"] as const;
export type TokenKind = (typeof TOKEN_KINDS)[number];
const TokenKindSchema = Type.Enum(TOKEN_KINDS);

/** How people sign in. */
export const SignInSchema = Type.Object({
  provider: Type.Union([Type.Object({ name: Type.String() }), Type.Null()], {
    description: "of identities; null: none is set, and tokens are the only way in",
  }),
  isSignedIn: Type.Boolean({ description: "whether the request has the cookie of a valid session" }),
  problem: Type.Union([Type.String(), Type.Null()], {
    description: "why this browser's last sign-in failed; said once",
  }),
});
export type SignIn = Static<typeof SignInSchema>;

/** A sign-in of a device, as RFC 8628 has it. */
export const DeviceSignInSchema = Type.Object({
  deviceCode: Type.String({ description: "for `POST /sign-in/device/token`" }),
  userCode: Type.String({ description: "what the person types" }),
  verificationUri: Type.String({ description: "where" }),
  verificationUriComplete: Type.Union([Type.String(), Type.Null()], {
    description: "the same with the code in it; null: the provider has none",
  }),
  expiresInSeconds: Type.Integer(),
  intervalSeconds: Type.Integer({ description: "between two questions for the token" }),
});
export type DeviceSignIn = Static<typeof DeviceSignInSchema>;

export const DeviceTokenRequestSchema = Type.Object(
  { deviceCode: Type.String({ minLength: 1, maxLength: 4096 }) },
  { additionalProperties: false },
);

/** What became of a device's sign-in. */
export const DeviceTokenSchema = Type.Object({
  state: Type.Enum(["pending", "slow-down", "signed-in"]),
  token: Type.Union([Type.String(), Type.Null()], { description: "null until the person has signed in" }),
  expiresAt: Type.Union([Type.String(), Type.Null()]),
});
export type DeviceToken = Static<typeof DeviceTokenSchema>;

export const SessionChangeSchema = Type.Object(
  { project: Type.Union([ProjectNameSchema, Type.Null()]) },
  { additionalProperties: false },
);

/** What is left to do after a session has ended. */
export const SignedOutSchema = Type.Object({
  providerUrl: Type.Union([Type.String(), Type.Null()], {
    description: "where a browser goes to sign out of the provider too; null: nowhere",
  }),
});
export type SignedOut = Static<typeof SignedOutSchema>;

/** Whose token it is. */
export const WhoamiSchema = Type.Object({
  name: Type.String(),
  role: RoleSchema,
  project: HeldInSchema,
  kind: TokenKindSchema,
  places: Type.Array(PlaceSchema, {
    description:
      "where the person may act, by `PATCH /session`; empty for a token that no person signed in for",
  }),
  csrfToken: Type.Union([Type.String(), Type.Null()], {
    description: `for a browser's session: what a request that changes something has in ${"`"}${CSRF_HEADER}${"`"}`,
  }),
});
export type Whoami = Static<typeof WhoamiSchema>;

/** A bearer token, as it is listed: without its secret, of which only a digest is stored. */
export const TokenSchema = Type.Object({
  id: Type.String(),
  name: Type.String(),
  kind: TokenKindSchema,
  role: RoleSchema,
  project: HeldInSchema,
  createdAt: Type.String(),
  expiresAt: Type.Union([Type.String(), Type.Null()], { description: "null: valid until it is revoked" }),
  lastUsedAt: Type.Union([Type.String(), Type.Null()], { description: "to the minute; null: never" }),
});
export type TokenRecord = Static<typeof TokenSchema>;

export const TokenCreateSchema = Type.Object(
  {
    name: VisibleName(100),
    role: RoleSchema,
    project: Type.Optional(
      Type.String({
        ...ProjectNameSchema,
        description: "where it has its role; absent: where the token that makes it has its own",
      }),
    ),
    validForSeconds: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 315_360_000,
        description: "up to ten years; absent: until it is revoked",
      }),
    ),
  },
  { additionalProperties: false },
);
export type TokenCreate = Static<typeof TokenCreateSchema>;

/** The only answer that has the token itself. */
export const CreatedTokenSchema = Type.Object({ ...TokenSchema.properties, token: Type.String() });
export type CreatedToken = Static<typeof CreatedTokenSchema>;

const nullable = <S extends TSchema>(schema: S) => Type.Union([schema, Type.Null()]);
const JobStateSchema = Type.Enum(JOB_STATES);

/** RFC 9457. */
export const ProblemSchema = Type.Object({
  type: Type.String(),
  title: Type.String(),
  status: Type.Integer(),
  code: Type.Enum(PROBLEM_CODES),
  detail: Type.Optional(Type.String()),
  errors: Type.Optional(
    Type.Array(
      Type.Object({
        field: Type.String(),
        value: Type.Optional(Type.Unknown()),
        message: Type.String(),
        remedy: Type.String(),
      }),
    ),
  ),
  traceId: Type.Optional(Type.String()),
});
export type Problem = Static<typeof ProblemSchema>;

/** One page; `nextCursor` is null on the last. */
export const PageSchema = <S extends TSchema>(item: S) =>
  Type.Object({ items: Type.Array(item), nextCursor: nullable(Type.String()) });
export const TokenPageSchema = PageSchema(TokenSchema);

/** Which jobs a list has. */
export const JobFilterSchema = Type.Object({
  state: Type.Optional(
    Type.Enum([...JOB_STATES, QUEUED_STATE], {
      description: "`queued`: those that wait for hosts, whatever stage they are in",
    }),
  ),
  name: Type.Optional(Line(100, { description: "a part of the name, upper or lower case" })),
  owner: Type.Optional(Line(100, { description: "the token that submitted it" })),
  project: Type.Optional(ProjectNameSchema),
  cluster: Type.Optional(Line(200, { description: "the name of the cluster" })),
  label: Type.Optional(Line(200, { description: "a label and its value, for example `team=nlp`" })),
});
export type JobFilter = Static<typeof JobFilterSchema>;

/** One action of the audit log: who did what to which object, and what came of it. */
export const AuditRecordSchema = Type.Object({
  id: Type.Integer(),
  at: Type.String(),
  actor: Type.String({ description: "the token's name" }),
  role: Type.String(),
  action: Type.String({ description: "method and route, for example `POST /api/v1/jobs/:id/cancel`" }),
  target: nullable(Type.String({ description: "the id of what it was about" })),
  status: Type.Integer({ description: "of the answer: 400 and above were refused" }),
  project: nullable(Type.String({ description: "of what it was about; null: the installation's" })),
  traceId: nullable(Type.String()),
  details: nullable(Type.Record(Type.String(), Type.Unknown())),
});
export type AuditRecord = Static<typeof AuditRecordSchema>;
export const AuditPageSchema = PageSchema(AuditRecordSchema);

/** Which actions the audit log shows. */
export const AuditFilterSchema = Type.Object({
  actor: Type.Optional(Line(100, { description: "the token's name" })),
  target: Type.Optional(Line(100, { description: "an id" })),
  action: Type.Optional(Line(200, { description: "a part of the action, for example `cancel`" })),
  outcome: Type.Optional(
    Type.Enum(["done", "refused"], { description: "refused: answered with 400 or above" }),
  ),
  project: Type.Optional(ProjectNameSchema),
  from: Type.Optional(Type.String({ format: "date-time", description: "at this instant or later" })),
  until: Type.Optional(Type.String({ format: "date-time", description: "before this instant" })),
});
export type AuditFilter = Static<typeof AuditFilterSchema>;

/** How far a stage is, in its own words. */
export const StageProgressSchema = Type.Object({
  stage: Type.String(),
  message: Type.String(),
  done: nullable(Type.Integer()),
  total: nullable(Type.Integer()),
  waits: Type.Boolean({ description: "the stage waits for others, as the message says, and is not at work" }),
  at: Type.String(),
});
export type StageProgress = Static<typeof StageProgressSchema>;

export const JobSummarySchema = Type.Object({
  id: Type.String(),
  name: Type.String(),
  state: JobStateSchema,
  owner: nullable(Type.String({ description: "the token that submitted it; null where that was not kept" })),
  project: Type.String(),
  reason: nullable(Type.String()),
  version: Type.Integer(),
  createdAt: Type.String(),
  updatedAt: Type.String(),
  endedAt: nullable(Type.String()),
  model: Type.String(),
  cluster: Type.String(),
  priority: PrioritySchema,
  preemptible: PreemptibleSchema,
  labels: LabelsSchema,
  steps: Type.Integer(),
  lastStep: Type.Integer(),
  lastLoss: nullable(Type.Number()),
  trialsDone: Type.Integer(),
  trialsTotal: Type.Integer(),
  progress: nullable(StageProgressSchema),
  queue: nullable(QueuePositionSchema),
});
export type JobSummary = Static<typeof JobSummarySchema>;

const QUEUED = "queued: ";

/** What a stage says while the cluster's devices are another's. */
export const WAITS_FOR_CLUSTER = `${QUEUED}others have its hosts, or wait for them with an earlier place`;

/** What a stage says while a quota of its project lets it have no hosts. @param limit the quota, in words */
export const waitsForQuota = (limit: string): string => `${QUEUED}${limit}`;

/** What a stage says while its job waits again for hosts that it gave up. @param why in words */
export const waitsAgain = (why: string): string => `${QUEUED}${why}`;

/**
 * What a stage says while another installation uses the machine that its ranks would run on. @param who with
 * what it does, in words
 */
export const waitsForMachine = (who: string): string => `has its hosts, and waits: ${who}`;

export const JobDetailSchema = Type.Object({
  ...JobSummarySchema.properties,
  queue: nullable(QueuePlaceSchema),
  givesWayTo: Type.Union([Type.String(), Type.Null()], {
    description:
      "the job that it was asked to give its hosts up for, in words; it writes a checkpoint and waits again",
  }),
  lastEventId: Type.Integer({
    description:
      "number of the newest event that this answer knows of: " +
      "`Last-Event-ID` of a stream that goes on from here; 0 without events",
  }),
  spec: JobSpecSchema,
  traceId: Type.String(),
  transitions: Type.Array(
    Type.Object({
      from: nullable(JobStateSchema),
      to: JobStateSchema,
      at: Type.String(),
      reason: nullable(Type.String()),
    }),
  ),
  holds: Type.Array(Type.Object({ from: Type.String(), to: nullable(Type.String()) }), {
    description:
      "when it held the hosts of its ranks; what a stage took beyond that it waited. Empty before its first " +
      "hosts, and on a cluster with a scheduler of its own",
  }),
  profileId: nullable(Type.String()),
  planningId: nullable(Type.String()),
  planning: nullable(PlanningResultSchema),
  trials: Type.Array(TrialSchema),
  chosen: nullable(CandidateSchema),
  attempts: Type.Array(AttemptSchema),
  lastValidation: Type.Optional(
    Type.Unsafe<ValidationLoss>({
      ...ValidationLossSchema,
      description: "the newest loss of held-out data; absent before the first, and where none is evaluated",
    }),
  ),
  planChange: Type.Optional(
    Type.Unsafe<PlanChange>({
      ...PlanChangeSchema,
      description: "the newest change of the plan that it trains with; absent where nobody asked for one",
    }),
  ),
  failure: nullable(FailureSchema),
  report: nullable(ReportSchema),
  files: Type.Optional(
    Type.Object(
      { checkpoints: Type.String(), timelines: Type.String() },
      {
        description:
          "folders where the services keep what the job writes; " +
          "absent where the API does not know their data directory",
      },
    ),
  ),
  keep: Type.Optional(Type.Boolean({ description: "true: retention removes nothing of it; absent: it may" })),
  removed: Type.Optional(
    Type.Array(RemovalSchema, {
      description: "what retention took of it, the newest removal of each kind; absent: nothing",
    }),
  ),
});
export type JobDetail = Static<typeof JobDetailSchema>;

const JobWarningsSchema = Type.Array(
  Type.Object({
    field: Type.String(),
    value: Type.Optional(Type.Unknown()),
    message: Type.String(),
    remedy: Type.String(),
  }),
  { description: "what is allowed and may be a mistake" },
);
export type JobWarnings = Static<typeof JobWarningsSchema>;

/**
 * A job at its submission: what may be a mistake in it, and what it measures before it is planned, where the
 * API knows.
 */
export const SubmittedJobSchema = Type.Object({
  ...JobDetailSchema.properties,
  warnings: Type.Optional(JobWarningsSchema),
  measuredFirst: Type.Optional(MeasuredFirstSchema),
});
export type SubmittedJob = Static<typeof SubmittedJobSchema>;

/** A job as a file that can be submitted. */
export const WrittenJobSchema = Type.Unsafe<JobFile>(
  Type.Object({}, { additionalProperties: true, description: "a job file" }),
);

/**
 * A job file that could be submitted now: the job that it stands for, and what speaks against submitting it
 * all the same.
 */
export const JobCheckSchema = Type.Object({
  job: Type.Unsafe<JobFile>({ ...WrittenJobSchema, description: "the job file with every default" }),
  warnings: JobWarningsSchema,
  measuredFirst: Type.Optional(MeasuredFirstSchema),
});
export type JobCheck = Static<typeof JobCheckSchema>;

/**
 * SSE of a job: `event:` is the type, `id:` the event's number, so that `Last-Event-ID` resumes without loss.
 */
export const JOB_STREAM_EVENTS = [
  "state",
  "progress",
  "trial",
  "step",
  "validation",
  "log",
  "report",
] as const;
export const JobStreamEventSchema = Type.Object({
  id: Type.Integer(),
  jobId: Type.String(),
  type: Type.Enum(JOB_STREAM_EVENTS),
  at: Type.String(),
  data: Type.Record(Type.String(), Type.Unknown(), {
    description:
      "state {from,to,reason}; progress {stage,message,done,total}; trial " +
      "{trial: Trial}; step StepMetric; validation ValidationLoss; log {level,source,message}; report Report",
  }),
});
export type JobStreamEvent = Static<typeof JobStreamEventSchema>;

/** One line of a job's log: an event of type `log`. */
export const JobLogLineSchema = Type.Object({
  id: Type.Integer(),
  at: Type.String(),
  level: Type.String(),
  source: Type.String(),
  message: Type.String(),
});
export type JobLogLine = Static<typeof JobLogLineSchema>;

export const ProfileRecordSchema = Type.Object({
  id: Type.String(),
  name: Type.String(),
  clusterKey: Type.String(),
  project: nullable(
    Type.String({ description: "whose it is; null: the installation's, as what was measured is" }),
  ),
  createdAt: Type.String(),
  freshUntil: Type.String(),
  discardedAt: nullable(Type.String({ description: "since when no new job uses it" })),
  profile: ProfileSchema,
});
export type ProfileRecord = Static<typeof ProfileRecordSchema>;

/** A profile in a list: without its curves, and never a discarded one. */
export const ProfileSummarySchema = Type.Object({
  ...Type.Omit(ProfileRecordSchema, ["profile", "discardedAt"]).properties,
  estimated: Type.Boolean({ description: "whether any of its points is an estimate from published figures" }),
  quality: nullable(
    Type.Object(
      { ...ProfileQualitySchema.properties },
      { description: "how quiet the measurement was; null where it is not known" },
    ),
  ),
});
export type ProfileSummary = Static<typeof ProfileSummarySchema>;

export const PlanRequestSchema = Type.Object(
  {
    job: Type.Unknown({ description: "a job file, as JSON" }),
    top: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000 })),
    show: Type.Optional(
      Type.Enum(["families", "plans"], {
        description: "plans: the answer also has `plans`, the best whatever their family; default: families",
      }),
    ),
    profile: Type.Optional(
      Line(500, {
        description:
          "a shipped profile's name, or a stored one's id, name or cluster (then the " +
          "newest of it), never a path; without it the cluster's newest stored profile",
      }),
    ),
    headroom: Type.Optional(HeadroomSchema),
  },
  { additionalProperties: false },
);

const { properties: ofWorkload } = WorkloadSchema;
/** What has a default. */
const workloadSettings = {
  timeZone: Type.Optional(ofWorkload.timeZone),
  catchUpWindowSeconds: Type.Optional(ofWorkload.catchUpWindowSeconds),
  gainThreshold: Type.Optional(ofWorkload.gainThreshold),
  policy: Type.Optional(ofWorkload.policy),
  changeWindow: Type.Optional(ofWorkload.changeWindow),
  compareSteps: Type.Optional(ofWorkload.compareSteps),
  notInLastSteps: Type.Optional(ofWorkload.notInLastSteps),
  mayMeasureRuns: Type.Optional(ofWorkload.mayMeasureRuns),
} as const satisfies Record<keyof typeof WORKLOAD_DEFAULTS, TSchema>;

export const WorkloadCreateSchema = Type.Object(
  {
    name: WorkloadSchema.properties.name,
    job: Type.Unknown({ description: "a job file, as JSON" }),
    cron: WorkloadSchema.properties.cron,
    ...workloadSettings,
  },
  { additionalProperties: false },
);

/** What is left out stays as it is. */
export const WorkloadChangeSchema = Type.Object(
  {
    name: Type.Optional(WorkloadSchema.properties.name),
    job: Type.Optional(Type.Unknown({ description: "a job file, as JSON, of the same project" })),
    cron: Type.Optional(WorkloadSchema.properties.cron),
    enabled: Type.Optional(WorkloadSchema.properties.enabled),
    ...workloadSettings,
  },
  { additionalProperties: false, minProperties: 1 },
);

export const DeadLetterSchema = Type.Object({
  id: Type.String(),
  consumer: Type.String(),
  messageType: Type.String(),
  subject: Type.String(),
  payload: Type.Unknown(),
  error: Type.String(),
  deliveries: Type.Integer(),
  createdAt: Type.String(),
  resolution: nullable(Type.Union([Type.Literal("replayed"), Type.Literal("discarded")])),
});
export type DeadLetter = Static<typeof DeadLetterSchema>;

/**
 * Routes (all below /api/v1, bearer token; role in brackets):
 *   POST   /jobs                       [operator] body: job file; Idempotency-Key; 201 JobDetail, Location
 *   POST   /jobs/check                 [operator] body: job file; 200 JobCheck, or the problems that POST /jobs has; nothing is stored
 *   GET    /jobs?state=&name=&owner=&project=&cluster=&cursor=&limit= [viewer] Page(JobSummary), newest first
 *   GET    /jobs/:id                   [viewer]   JobDetail, ETag = version
 *   GET    /jobs/:id/file              [viewer]   job file, as JSON or YAML
 *   GET    /jobs/:id/artifacts, /jobs/:id/artifacts/:artifact [viewer] ArtifactPage / the file itself
 *   GET    /comparison?job=&job=       [viewer]   Comparison of 2 to 8 jobs
 *   POST   /jobs/:id/cancel            [operator] 202 JobDetail
 *   POST   /jobs/:id/priority          [operator] {priority}; 200 JobDetail
 *   POST   /jobs/:id/keep              [operator] {keep}; 200 JobDetail
 *   GET    /jobs/:id/metrics?after=    [viewer]   Page(StepMetric)
 *   GET    /jobs/:id/validations?after= [viewer]  Page(ValidationLoss)
 *   GET    /jobs/:id/log               [viewer]   Page(JobLogLine), newest first
 *   GET    /jobs/:id/events            [viewer]   SSE of JobStreamEvent
 *   POST   /plans                      [viewer]   PlanRequest → PlanningResult (nothing is stored)
 *   POST   /plans/why-not, /plans/explain, /plans/memory, /plans/export, /plans/import       [viewer] advice.ts
 *   POST   /what-if/sweep, /what-if/largest-sequence, /what-if/pareto, /what-if/cheapest-cluster [viewer] advice.ts
 *   POST   /profiles                   [operator] body: Profile; 201 ProfileRecord, Location; the same content keeps its id in its project
 *   GET    /profiles, /profiles/:id    [viewer]   Page(ProfileSummary) / ProfileRecord
 *   DELETE /profiles/:id               [operator] 204; jobs that used it still show it, no other job does; one that nothing used is gone
 *   POST   /profiles/:id/measure       [operator] 201 JobDetail of a job that measures it again and ends
 *   GET    /clusters, /clusters/:name   [viewer]   Page(ClusterRecord) / ClusterRecord
 *   GET    /workloads, POST /workloads, GET|PATCH|DELETE /workloads/:id, POST /workloads/:id/run   [viewer | operator]
 *   GET    /workloads/:id/proposals    [viewer]   Page(Proposal)
 *   POST   /workloads/:id/proposals/:proposalId/{try,apply,dismiss} [operator] Proposal
 *   GET    /dead-letters, POST /dead-letters/:id/replay, POST /dead-letters/:id/discard      [admin]
 *   POST   /webhooks [admin] 201 CreatedWebhook; GET /webhooks, GET|PATCH|DELETE /webhooks/:id, POST /webhooks/:id/test [admin]
 *   GET    /webhooks/:id/deliveries, /webhook-deliveries/:id, POST /webhook-deliveries/:id/replay [admin] WebhookDelivery
 *   GET    /audit?actor=&target=&action=&outcome=&from=&until= [admin] Page(AuditRecord), newest first
 *   GET    /projects, /projects/:name  [viewer]   Page(ProjectRecord) / ProjectRecord
 *   POST   /projects, PATCH|DELETE /projects/:name [admin of the installation]
 *   GET    /retention                  [viewer]   Retention; PATCH /retention, GET /retention/preview, POST /retention/run [admin of the installation]
 *   GET    /usage?from=&to=&by=&project= [viewer] Usage
 *   GET    /whoami                     [viewer]   Whoami
 *   GET    /sign-in [open] SignIn; /sign-in/begin, /sign-in/callback [open] redirects of a browser
 *   POST   /sign-in/device, /sign-in/device/token [open] DeviceSignIn, DeviceToken
 *   PATCH|DELETE /session              [viewer]
 * Outside: /healthz, /readyz, /metrics, /docs (OpenAPI 3.1), / (the console).
 */
export const API_PREFIX = "/api/v1";
export const JobPageSchema = PageSchema(JobSummarySchema);
/** A page of what retention may have taken. */
const HistoryPageSchema = <S extends TSchema>(item: S) =>
  Type.Object({
    ...PageSchema(item).properties,
    removed: Type.Optional(
      Type.Unsafe<Removal>({ ...RemovalSchema, description: "what retention took of this; absent: nothing" }),
    ),
  });
export const MetricPageSchema = HistoryPageSchema(StepMetricSchema);
export const ValidationPageSchema = HistoryPageSchema(ValidationLossSchema);
export const JobLogPageSchema = HistoryPageSchema(JobLogLineSchema);
export const WorkloadPageSchema = PageSchema(WorkloadSummarySchema);
export const ProposalPageSchema = PageSchema(ProposalSchema);
export const ProfilePageSchema = PageSchema(ProfileSummarySchema);

/** A profile that needs no measurement, named as a job names it. */
export const GivenProfileSchema = Type.Object({
  name: Type.String(),
  device: Type.String(),
  isEstimated: Type.Boolean({ description: "from published figures; otherwise it was measured" }),
});
export type GivenProfile = Static<typeof GivenProfileSchema>;
export const GivenProfilesSchema = Type.Object({ items: Type.Array(GivenProfileSchema) });
export const DeadLetterPageSchema = PageSchema(DeadLetterSchema);
