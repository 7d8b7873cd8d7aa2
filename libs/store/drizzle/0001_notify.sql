CREATE FUNCTION internevo_notify_job_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('internevo_job_events', NEW.job_id::text);
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER job_events_notify AFTER INSERT ON "job_events" FOR EACH ROW EXECUTE FUNCTION internevo_notify_job_event();
--> statement-breakpoint
CREATE FUNCTION internevo_notify_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('internevo_outbox', '');
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER outbox_notify AFTER INSERT ON "outbox" FOR EACH STATEMENT EXECUTE FUNCTION internevo_notify_outbox();
