CREATE TABLE "retention_removals" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"job_id" uuid NOT NULL,
	"kind" text NOT NULL,
	"days" integer NOT NULL,
	"at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"files" integer NOT NULL,
	"bytes" bigint NOT NULL,
	"rows" bigint NOT NULL,
	"run_id" bigint NOT NULL,
	"completed_at" timestamp (3) with time zone,
	CONSTRAINT "retention_removals_kind_known" CHECK (kind in ('checkpoints', 'timelines', 'exports', 'logs', 'steps'))
);
--> statement-breakpoint
CREATE TABLE "retention_runs" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"asked_by" text,
	"asked_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"began_at" timestamp (3) with time zone,
	"ended_at" timestamp (3) with time zone,
	"remarks" jsonb DEFAULT '[]'::jsonb NOT NULL
);
--> statement-breakpoint
CREATE TABLE "retention_settings" (
	"is_the_one" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"checkpoints_days" integer,
	"timelines_days" integer,
	"exports_days" integer,
	"logs_days" integer,
	"steps_days" integer,
	CONSTRAINT "retention_settings_one" CHECK (is_the_one)
);
--> statement-breakpoint
ALTER TABLE "jobs" ADD COLUMN "keep" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "retention_removals" ADD CONSTRAINT "retention_removals_job_id_jobs_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."jobs"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "retention_removals" ADD CONSTRAINT "retention_removals_run_id_retention_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."retention_runs"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "retention_removals_open" ON "retention_removals" USING btree ("job_id","kind") WHERE completed_at is null;--> statement-breakpoint
CREATE INDEX "retention_removals_job" ON "retention_removals" USING btree ("job_id","id");--> statement-breakpoint
CREATE INDEX "retention_removals_run" ON "retention_removals" USING btree ("run_id");--> statement-breakpoint
CREATE UNIQUE INDEX "retention_runs_open" ON "retention_runs" USING btree ((true)) WHERE ended_at is null;--> statement-breakpoint
CREATE INDEX "retention_runs_asked" ON "retention_runs" USING btree ("asked_at");