CREATE TABLE "lease_waiters" (
	"resource" text NOT NULL,
	"waiter" text NOT NULL,
	"started" boolean NOT NULL,
	"since" timestamp (3) with time zone NOT NULL,
	"expires_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "lease_waiters_resource_waiter_pk" PRIMARY KEY("resource","waiter")
);
