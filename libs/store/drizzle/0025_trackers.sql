CREATE TABLE "tracker_cursors" (
	"job_id" uuid NOT NULL,
	"tracker" text NOT NULL,
	"last_event_id" bigint DEFAULT 0 NOT NULL,
	"external_id" text,
	"bytes" bigint DEFAULT 0 NOT NULL,
	"claims" integer DEFAULT 0 NOT NULL,
	"claimed_until" timestamp (3) with time zone,
	"next_at" timestamp (3) with time zone NOT NULL,
	"failures" integer DEFAULT 0 NOT NULL,
	"failing_since" timestamp (3) with time zone,
	"last_error" text,
	"start_overs" integer DEFAULT 0 NOT NULL,
	"ended_at" timestamp (3) with time zone,
	CONSTRAINT "tracker_cursors_job_id_tracker_pk" PRIMARY KEY("job_id","tracker")
);
--> statement-breakpoint
CREATE TABLE "trackers" (
	"key" text PRIMARY KEY NOT NULL,
	"since" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "tracker_cursors" ADD CONSTRAINT "tracker_cursors_job_id_jobs_id_fk" FOREIGN KEY ("job_id") REFERENCES "public"."jobs"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "tracker_cursors" ADD CONSTRAINT "tracker_cursors_tracker_trackers_key_fk" FOREIGN KEY ("tracker") REFERENCES "public"."trackers"("key") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "tracker_cursors_open" ON "tracker_cursors" USING btree ("tracker","next_at") WHERE ended_at is null;--> statement-breakpoint
CREATE INDEX "jobs_ended" ON "jobs" USING btree ("ended_at");