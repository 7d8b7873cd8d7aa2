DROP INDEX "profiles_given_sha256";--> statement-breakpoint
ALTER TABLE "profiles" ADD COLUMN "project" text;--> statement-breakpoint
ALTER TABLE "profiles" ADD CONSTRAINT "profiles_project_projects_name_fk" FOREIGN KEY ("project") REFERENCES "public"."projects"("name") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "jobs_profile" ON "jobs" USING btree ("profile_id");--> statement-breakpoint
CREATE INDEX "jobs_named_profile" ON "jobs" USING hash ((spec -> 'cluster' ->> 'profile'));--> statement-breakpoint
CREATE INDEX "plannings_profile" ON "plannings" USING btree ("profile_id");--> statement-breakpoint
CREATE UNIQUE INDEX "profiles_project_given_sha256" ON "profiles" USING btree ("project","given_sha256") WHERE discarded_at is null;--> statement-breakpoint
CREATE UNIQUE INDEX "profiles_given_sha256" ON "profiles" USING btree ("given_sha256") WHERE discarded_at is null and project is null;