CREATE TABLE "project_months" (
	"project" text NOT NULL,
	"month" timestamp (3) with time zone NOT NULL,
	"gpu_hours" double precision NOT NULL,
	CONSTRAINT "project_months_project_month_pk" PRIMARY KEY("project","month")
);
--> statement-breakpoint
-- A hold that has ended counts in each month that it lasted in; `times` is 1, or -1 where it is taken back.
CREATE FUNCTION internevo_count_hold(hold "host_holds", times integer) RETURNS void LANGUAGE sql AS $$
  INSERT INTO "project_months" ("project", "month", "gpu_hours")
  SELECT hold."project", m."first", times * hold."gpus"
    * extract(epoch FROM least(hold."ended_at", m."next") - greatest(hold."began_at", m."first"))::float8 / 3600
  FROM (
    SELECT f AT TIME ZONE 'UTC' AS "first", (f + interval '1 month') AT TIME ZONE 'UTC' AS "next"
    FROM generate_series(date_trunc('month', hold."began_at" AT TIME ZONE 'UTC'), hold."ended_at" AT TIME ZONE 'UTC',
      interval '1 month') f) m
  WHERE greatest(hold."began_at", m."first") < least(hold."ended_at", m."next")
  ON CONFLICT ("project", "month") DO UPDATE SET "gpu_hours" = "project_months"."gpu_hours" + excluded."gpu_hours";
$$;
--> statement-breakpoint
CREATE FUNCTION internevo_count_holds() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    TRUNCATE "project_months";
    RETURN NULL;
  END IF;
  IF TG_OP <> 'INSERT' AND OLD."ended_at" IS NOT NULL THEN PERFORM internevo_count_hold(OLD, -1); END IF;
  IF TG_OP <> 'DELETE' AND NEW."ended_at" IS NOT NULL THEN PERFORM internevo_count_hold(NEW, 1); END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER host_holds_count AFTER INSERT OR UPDATE OR DELETE ON "host_holds" FOR EACH ROW EXECUTE FUNCTION internevo_count_holds();
--> statement-breakpoint
CREATE TRIGGER host_holds_forget AFTER TRUNCATE ON "host_holds" FOR EACH STATEMENT EXECUTE FUNCTION internevo_count_holds();
--> statement-breakpoint
DO $$ BEGIN PERFORM internevo_count_hold(h, 1) FROM "host_holds" h WHERE h."ended_at" IS NOT NULL; END $$;
