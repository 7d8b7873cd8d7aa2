ALTER TABLE "trials" DROP CONSTRAINT "trials_state_known";--> statement-breakpoint
CREATE INDEX "host_holds_owner" ON "host_holds" USING btree ("owner","began_at");--> statement-breakpoint
ALTER TABLE "trials" ADD CONSTRAINT "trials_state_known" CHECK (state in ('pending', 'running', 'succeeded', 'failed', 'cancelled'));--> statement-breakpoint
UPDATE "trials" SET "state" = 'cancelled' WHERE "state" = 'failed' AND "failure" ->> 'code' = 'cancelled';
