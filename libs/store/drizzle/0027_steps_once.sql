ALTER TABLE "step_metrics" ADD COLUMN "event_id" bigint DEFAULT nextval('job_events_id_seq') NOT NULL;--> statement-breakpoint
UPDATE "step_metrics" m SET "event_id" = e."id"
FROM "runs" r, (
  SELECT "job_id", ("data"->>'step')::integer AS "step", ("data"->>'attempt')::integer AS "attempt", max("id") AS "id"
  FROM "job_events" WHERE "type" = 'step' GROUP BY 1, 2, 3
) e
WHERE m."run_id" = r."id" AND r."job_id" = e."job_id" AND m."step" = e."step" AND m."attempt" = e."attempt";--> statement-breakpoint
DELETE FROM "job_events" e USING "runs" r, "step_metrics" m
WHERE e."type" = 'step' AND r."job_id" = e."job_id" AND m."run_id" = r."id" AND m."event_id" = e."id";--> statement-breakpoint
ALTER TABLE "job_events" DROP CONSTRAINT "job_events_type_known";--> statement-breakpoint
UPDATE "job_events" SET "type" = 'replaced-step' WHERE "type" = 'step';--> statement-breakpoint
ALTER TABLE "job_events" ADD CONSTRAINT "job_events_type_known" CHECK (type in ('state', 'progress', 'trial', 'step', 'validation', 'log', 'report', 'replaced-step'));--> statement-breakpoint
CREATE INDEX "step_metrics_event" ON "step_metrics" USING btree ("run_id","event_id");
--> statement-breakpoint
CREATE FUNCTION internevo_notify_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('internevo_job_events', (SELECT job_id FROM runs WHERE id = NEW.run_id)::text);
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER step_metrics_notify AFTER INSERT OR UPDATE ON "step_metrics" FOR EACH ROW EXECUTE FUNCTION internevo_notify_step();
