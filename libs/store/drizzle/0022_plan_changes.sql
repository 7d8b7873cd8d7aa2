CREATE TABLE "plan_changes" (
	"id" uuid PRIMARY KEY NOT NULL,
	"run_id" uuid NOT NULL,
	"state" text DEFAULT 'asked' NOT NULL,
	"origin" text NOT NULL,
	"asked_by" text NOT NULL,
	"from_candidate" jsonb NOT NULL,
	"to_candidate" jsonb NOT NULL,
	"predicted_gain" double precision NOT NULL,
	"gain_threshold" double precision NOT NULL,
	"compare_steps" integer NOT NULL,
	"applied_at_step" integer,
	"first_attempt" integer,
	"seconds_before" double precision,
	"seconds_after" double precision,
	"measured_gain" double precision,
	"reason" text,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"applied_at" timestamp (3) with time zone,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "plan_changes_state_known" CHECK (state in ('asked', 'comparing', 'kept', 'returned', 'dismissed', 'superseded')),
	CONSTRAINT "plan_changes_origin_known" CHECK (origin in ('person', 'drift'))
);
--> statement-breakpoint
ALTER TABLE "plan_changes" ADD CONSTRAINT "plan_changes_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "plan_changes_open" ON "plan_changes" USING btree ("run_id") WHERE state in ('asked', 'comparing');--> statement-breakpoint
CREATE INDEX "plan_changes_page" ON "plan_changes" USING btree ("run_id","created_at","id");