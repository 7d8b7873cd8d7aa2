ALTER TABLE "attempts" ADD COLUMN "checkpoint_step" integer;--> statement-breakpoint
ALTER TABLE "outbox" ADD COLUMN "project" text;