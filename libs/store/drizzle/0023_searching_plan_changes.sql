ALTER TABLE "plan_changes" DROP CONSTRAINT "plan_changes_state_known";--> statement-breakpoint
DROP INDEX "plan_changes_open";--> statement-breakpoint
CREATE UNIQUE INDEX "plan_changes_open" ON "plan_changes" USING btree ("run_id") WHERE state in ('searching', 'asked', 'comparing');--> statement-breakpoint
ALTER TABLE "plan_changes" ADD CONSTRAINT "plan_changes_state_known" CHECK (state in ('searching', 'asked', 'comparing', 'kept', 'returned', 'dismissed', 'superseded'));