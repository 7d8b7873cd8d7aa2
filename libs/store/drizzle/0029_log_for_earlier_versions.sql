-- Services of an earlier version go on beside those of this one while an installation is upgraded. They know the log
-- as the table job_events, with a row for each step. That name becomes a view which looks so. The release after the
-- first one that has it may drop the view.
ALTER TABLE "job_events" RENAME TO "job_log";--> statement-breakpoint
ALTER TABLE "job_log" RENAME CONSTRAINT "job_events_job_id_jobs_id_fk" TO "job_log_job_id_jobs_id_fk";--> statement-breakpoint
DELETE FROM "job_log" WHERE "type" = 'step';--> statement-breakpoint
ALTER TABLE "job_log" DROP CONSTRAINT "job_events_type_known";--> statement-breakpoint
ALTER TABLE "job_log" ADD CONSTRAINT "job_log_type_known" CHECK (type in ('state', 'progress', 'trial', 'validation', 'log', 'report', 'replaced-step'));--> statement-breakpoint
CREATE VIEW "job_events" AS
  SELECT e.id, e.job_id, CASE e.type WHEN 'replaced-step' THEN 'step' ELSE e.type END AS type, e.at, e.data
    FROM job_log e
  UNION ALL
  SELECT m.event_id, r.job_id, 'step', m.at, jsonb_build_object('step', m.step, 'attempt', m.attempt, 'loss', m.loss,
      'gradientNorm', m.gradient_norm, 'learningRate', m.learning_rate, 'stepTimeSeconds', m.step_time_seconds,
      'tokensPerSecond', m.tokens_per_second, 'exposedCommunicationSeconds', m.exposed_communication_seconds,
      'at', to_char(m.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))
    FROM step_metrics m JOIN runs r ON r.id = m.run_id;
--> statement-breakpoint
ALTER VIEW "job_events" ALTER COLUMN "id" SET DEFAULT nextval('job_events_id_seq');--> statement-breakpoint
ALTER VIEW "job_events" ALTER COLUMN "at" SET DEFAULT now();--> statement-breakpoint
-- An earlier version stores a step before it takes its turn at the job's log, and writes it there afterwards: only then
-- it has its place in the log, also where it replaced another.
CREATE FUNCTION internevo_log_of_earlier_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.type = 'step' THEN
    UPDATE step_metrics SET event_id = NEW.id
      WHERE run_id = (SELECT r.id FROM runs r WHERE r.job_id = NEW.job_id)
        AND step = (NEW.data ->> 'step')::integer AND attempt = (NEW.data ->> 'attempt')::integer;
  ELSE
    INSERT INTO job_log (id, job_id, type, at, data) VALUES (NEW.id, NEW.job_id, NEW.type, NEW.at, NEW.data);
  END IF;
  RETURN NEW;
END $$;
--> statement-breakpoint
CREATE TRIGGER job_events_insert INSTEAD OF INSERT ON "job_events" FOR EACH ROW EXECUTE FUNCTION internevo_log_of_earlier_version();
