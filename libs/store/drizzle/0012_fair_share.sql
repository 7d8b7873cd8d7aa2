CREATE TABLE "project_usage" (
	"project" text PRIMARY KEY NOT NULL,
	"gpu_hours" double precision NOT NULL,
	"at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "queue_settings" (
	"is_the_one" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"half_life_hours" double precision NOT NULL,
	"patience_hours" double precision NOT NULL,
	CONSTRAINT "queue_settings_one" CHECK (is_the_one)
);
--> statement-breakpoint
DROP INDEX "host_waiters_order";--> statement-breakpoint
ALTER TABLE "projects" ADD COLUMN "weight" double precision DEFAULT 1 NOT NULL;--> statement-breakpoint
ALTER TABLE "host_waiters" ADD COLUMN "project" text;--> statement-breakpoint
ALTER TABLE "host_waiters" ADD COLUMN "gpus" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "host_waiters" ADD COLUMN "priority" text DEFAULT 'scheduled' NOT NULL;--> statement-breakpoint
ALTER TABLE "host_waiters" ADD COLUMN "submitted_at" timestamp (3) with time zone;--> statement-breakpoint
UPDATE "host_waiters" w SET "project" = s."project", "priority" = s."priority", "submitted_at" = s."created_at",
  "gpus" = (s."spec" #>> '{cluster,nodes}')::integer * (s."spec" #>> '{cluster,gpusPerNode}')::integer
FROM (
  SELECT 'job:' || "id" AS "owner", "project", coalesce("spec" ->> 'priority', 'normal') AS "priority", "created_at", "spec" FROM "jobs"
  UNION ALL
  SELECT 'workload:' || "id", "project", 'scheduled', NULL, "spec" FROM "workloads") s
WHERE s."owner" = w."owner";--> statement-breakpoint
UPDATE "host_waiters" SET "submitted_at" = "waiting_since" WHERE "submitted_at" IS NULL;--> statement-breakpoint
ALTER TABLE "host_waiters" ALTER COLUMN "submitted_at" SET NOT NULL;--> statement-breakpoint
ALTER TABLE "host_waiters" ALTER COLUMN "gpus" DROP DEFAULT;--> statement-breakpoint
ALTER TABLE "host_waiters" ALTER COLUMN "priority" DROP DEFAULT;--> statement-breakpoint
ALTER TABLE "host_waiters" DROP COLUMN "place";