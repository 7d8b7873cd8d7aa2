import {
  API_PREFIX,
  type CheapestClusterAnswer,
  type CheapestClusterRequest,
  type ExplainRequest,
  type ExplanationAnswer,
  type ExportedConfigurationAnswer,
  type ExportRequest,
  type ImportAnswer,
  type ImportRequest,
  type LargestSequenceAnswer,
  type LargestSequenceRequest,
  type MemoryRequest,
  type ParetoAnswer,
  type ParetoRequest,
  type PlanMemoryAnswer,
  type SweepAnswer,
  type SweepRequest,
  type WhyNotAnswer,
  type WhyNotRequest,
} from "@internevo/contracts";
import type {
  ArtifactPage,
  ChangedWebhook,
  Comparison,
  CreatedToken,
  CreatedWebhook,
  DeadLetter,
  DeliveryFilter,
  DeviceSignIn,
  DeviceToken,
  GivenProfile,
  JobCheck,
  AuditFilter,
  AuditRecord,
  JobDetail,
  JobFilter,
  JobLogLine,
  JobStreamEvent,
  JobSummary,
  PlanChangeCreate,
  PlanRequestSchema,
  ProfileRecord,
  ProjectChange,
  ProjectCreate,
  ProjectRecord,
  QueueSettingsChange,
  ClusterRecord,
  ProfileSummary,
  SignedOut,
  SignIn,
  SubmittedJob,
  TokenCreate,
  TokenRecord,
  Usage,
  UsageQuery,
  Webhook,
  WebhookChange,
  WebhookCreate,
  WebhookDelivery,
  Whoami,
  WorkloadChangeSchema,
  WorkloadCreateSchema,
} from "@internevo/contracts";
import type {
  JobFile,
  PlanChange,
  PlanningResult,
  Priority,
  Profile,
  Proposal,
  QueueSettings,
  StepMetric,
  ValidationLoss,
  Workload,
  WorkloadSummary,
} from "@internevo/domain";
import type { Static } from "typebox";
import { RetentionClient } from "./retention.ts";
import { jobEvents, type JobEventsOptions } from "./event-stream.ts";
import {
  open,
  randomKey,
  request,
  type Connection,
  type QueryValue,
  type RequestOptions,
  type MutationOptions,
  type PageOptions,
} from "./request.ts";

export interface ClientOptions {
  /** Where the API is, without `/api/v1`, for example `http://127.0.0.1:8080`. */
  readonly baseUrl: string;
  /** Absent: a browser's session, whose cookie the browser sends, or nobody, as before a sign-in. */
  readonly token?: string | undefined;
  /** `csrfToken` of {@link InternEvoClient.whoami}, for a browser's session. */
  readonly csrfToken?: () => string | undefined;
  readonly fetch?: typeof fetch;
}

export interface Page<T> {
  readonly items: T[];
  /** Pass it as `cursor` for the next page; null on the last. */
  readonly nextCursor: string | null;
}

export type { MutationOptions, PageOptions };

export type PlanRequest = Static<typeof PlanRequestSchema>;
export type WorkloadCreate = Static<typeof WorkloadCreateSchema>;
export type WorkloadChange = Static<typeof WorkloadChangeSchema>;
export type { ClusterRecord, ProfileSummary };

/** A typed client of the HTTP API, for browsers and Node. Every method throws what `request.ts` lists. */
export class InternEvoClient {
  readonly #connection: Connection;
  /** For how long the installation keeps what ended jobs leave. */
  readonly retention: RetentionClient;

  constructor(options: ClientOptions) {
    // A browser's fetch must be called on its window.
    this.#connection = {
      baseUrl: options.baseUrl,
      token: options.token,
      csrfToken: options.csrfToken,
      fetch: options.fetch ?? globalThis.fetch.bind(globalThis),
    };
    this.retention = new RetentionClient(this.#connection);
  }

  /** The API that is asked. */
  get baseUrl(): string {
    return this.#connection.baseUrl;
  }

