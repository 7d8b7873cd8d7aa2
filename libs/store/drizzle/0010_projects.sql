CREATE TABLE "projects" (
	"name" text PRIMARY KEY NOT NULL,
	"description" text DEFAULT '' NOT NULL,
	"max_gpus" integer,
	"gpu_hours_per_month" double precision,
	"created_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
INSERT INTO "projects" ("name", "description") VALUES ('default', 'What names no project');--> statement-breakpoint
ALTER TABLE "workloads" DROP CONSTRAINT "workloads_name_unique";--> statement-breakpoint
ALTER TABLE "jobs" ADD COLUMN "project" text DEFAULT 'default' NOT NULL;--> statement-breakpoint
ALTER TABLE "workloads" ADD COLUMN "project" text DEFAULT 'default' NOT NULL;--> statement-breakpoint
ALTER TABLE "jobs" ADD CONSTRAINT "jobs_project_projects_name_fk" FOREIGN KEY ("project") REFERENCES "public"."projects"("name") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "workloads" ADD CONSTRAINT "workloads_project_projects_name_fk" FOREIGN KEY ("project") REFERENCES "public"."projects"("name") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "jobs_project_page" ON "jobs" USING btree ("project","created_at" DESC NULLS LAST,"id" DESC NULLS LAST);--> statement-breakpoint
ALTER TABLE "workloads" ADD CONSTRAINT "workloads_project_name" UNIQUE("project","name");