CREATE TABLE "host_claims" (
	"host" text PRIMARY KEY NOT NULL,
	"owner" text NOT NULL,
	"claimed_at" timestamp (3) with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "host_waiters" (
	"owner" text PRIMARY KEY NOT NULL,
	"hosts" text[] NOT NULL,
	"place" timestamp (3) with time zone NOT NULL,
	"waiting_since" timestamp (3) with time zone DEFAULT now() NOT NULL,
	"command" jsonb NOT NULL
);
--> statement-breakpoint
CREATE INDEX "host_claims_owner" ON "host_claims" USING btree ("owner");--> statement-breakpoint
CREATE INDEX "host_waiters_order" ON "host_waiters" USING btree ("place","owner");