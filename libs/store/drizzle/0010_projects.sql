CREATE TABLE "host_holds" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"owner" text NOT NULL,
	"project" text NOT NULL,
	"submitter" text,
	"cluster" text NOT NULL,
	"gpus" integer NOT NULL,
	"began_at" timestamp (3) with time zone NOT NULL,
	"ended_at" timestamp (3) with time zone
);
--> statement-breakpoint
CREATE TABLE "projects" (
	"name" text PRIMARY KEY NOT NULL,
	"description" text DEFAULT '' NOT NULL,
	"max_gpus" integer,
	"gpu_hours_per_month" double precision,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
INSERT INTO "projects" ("name", "description") VALUES ('default', 'Everything that names no project');--> statement-breakpoint
ALTER TABLE "workloads" DROP CONSTRAINT "workloads_name_unique";--> statement-breakpoint
ALTER TABLE "jobs" ADD COLUMN "project" text DEFAULT 'default' NOT NULL;--> statement-breakpoint
ALTER TABLE "workloads" ADD COLUMN "project" text DEFAULT 'default' NOT NULL;--> statement-breakpoint
ALTER TABLE "api_tokens" ADD COLUMN "project" text;--> statement-breakpoint
ALTER TABLE "audit_log" ADD COLUMN "project" text;--> statement-breakpoint
CREATE UNIQUE INDEX "host_holds_open" ON "host_holds" USING btree ("owner") WHERE ended_at is null;--> statement-breakpoint
CREATE INDEX "host_holds_project" ON "host_holds" USING btree ("project","began_at");--> statement-breakpoint
CREATE INDEX "host_holds_began" ON "host_holds" USING btree ("began_at");--> statement-breakpoint
ALTER TABLE "jobs" ADD CONSTRAINT "jobs_project_projects_name_fk" FOREIGN KEY ("project") REFERENCES "public"."projects"("name") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workloads" ADD CONSTRAINT "workloads_project_projects_name_fk" FOREIGN KEY ("project") REFERENCES "public"."projects"("name") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "api_tokens" ADD CONSTRAINT "api_tokens_project_projects_name_fk" FOREIGN KEY ("project") REFERENCES "public"."projects"("name") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "jobs_project_page" ON "jobs" USING btree ("project","created_at" DESC NULLS LAST,"id" DESC NULLS LAST);--> statement-breakpoint
CREATE INDEX "audit_log_project" ON "audit_log" USING btree ("project","id" DESC NULLS LAST);--> statement-breakpoint
ALTER TABLE "workloads" ADD CONSTRAINT "workloads_project_name" UNIQUE("project","name");--> statement-breakpoint
UPDATE "audit_log" SET "project" = 'default' WHERE "action" LIKE '% /api/v1/jobs%' OR "action" LIKE '% /api/v1/workloads%';--> statement-breakpoint
INSERT INTO "host_holds" ("owner", "project", "submitter", "cluster", "gpus", "began_at")
SELECT c."owner", 'default', j."owner", s."spec" #>> '{cluster,name}', (s."spec" #>> '{cluster,nodes}')::integer * (s."spec" #>> '{cluster,gpusPerNode}')::integer, c."began_at"
FROM (SELECT "owner", min("claimed_at") AS "began_at" FROM "host_claims" GROUP BY "owner") c
JOIN (SELECT 'job:' || "id" AS "owner", "spec" FROM "jobs" UNION ALL SELECT 'workload:' || "id", "spec" FROM "workloads") s ON s."owner" = c."owner"
LEFT JOIN "jobs" j ON 'job:' || j."id" = c."owner";