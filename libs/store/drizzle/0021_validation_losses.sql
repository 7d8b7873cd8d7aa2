CREATE TABLE "validation_losses" (
	"run_id" uuid NOT NULL,
	"step" integer NOT NULL,
	"attempt" integer NOT NULL,
	"loss" double precision NOT NULL,
	"tokens" bigint NOT NULL,
	"seconds" double precision NOT NULL,
	"at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "validation_losses_run_id_step_pk" PRIMARY KEY("run_id","step")
);
--> statement-breakpoint
ALTER TABLE "job_events" DROP CONSTRAINT "job_events_type_known";--> statement-breakpoint
ALTER TABLE "validation_losses" ADD CONSTRAINT "validation_losses_run_id_runs_id_fk" FOREIGN KEY ("run_id") REFERENCES "public"."runs"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "job_events" ADD CONSTRAINT "job_events_type_known" CHECK (type in ('state', 'progress', 'trial', 'step', 'validation', 'log', 'report'));