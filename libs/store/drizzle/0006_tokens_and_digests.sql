ALTER TABLE "api_tokens" DROP CONSTRAINT "api_tokens_name_unique";--> statement-breakpoint
ALTER TABLE "api_tokens" DROP CONSTRAINT "api_tokens_token_sha256_unique";--> statement-breakpoint
ALTER TABLE "profiles" ADD COLUMN "given_sha256" text;--> statement-breakpoint
ALTER TABLE "api_tokens" ADD COLUMN "expires_at" timestamp (3) with time zone;--> statement-breakpoint
ALTER TABLE "idempotency_keys" ADD COLUMN "etag" text;--> statement-breakpoint
-- Of equal profiles that were given before, the oldest keeps the digest.
UPDATE "profiles" SET "given_sha256" = encode(sha256(convert_to("profile"::text, 'UTF8')), 'hex')
WHERE "id" IN (SELECT DISTINCT ON ("profile") "id" FROM "profiles" WHERE "cluster_key" LIKE 'given:%' AND "discarded_at" IS NULL ORDER BY "profile", "created_at", "id");--> statement-breakpoint
CREATE UNIQUE INDEX "profiles_given_sha256" ON "profiles" USING btree ("given_sha256") WHERE discarded_at is null;--> statement-breakpoint
CREATE UNIQUE INDEX "api_tokens_name" ON "api_tokens" USING btree ("name") WHERE revoked_at is null;--> statement-breakpoint
CREATE UNIQUE INDEX "api_tokens_sha256" ON "api_tokens" USING btree ("token_sha256") WHERE revoked_at is null;--> statement-breakpoint
CREATE INDEX "api_tokens_page" ON "api_tokens" USING btree ("created_at" DESC NULLS LAST,"id" DESC NULLS LAST);