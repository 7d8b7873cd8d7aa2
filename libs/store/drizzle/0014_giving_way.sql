CREATE TABLE "preemptible_holds" (
	"owner" text PRIMARY KEY NOT NULL,
	"project" text,
	"gpus" integer NOT NULL,
	"priority" text NOT NULL,
	"submitted_at" timestamp (3) with time zone NOT NULL,
	"began_at" timestamp (3) with time zone NOT NULL,
	"waited_seconds" double precision NOT NULL,
	"gives_way_to" text
);
--> statement-breakpoint
ALTER TABLE "queue_settings" ADD COLUMN "least_run_minutes" double precision DEFAULT 10 NOT NULL;--> statement-breakpoint
ALTER TABLE "attempts" ADD COLUMN "gave_way_to" text;--> statement-breakpoint
ALTER TABLE "host_waiters" ADD COLUMN "gave_way_to" text;