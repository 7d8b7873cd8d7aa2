CREATE EXTENSION IF NOT EXISTS pg_trgm;
--> statement-breakpoint
CREATE INDEX "jobs_name" ON "jobs" USING gin ("name" gin_trgm_ops);