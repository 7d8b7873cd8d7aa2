DROP INDEX "jobs_page";--> statement-breakpoint
DROP INDEX "jobs_state_page";--> statement-breakpoint
DROP INDEX "jobs_project_page";--> statement-breakpoint
DROP INDEX "jobs_owner_page";--> statement-breakpoint
DROP INDEX "plannings_workload";--> statement-breakpoint
DROP INDEX "profiles_cluster";--> statement-breakpoint
DROP INDEX "profiles_page";--> statement-breakpoint
DROP INDEX "dead_letters_page";--> statement-breakpoint
DROP INDEX "outbox_subject";--> statement-breakpoint
DROP INDEX "proposals_page";--> statement-breakpoint
DROP INDEX "workloads_page";--> statement-breakpoint
DROP INDEX "api_tokens_page";--> statement-breakpoint
DROP INDEX "audit_log_actor";--> statement-breakpoint
DROP INDEX "audit_log_project";--> statement-breakpoint
DROP INDEX "audit_log_target";--> statement-breakpoint
CREATE INDEX "jobs_cluster_page" ON "jobs" USING btree ((spec -> 'cluster' ->> 'name'),"created_at","id");--> statement-breakpoint
CREATE INDEX "jobs_labels" ON "jobs" USING gin ((spec -> 'labels'));--> statement-breakpoint
CREATE INDEX "jobs_page" ON "jobs" USING btree ("created_at","id");--> statement-breakpoint
CREATE INDEX "jobs_state_page" ON "jobs" USING btree ("state","created_at","id");--> statement-breakpoint
CREATE INDEX "jobs_project_page" ON "jobs" USING btree ("project","created_at","id");--> statement-breakpoint
CREATE INDEX "jobs_owner_page" ON "jobs" USING btree ("owner","created_at","id");--> statement-breakpoint
CREATE INDEX "plannings_workload" ON "plannings" USING btree ("workload_id","created_at");--> statement-breakpoint
CREATE INDEX "profiles_cluster" ON "profiles" USING btree ("cluster_key","created_at");--> statement-breakpoint
CREATE INDEX "profiles_page" ON "profiles" USING btree ("created_at","id");--> statement-breakpoint
CREATE INDEX "dead_letters_page" ON "dead_letters" USING btree ("created_at","id");--> statement-breakpoint
CREATE INDEX "outbox_subject" ON "outbox" USING btree ("subject_id","type","sequence");--> statement-breakpoint
CREATE INDEX "proposals_page" ON "proposals" USING btree ("workload_id","created_at","id");--> statement-breakpoint
CREATE INDEX "workloads_page" ON "workloads" USING btree ("created_at","id");--> statement-breakpoint
CREATE INDEX "api_tokens_page" ON "api_tokens" USING btree ("created_at","id");--> statement-breakpoint
CREATE INDEX "audit_log_actor" ON "audit_log" USING btree ("actor","id");--> statement-breakpoint
CREATE INDEX "audit_log_project" ON "audit_log" USING btree ("project","id");--> statement-breakpoint
CREATE INDEX "audit_log_target" ON "audit_log" USING btree ("target","id");