  #get<T>(
    path: string,
    options: { query?: Record<string, QueryValue>; signal?: AbortSignal | undefined } = {},
  ): Promise<T> {
    return request<T>(this.#connection, API_PREFIX + path, options);
  }

  #page<T>(
    path: string,
    options: PageOptions = {},
    query: Record<string, QueryValue> = {},
  ): Promise<Page<T>> {
    return this.#get(path, {
      query: { cursor: options.cursor, limit: options.limit, ...query },
      signal: options.signal,
    });
  }

  #post<T>(path: string, body: unknown, options: MutationOptions = {}): Promise<T> {
    const send: RequestOptions = {
      method: "POST",
      ...(body === undefined ? {} : { body }),
      headers: { "idempotency-key": options.idempotencyKey ?? randomKey() },
      signal: options.signal,
    };
    return request<T>(this.#connection, API_PREFIX + path, send);
  }

  whoami(options: { signal?: AbortSignal } = {}): Promise<Whoami> {
    return this.#get("/whoami", options);
  }

  /** How people sign in; asked without a token. */
  signIn(options: { signal?: AbortSignal } = {}): Promise<SignIn> {
    return this.#get("/sign-in", options);
  }

  /** Begins the sign-in of a device without a browser of its own (RFC 8628). */
  beginDeviceSignIn(options: { signal?: AbortSignal } = {}): Promise<DeviceSignIn> {
    return request(this.#connection, `${API_PREFIX}/sign-in/device`, {
      method: "POST",
      signal: options.signal,
    });
  }

  /** Asks once whether the person has entered the device's code. The token comes once. */
  deviceToken(deviceCode: string, options: { signal?: AbortSignal } = {}): Promise<DeviceToken> {
    return request(this.#connection, `${API_PREFIX}/sign-in/device/token`, {
      method: "POST",
      body: { deviceCode },
      signal: options.signal,
    });
  }

  /** Acts in another of the person's places from now on; null: in the whole installation. */
  moveSession(project: string | null, options: { signal?: AbortSignal } = {}): Promise<Whoami> {
    return request(this.#connection, `${API_PREFIX}/session`, {
      method: "PATCH",
      body: { project },
      signal: options.signal,
    });
  }

  /** Ends the session, or the login. */
  signOut(options: { signal?: AbortSignal } = {}): Promise<SignedOut> {
    return request(this.#connection, `${API_PREFIX}/session`, { method: "DELETE", signal: options.signal });
  }

  /**
   * Creates a token; only this answer has its secret. Not repeated by a key: no answer with a secret is
   * stored.
   */
  createToken(token: TokenCreate, options: { signal?: AbortSignal } = {}): Promise<CreatedToken> {
    return request(this.#connection, `${API_PREFIX}/tokens`, {
      method: "POST",
      body: token,
      signal: options.signal,
    });
  }

  /** Tokens that were not revoked, newest first. */
  listTokens(options: PageOptions = {}): Promise<Page<TokenRecord>> {
    return this.#page("/tokens", options);
  }

  revokeToken(id: string, options: { signal?: AbortSignal } = {}): Promise<void> {
    return request(this.#connection, `${API_PREFIX}/tokens/${encodeURIComponent(id)}`, {
      method: "DELETE",
      signal: options.signal,
    });
  }

  /** Webhooks, newest first, without their secrets. */
  listWebhooks(options: PageOptions = {}): Promise<Page<Webhook>> {
    return this.#page("/webhooks", options);
  }

  getWebhook(id: string, options: { signal?: AbortSignal } = {}): Promise<Webhook> {
    return this.#get(`/webhooks/${encodeURIComponent(id)}`, options);
  }

  /** Creates a webhook; only this answer has its secret. Not repeated by a key, as {@link createToken}. */
  createWebhook(webhook: WebhookCreate, options: { signal?: AbortSignal } = {}): Promise<CreatedWebhook> {
    return request(this.#connection, `${API_PREFIX}/webhooks`, {
      method: "POST",
      body: webhook,
      signal: options.signal,
    });
  }

  /** Changes what is given. */
  changeWebhook(
    id: string,
    change: WebhookChange,
    options: { signal?: AbortSignal } = {},
  ): Promise<ChangedWebhook> {
    return request(this.#connection, `${API_PREFIX}/webhooks/${encodeURIComponent(id)}`, {
      method: "PATCH",
      body: change,
      signal: options.signal,
    });
  }

  removeWebhook(id: string, options: { signal?: AbortSignal } = {}): Promise<void> {
    return request(this.#connection, `${API_PREFIX}/webhooks/${encodeURIComponent(id)}`, {
      method: "DELETE",
      signal: options.signal,
    });
  }

  /** Sends a test event. */
  testWebhook(id: string, options: MutationOptions = {}): Promise<WebhookDelivery> {
    return this.#post(`/webhooks/${encodeURIComponent(id)}/test`, undefined, options);
  }

  /** Deliveries of a webhook, newest first. */
  listDeliveries(id: string, options: PageOptions & DeliveryFilter = {}): Promise<Page<WebhookDelivery>> {
    return this.#page(`/webhooks/${encodeURIComponent(id)}/deliveries`, options, { state: options.state });
  }

  getDelivery(id: string, options: { signal?: AbortSignal } = {}): Promise<WebhookDelivery> {
    return this.#get(`/webhook-deliveries/${encodeURIComponent(id)}`, options);
  }

  /** Sends a delivery that has ended again, with the same id. */
  replayDelivery(id: string, options: MutationOptions = {}): Promise<WebhookDelivery> {
    return this.#post(`/webhook-deliveries/${encodeURIComponent(id)}/replay`, undefined, options);
  }

  /** One page of the audit log, newest first. */
  listAudit(options: PageOptions & AuditFilter = {}): Promise<Page<AuditRecord>> {
    const { cursor: _cursor, limit: _limit, signal: _signal, ...filter } = options;
    return this.#page("/audit", options, filter);
  }

  /** Projects that the token may see, all at once. */
  listProjects(options: { signal?: AbortSignal } = {}): Promise<Page<ProjectRecord>> {
    return this.#get("/projects", options);
  }

  getProject(name: string, options: { signal?: AbortSignal } = {}): Promise<ProjectRecord> {
    return this.#get(`/projects/${encodeURIComponent(name)}`, options);
  }

  createProject(project: ProjectCreate, options: MutationOptions = {}): Promise<ProjectRecord> {
    return this.#post("/projects", project, options);
  }

  /** Changes what is given; null takes a quota away. */
  changeProject(
    name: string,
    change: ProjectChange,
    options: { signal?: AbortSignal } = {},
  ): Promise<ProjectRecord> {
    return request(this.#connection, `${API_PREFIX}/projects/${encodeURIComponent(name)}`, {
      method: "PATCH",
      body: change,
      signal: options.signal,
    });
  }

  /** Deletes a project that nothing belongs to. */
  deleteProject(name: string, options: { signal?: AbortSignal } = {}): Promise<void> {
    return request(this.#connection, `${API_PREFIX}/projects/${encodeURIComponent(name)}`, {
      method: "DELETE",
      signal: options.signal,
    });
  }

  /** How the queue for hosts shares them out among projects. */
  queueSettings(options: { signal?: AbortSignal } = {}): Promise<QueueSettings> {
    return this.#get("/queue", options);
  }

  /** Changes what is given. */
  changeQueueSettings(
    change: QueueSettingsChange,
    { signal }: { signal?: AbortSignal } = {},
  ): Promise<QueueSettings> {
    return request(this.#connection, `${API_PREFIX}/queue`, { method: "PATCH", body: change, signal });
  }

  /** Exempts a job from retention, or no more. */
  keepJob(id: string, keep: boolean, options: MutationOptions = {}): Promise<JobDetail> {
    return this.#post(`/jobs/${encodeURIComponent(id)}/keep`, { keep }, options);
  }

  /** GPU-hours by project, owner, cluster or day. */
  usage(query: UsageQuery = {}, options: { signal?: AbortSignal } = {}): Promise<Usage> {
    return this.#get("/usage", { query, signal: options.signal });
  }

  /** Submits a job. @param job a job file, parsed. */
  submitJob(job: unknown, options: MutationOptions = {}): Promise<SubmittedJob> {
    return this.#post("/jobs", job, options);
  }

  /** Checks a job as `submitJob` does, and stores nothing. @param job a job file, parsed. */
  checkJob(job: unknown, options: { signal?: AbortSignal } = {}): Promise<JobCheck> {
    return this.#post("/jobs/check", job, options);
  }

  /** One page of jobs, newest first. */
  listJobs(options: PageOptions & JobFilter = {}): Promise<Page<JobSummary>> {
    const { cursor: _cursor, limit: _limit, signal: _signal, ...filter } = options;
    return this.#page("/jobs", options, filter);
  }

  getJob(id: string, options: { signal?: AbortSignal } = {}): Promise<JobDetail> {
    return this.#get(`/jobs/${encodeURIComponent(id)}`, options);
  }

  /** A job's file, to be changed and submitted again: {@link submitJob} of it makes the same job. */
  jobFile(id: string, options: { signal?: AbortSignal } = {}): Promise<JobFile> {
    return this.#get(`/jobs/${encodeURIComponent(id)}/file`, options);
  }

  /** How 2 to 8 jobs differ, and how they trained. */
  compareJobs(ids: readonly string[], options: { signal?: AbortSignal } = {}): Promise<Comparison> {
    return this.#get("/comparison", { query: { job: ids }, signal: options.signal });
  }

  setPriority(id: string, priority: Priority, options: MutationOptions = {}): Promise<JobDetail> {
    return this.#post(`/jobs/${encodeURIComponent(id)}/priority`, { priority }, options);
  }

  cancelJob(id: string, options: MutationOptions & { reason?: string } = {}): Promise<JobDetail> {
    return this.#post(
      `/jobs/${encodeURIComponent(id)}/cancel`,
      options.reason === undefined ? undefined : { reason: options.reason },
      options,
    );
  }

  /**
   * Lets a job that is held, failed or was cancelled go on in the stage in which it stopped.
   * @throws ApiProblemError `conflict` for a job that is in another state.
   */
  resumeJob(id: string, options: MutationOptions & { reason?: string } = {}): Promise<JobDetail> {
    return this.#post(
      `/jobs/${encodeURIComponent(id)}/resume`,
      options.reason === undefined ? undefined : { reason: options.reason },
      options,
    );
  }

  /**
   * Changes the plan that a job trains with, at its next checkpoint; it goes back by itself where the plan gains less
   * than asked. @throws ApiProblemError `conflict` while another change is open, `plan-invalid`
   */
  changePlan(id: string, change: PlanChangeCreate, options: MutationOptions = {}): Promise<PlanChange> {
    return this.#post(`/jobs/${encodeURIComponent(id)}/plan-changes`, change, options);
  }

  /** The changes of a job's plan, newest first. */
  listPlanChanges(id: string, options: PageOptions = {}): Promise<Page<PlanChange>> {
    return this.#page(`/jobs/${encodeURIComponent(id)}/plan-changes`, options);
  }

  /** Dismisses a change that was not made yet. @throws ApiProblemError `conflict` for one that was */
  dismissPlanChange(
    id: string,
    changeId: string,
    options: { signal?: AbortSignal } = {},
  ): Promise<PlanChange> {
    const path = `/jobs/${encodeURIComponent(id)}/plan-changes/${encodeURIComponent(changeId)}`;
    return request(this.#connection, `${API_PREFIX}${path}`, { method: "DELETE", signal: options.signal });
  }

  /** Steps of a job, oldest first, from after step `after` on. */
  jobMetrics(id: string, options: PageOptions & { after?: number } = {}): Promise<Page<StepMetric>> {
    return this.#page(`/jobs/${encodeURIComponent(id)}/metrics`, options, { after: options.after });
  }

  /** The validation losses of a job, oldest first. */
  jobValidations(id: string, options: PageOptions & { after?: number } = {}): Promise<Page<ValidationLoss>> {
    return this.#page(`/jobs/${encodeURIComponent(id)}/validations`, options, { after: options.after });
  }

  /** What a job leaves, all at once. */
  listArtifacts(id: string, options: { signal?: AbortSignal } = {}): Promise<ArtifactPage> {
    return this.#get(`/jobs/${encodeURIComponent(id)}/artifacts`, options);
  }

  /** One of a job's artifacts, to be read as it comes. */
  openArtifact(id: string, name: string, options: { signal?: AbortSignal } = {}): Promise<Response> {
    const path = `/jobs/${encodeURIComponent(id)}/artifacts/${encodeURIComponent(name)}`;
    return open(this.#connection, API_PREFIX + path, { headers: { accept: "*/*" }, signal: options.signal });
  }

  /** Lines of a job's log, newest first. */
  jobLog(id: string, options: PageOptions = {}): Promise<Page<JobLogLine>> {
    return this.#page(`/jobs/${encodeURIComponent(id)}/log`, options);
  }

  /** Events of a job as they happen; see {@link jobEvents}. */
  jobEvents(id: string, options: JobEventsOptions = {}): AsyncGenerator<JobStreamEvent, void, void> {
    return jobEvents(this.#connection, id, options);
  }

  /** Plans without storing anything. */
  plan(body: PlanRequest, options: MutationOptions = {}): Promise<PlanningResult> {
    return this.#post("/plans", body, options);
  }

  /** Why a plan is not chosen, and the smallest change that makes it feasible; or what is better. */
  whyNot(body: WhyNotRequest, options: MutationOptions = {}): Promise<WhyNotAnswer> {
    return this.#post("/plans/why-not", body, options);
  }

  /** How one plan wins over another, term by term. */
  explain(body: ExplainRequest, options: MutationOptions = {}): Promise<ExplanationAnswer> {
    return this.#post("/plans/explain", body, options);
  }

  /** Predicted memory of a rank of every pipeline stage, by line. */
  planMemory(body: MemoryRequest, options: MutationOptions = {}): Promise<PlanMemoryAnswer> {
    return this.#post("/plans/memory", body, options);
  }

  /** A plan as configuration of another framework, with what that cannot express. */
  exportPlan(body: ExportRequest, options: MutationOptions = {}): Promise<ExportedConfigurationAnswer> {
    return this.#post("/plans/export", body, options);
  }

  /** The files of {@link exportPlan} as a zip archive. */
  async exportArchive(body: ExportRequest, options: { signal?: AbortSignal } = {}): Promise<Blob> {
    const answer = await open(this.#connection, `${API_PREFIX}/plans/export`, {
      method: "POST",
      body,
      headers: { accept: "application/zip, application/problem+json" },
      signal: options.signal,
    });
    return answer.blob();
  }

  /** How good a configuration of another framework is. */
  importConfiguration(body: ImportRequest, options: MutationOptions = {}): Promise<ImportAnswer> {
    return this.#post("/plans/import", body, options);
  }

  /** The best plan at each value of one axis. */
  sweep(body: SweepRequest, options: MutationOptions = {}): Promise<SweepAnswer> {
    return this.#post("/what-if/sweep", body, options);
  }

  /** The longest sequence for which a plan fits, and what ends it. */
  largestSequence(
    body: LargestSequenceRequest,
    options: MutationOptions = {},
  ): Promise<LargestSequenceAnswer> {
    return this.#post("/what-if/largest-sequence", body, options);
  }

  /** The Pareto-optimal plans: no other is both faster and smaller. */
  paretoFront(body: ParetoRequest, options: MutationOptions = {}): Promise<ParetoAnswer> {
    return this.#post("/what-if/pareto", body, options);
  }

  /** The cheapest cluster that trains so many tokens in time. */
  cheapestCluster(
    body: CheapestClusterRequest,
    options: MutationOptions = {},
  ): Promise<CheapestClusterAnswer> {
    return this.#post("/what-if/cheapest-cluster", body, options);
  }

  /** Every cluster of the installation, on one page. */
  listClusters(options: PageOptions = {}): Promise<Page<ClusterRecord>> {
    return this.#page("/clusters", options);
  }

  getCluster(name: string, options: { signal?: AbortSignal } = {}): Promise<ClusterRecord> {
    return this.#get(`/clusters/${encodeURIComponent(name)}`, options);
  }

  listProfiles(options: PageOptions = {}): Promise<Page<ProfileSummary>> {
    return this.#page("/profiles", options);
  }

  /** The profiles that need no measurement: shipped, and estimated from published figures. */
  listGivenProfiles(options: { signal?: AbortSignal } = {}): Promise<{ items: GivenProfile[] }> {
    return this.#get("/profiles/given", options);
  }

  getProfile(id: string, options: { signal?: AbortSignal } = {}): Promise<ProfileRecord> {
    return this.#get(`/profiles/${encodeURIComponent(id)}`, options);
  }

  /** Stores a profile, so that a job can name it by its id; the same content keeps its id. */
  createProfile(profile: Profile, options: MutationOptions = {}): Promise<ProfileRecord> {
    return this.#post("/profiles", profile, options);
  }

  /** Takes a profile out of use: jobs that used it still show it, no other job does. */
  discardProfile(id: string, options: { signal?: AbortSignal } = {}): Promise<void> {
    return request(this.#connection, `${API_PREFIX}/profiles/${encodeURIComponent(id)}`, {
      method: "DELETE",
      signal: options.signal,
    });
  }

  /** Submits a job that measures again what the newest job of a profile needs, and ends then. */
  measureProfile(id: string, options: MutationOptions = {}): Promise<JobDetail> {
    return this.#post(`/profiles/${encodeURIComponent(id)}/measure`, undefined, options);
  }

  /** Without their jobs: {@link getWorkload} has one's. */
  listWorkloads(options: PageOptions = {}): Promise<Page<WorkloadSummary>> {
    return this.#page("/workloads", options);
  }

  getWorkload(id: string, options: { signal?: AbortSignal } = {}): Promise<Workload> {
    return this.#get(`/workloads/${encodeURIComponent(id)}`, options);
  }

  createWorkload(workload: WorkloadCreate, options: MutationOptions = {}): Promise<Workload> {
    return this.#post("/workloads", workload, options);
  }

  /** Changes a workload, pauses it, or lets it go on. */
  updateWorkload(
    id: string,
    change: WorkloadChange,
    options: { signal?: AbortSignal } = {},
  ): Promise<Workload> {
    return request(this.#connection, `${API_PREFIX}/workloads/${encodeURIComponent(id)}`, {
      method: "PATCH",
      body: change,
      signal: options.signal,
    });
  }

  /** Plans a workload again now, whatever its schedule says. */
  runWorkload(id: string, options: MutationOptions = {}): Promise<Workload> {
    return this.#post(`/workloads/${encodeURIComponent(id)}/run`, undefined, options);
  }

  deleteWorkload(id: string, options: { signal?: AbortSignal } = {}): Promise<void> {
    return request(this.#connection, `${API_PREFIX}/workloads/${encodeURIComponent(id)}`, {
      method: "DELETE",
      signal: options.signal,
    });
  }

  /** Has a run try a proposed plan or go on under it, or says no to it. */
  answerProposal(
    workloadId: string,
    proposalId: string,
    answer: "try" | "apply" | "dismiss",
    options: MutationOptions = {},
  ): Promise<Proposal> {
    const path = `/workloads/${encodeURIComponent(workloadId)}/proposals/${encodeURIComponent(proposalId)}/${answer}`;
    return this.#post(path, undefined, options);
  }

  listProposals(workloadId: string, options: PageOptions = {}): Promise<Page<Proposal>> {
    return this.#page(`/workloads/${encodeURIComponent(workloadId)}/proposals`, options);
  }

  listDeadLetters(options: PageOptions = {}): Promise<Page<DeadLetter>> {
    return this.#page("/dead-letters", options);
  }

  replayDeadLetter(id: string, options: MutationOptions = {}): Promise<DeadLetter> {
    return this.#post(`/dead-letters/${encodeURIComponent(id)}/replay`, undefined, options);
  }

  discardDeadLetter(id: string, options: MutationOptions = {}): Promise<DeadLetter> {
    return this.#post(`/dead-letters/${encodeURIComponent(id)}/discard`, undefined, options);
  }
}

/** All items of all pages, fetched as they are needed. */
export async function* allPages<T>(
  fetchPage: (cursor: string | undefined) => Promise<Page<T>>,
): AsyncGenerator<T, void, void> {
  let cursor: string | undefined;
  do {
    const page = await fetchPage(cursor);
    yield* page.items;
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
}
