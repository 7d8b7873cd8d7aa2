ALTER TABLE "plan_changes" DROP CONSTRAINT "plan_changes_origin_known";--> statement-breakpoint
ALTER TABLE "plan_changes" ADD COLUMN "is_trial" boolean DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE "plan_changes" ADD COLUMN "proposal_id" uuid;--> statement-breakpoint
ALTER TABLE "plan_changes" ADD COLUMN "firing_id" uuid;--> statement-breakpoint
ALTER TABLE "proposals" ADD COLUMN "state" text DEFAULT 'proposed' NOT NULL;--> statement-breakpoint
ALTER TABLE "proposals" ADD COLUMN "measured_gain" double precision;--> statement-breakpoint
ALTER TABLE "proposals" ADD COLUMN "job_id" uuid;--> statement-breakpoint
ALTER TABLE "proposals" ADD COLUMN "reason" text;--> statement-breakpoint
ALTER TABLE "proposals" ADD COLUMN "changed_at" timestamp (3) with time zone DEFAULT now() NOT NULL;--> statement-breakpoint
ALTER TABLE "workloads" ADD COLUMN "policy" text DEFAULT 'notify' NOT NULL;--> statement-breakpoint
ALTER TABLE "workloads" ADD COLUMN "change_window" jsonb;--> statement-breakpoint
ALTER TABLE "workloads" ADD COLUMN "compare_steps" integer DEFAULT 10 NOT NULL;--> statement-breakpoint
ALTER TABLE "workloads" ADD COLUMN "not_in_last_steps" integer DEFAULT 100 NOT NULL;--> statement-breakpoint
ALTER TABLE "workloads" ADD COLUMN "may_measure_runs" boolean DEFAULT false NOT NULL;--> statement-breakpoint
CREATE INDEX "proposals_waiting" ON "proposals" USING btree ("workload_id") WHERE state in ('proposed', 'tried');--> statement-breakpoint
ALTER TABLE "plan_changes" ADD CONSTRAINT "plan_changes_origin_known" CHECK (origin in ('person', 'drift', 'workload'));--> statement-breakpoint
ALTER TABLE "proposals" ADD CONSTRAINT "proposals_state_known" CHECK (state in ('proposed', 'trying', 'tried', 'applying', 'applied', 'returned', 'dismissed', 'superseded'));--> statement-breakpoint
ALTER TABLE "workloads" ADD CONSTRAINT "workloads_policy_known" CHECK (policy in ('notify', 'try', 'apply'));--> statement-breakpoint
UPDATE "proposals" SET "changed_at" = "created_at";--> statement-breakpoint
UPDATE "proposals" AS "older" SET "state" = 'superseded', "reason" = 'a newer proposal took its place' WHERE EXISTS (SELECT FROM "proposals" AS "newer" WHERE "newer"."workload_id" = "older"."workload_id" AND ("newer"."created_at", "newer"."id") > ("older"."created_at", "older"."id"));
