CREATE TABLE "attempts" (
	"run_id" uuid NOT NULL,
	"number" integer NOT NULL,
	"state" text DEFAULT 'running' NOT NULL,
	"resumed_from_step" integer DEFAULT 0 NOT NULL,
	"last_step" integer DEFAULT 0 NOT NULL,
	"failure" jsonb,
	"started_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "attempts_run_id_number_pk" PRIMARY KEY("run_id","number"),
	CONSTRAINT "attempts_state_known" CHECK (state in ('running', 'succeeded', 'failed', 'lost', 'stopped'))
);
--> statement-breakpoint
CREATE TABLE "job_events" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"job_id" uuid NOT NULL,
	"type" text NOT NULL,
	"at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"data" jsonb NOT NULL,
	CONSTRAINT "job_events_type_known" CHECK (type in ('state', 'progress', 'trial', 'step', 'log', 'report'))
);
--> statement-breakpoint
CREATE TABLE "job_transitions" (
	"job_id" uuid NOT NULL,
	"version" integer NOT NULL,
	"from_state" text,
	"to_state" text NOT NULL,
	"reason" text,
	"at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "job_transitions_job_id_version_pk" PRIMARY KEY("job_id","version")
);
--> statement-breakpoint
CREATE TABLE "jobs" (
	"id" uuid PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"spec" jsonb NOT NULL,
	"state" text NOT NULL,
	"reason" text,
	"version" integer DEFAULT 1 NOT NULL,
	"traceparent" text NOT NULL,
	"profile_id" uuid,
	"planning_id" uuid,
	"chosen" jsonb,
	"failure" jsonb,
	"report" jsonb,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"updated_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "jobs_state_known" CHECK (state in ('profiling', 'planning', 'trialling', 'running', 'cancelling', 'succeeded', 'failed', 'cancelled'))
);
--> statement-breakpoint
CREATE TABLE "planning_candidates" (
	"planning_id" uuid NOT NULL,
	"list" text NOT NULL,
	"position" integer NOT NULL,
	"rank" integer NOT NULL,
	"step_time_seconds" double precision NOT NULL,
	"peak_memory_bytes" bigint NOT NULL,
	"candidate" jsonb NOT NULL,
	CONSTRAINT "planning_candidates_planning_id_list_position_pk" PRIMARY KEY("planning_id","list","position")
);
--> statement-breakpoint
CREATE TABLE "plannings" (
	"id" uuid PRIMARY KEY NOT NULL,
	"job_id" uuid,
	"workload_id" uuid,
	"profile_id" uuid,
	"summary" jsonb NOT NULL,
	"counts" jsonb NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "profiles" (
	"id" uuid PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"cluster_key" text NOT NULL,
	"profile" jsonb NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"fresh_until" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "runs" (
	"id" uuid PRIMARY KEY NOT NULL,
	"job_id" uuid NOT NULL,
	"candidate" jsonb NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "runs_job_id_unique" UNIQUE("job_id")
);
--> statement-breakpoint
CREATE TABLE "step_metrics" (
	"run_id" uuid NOT NULL,
	"step" integer NOT NULL,
	"attempt" integer NOT NULL,
	"loss" double precision NOT NULL,
	"gradient_norm" double precision NOT NULL,
	"learning_rate" double precision NOT NULL,
	"step_time_seconds" double precision NOT NULL,
	"tokens_per_second" double precision NOT NULL,
	"exposed_communication_seconds" double precision NOT NULL,
	"at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "step_metrics_run_id_step_pk" PRIMARY KEY("run_id","step")
);
--> statement-breakpoint
CREATE TABLE "trials" (
	"id" uuid PRIMARY KEY NOT NULL,
	"job_id" uuid NOT NULL,
	"rank" integer NOT NULL,
	"candidate" jsonb NOT NULL,
	"state" text DEFAULT 'pending' NOT NULL,
	"measured" jsonb,
	"failure" jsonb,
	"started_at" timestamp (3) with time zone,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "trials_job_rank" UNIQUE("job_id","rank"),
	CONSTRAINT "trials_state_known" CHECK (state in ('pending', 'running', 'succeeded', 'failed'))
);
--> statement-breakpoint
CREATE TABLE "dead_letters" (
	"id" uuid PRIMARY KEY NOT NULL,
	"consumer" text NOT NULL,
	"message_id" text NOT NULL,
	"message_type" text NOT NULL,
	"subject" text NOT NULL,
	"payload" jsonb NOT NULL,
	"error" text NOT NULL,
	"deliveries" integer NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"resolution" text,
	"resolved_at" timestamp (3) with time zone,
	"resolved_by" text
);
--> statement-breakpoint
CREATE TABLE "inbox" (
	"consumer" text NOT NULL,
	"event_id" uuid NOT NULL,
	"handled_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "inbox_consumer_event_id_pk" PRIMARY KEY("consumer","event_id")
);
--> statement-breakpoint
CREATE TABLE "leases" (
	"resource" text PRIMARY KEY NOT NULL,
	"holder" text,
	"fencing_token" bigint NOT NULL,
	"acquired_at" timestamp (3) with time zone NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "message_failures" (
	"consumer" text NOT NULL,
	"event_id" uuid NOT NULL,
	"failures" integer NOT NULL,
	"last_error" text NOT NULL,
	"last_failed_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "message_failures_consumer_event_id_pk" PRIMARY KEY("consumer","event_id")
);
--> statement-breakpoint
CREATE TABLE "outbox" (
	"id" uuid PRIMARY KEY NOT NULL,
	"sequence" bigserial NOT NULL,
	"type" text NOT NULL,
	"subject_id" uuid NOT NULL,
	"data" jsonb NOT NULL,
	"traceparent" text NOT NULL,
	"occurred_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"published_at" timestamp (3) with time zone,
	"stream_sequence" bigint
);
--> statement-breakpoint
CREATE TABLE "proposals" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workload_id" uuid NOT NULL,
	"firing_id" uuid NOT NULL,
	"planning_id" uuid,
	"current" jsonb,
	"proposed" jsonb NOT NULL,
	"predicted_gain" double precision NOT NULL,
	"differences" jsonb NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "proposals_firing_id_unique" UNIQUE("firing_id")
);
--> statement-breakpoint
CREATE TABLE "workload_firings" (
	"id" uuid PRIMARY KEY NOT NULL,
	"workload_id" uuid NOT NULL,
	"scheduled_for" timestamp (3) with time zone NOT NULL,
	"trigger" text NOT NULL,
	"state" text NOT NULL,
	"outcome" text,
	"traceparent" text NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "workload_firings_once" UNIQUE("workload_id","scheduled_for","trigger")
);
--> statement-breakpoint
CREATE TABLE "workloads" (
	"id" uuid PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"spec" jsonb NOT NULL,
	"cron" text NOT NULL,
	"time_zone" text NOT NULL,
	"catch_up_window_seconds" integer NOT NULL,
	"gain_threshold" double precision NOT NULL,
	"enabled" boolean DEFAULT true NOT NULL,
	"next_run_at" timestamp (3) with time zone,
	"last_run_at" timestamp (3) with time zone,
	"last_outcome" text,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "workloads_name_unique" UNIQUE("name")
);
--> statement-breakpoint
CREATE TABLE "api_tokens" (
	"id" uuid PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"token_sha256" text NOT NULL,
	"role" text NOT NULL,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"revoked_at" timestamp (3) with time zone,
	CONSTRAINT "api_tokens_name_unique" UNIQUE("name"),
	CONSTRAINT "api_tokens_token_sha256_unique" UNIQUE("token_sha256")
);
--> statement-breakpoint
CREATE TABLE "audit_log" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"actor" text NOT NULL,
	"role" text NOT NULL,
	"action" text NOT NULL,
	"target" text,
	"status" integer NOT NULL,
	"trace_id" text,
	"details" jsonb
);
--> statement-breakpoint
CREATE TABLE "idempotency_keys" (
	"actor" text NOT NULL,
	"key" text NOT NULL,
	"request_sha256" text NOT NULL,
	"status" integer,
	"body" jsonb,
	"location" text,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "idempotency_keys_actor_key_pk" PRIMARY KEY("actor","key")
);
--> statement-breakpoint
ALTER TABLE "attempts" ADD CONSTRAINT "attempts_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "job_events" ADD CONSTRAINT "job_events_job_id_jobs_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."jobs"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "job_transitions" ADD CONSTRAINT "job_transitions_job_id_jobs_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."jobs"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "jobs" ADD CONSTRAINT "jobs_profile_id_profiles_id_fk" FOREIGN KEY ("profile_id") REFERENCES "public"."profiles"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "jobs" ADD CONSTRAINT "jobs_planning_id_plannings_id_fk" FOREIGN KEY ("planning_id") REFERENCES "public"."plannings"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "planning_candidates" ADD CONSTRAINT "planning_candidates_planning_id_plannings_id_fk" FOREIGN KEY ("planning_id") REFERENCES "public"."plannings"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "plannings" ADD CONSTRAINT "plannings_profile_id_profiles_id_fk" FOREIGN KEY ("profile_id") REFERENCES "public"."profiles"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "runs" ADD CONSTRAINT "runs_job_id_jobs_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."jobs"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "step_metrics" ADD CONSTRAINT "step_metrics_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "trials" ADD CONSTRAINT "trials_job_id_jobs_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."jobs"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "proposals" ADD CONSTRAINT "proposals_workload_id_workloads_id_fk" FOREIGN KEY ("workload_id") REFERENCES "public"."workloads"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "proposals" ADD CONSTRAINT "proposals_firing_id_workload_firings_id_fk" FOREIGN KEY ("firing_id") REFERENCES "public"."workload_firings"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "proposals" ADD CONSTRAINT "proposals_planning_id_plannings_id_fk" FOREIGN KEY ("planning_id") REFERENCES "public"."plannings"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workload_firings" ADD CONSTRAINT "workload_firings_workload_id_workloads_id_fk" FOREIGN KEY ("workload_id") REFERENCES "public"."workloads"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "job_events_job" ON "job_events" USING btree ("job_id","id");--> statement-breakpoint
CREATE INDEX "jobs_page" ON "jobs" USING btree ("created_at" DESC NULLS LAST,"id" DESC NULLS LAST);--> statement-breakpoint
CREATE INDEX "jobs_state_page" ON "jobs" USING btree ("state","created_at" DESC NULLS LAST,"id" DESC NULLS LAST);--> statement-breakpoint
CREATE INDEX "plannings_job" ON "plannings" USING btree ("job_id");--> statement-breakpoint
CREATE INDEX "plannings_workload" ON "plannings" USING btree ("workload_id","created_at" DESC NULLS LAST);--> statement-breakpoint
CREATE INDEX "profiles_cluster" ON "profiles" USING btree ("cluster_key","created_at" DESC NULLS LAST);--> statement-breakpoint
CREATE INDEX "profiles_page" ON "profiles" USING btree ("created_at" DESC NULLS LAST,"id" DESC NULLS LAST);--> statement-breakpoint
CREATE INDEX "dead_letters_page" ON "dead_letters" USING btree ("created_at" DESC NULLS LAST,"id" DESC NULLS LAST);--> statement-breakpoint
CREATE INDEX "inbox_handled" ON "inbox" USING btree ("handled_at");--> statement-breakpoint
CREATE INDEX "outbox_unpublished" ON "outbox" USING btree ("sequence") WHERE published_at is null;--> statement-breakpoint
CREATE INDEX "outbox_subject" ON "outbox" USING btree ("subject_id","type","sequence" DESC NULLS LAST);--> statement-breakpoint
CREATE INDEX "outbox_published" ON "outbox" USING btree ("published_at");--> statement-breakpoint
CREATE INDEX "proposals_page" ON "proposals" USING btree ("workload_id","created_at" DESC NULLS LAST,"id" DESC NULLS LAST);--> statement-breakpoint
CREATE INDEX "workloads_due" ON "workloads" USING btree ("next_run_at") WHERE enabled;--> statement-breakpoint
CREATE INDEX "workloads_page" ON "workloads" USING btree ("created_at" DESC NULLS LAST,"id" DESC NULLS LAST);--> statement-breakpoint
CREATE INDEX "audit_log_at" ON "audit_log" USING btree ("at");--> statement-breakpoint
CREATE INDEX "idempotency_keys_created" ON "idempotency_keys" USING btree ("created_at");