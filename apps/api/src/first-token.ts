import { sql } from "drizzle-orm";
import {
  countAdminTokens,
  FIRST_TOKEN_NAME,
  GIVEN_TOKEN_NAME,
  newToken,
  storeToken,
  type Database,
} from "@internevo/store";

/** Any number that no other lock of the database has. */
const FIRST_TOKEN_LOCK = "4471090358127712";

/**
 * Sees to it that somebody can use the API.
 * @param given an admin token that the starter of the service has made: stored, in place of the one it gave
 * before.
 * @returns the token that was made now, to be shown once; undefined when there was one already. Several first
 * starts at once make one.
 */
export async function ensureToken(
  database: Database,
  given: string | undefined,
): Promise<string | undefined> {
  if (given !== undefined) {
    await storeToken(database.db, GIVEN_TOKEN_NAME, "admin", given);
    return undefined;
  }
  return database.transaction(async (tx) => {
    await tx.execute(sql.raw(`select pg_advisory_xact_lock(${FIRST_TOKEN_LOCK})`));
    if ((await countAdminTokens(tx)) > 0) return undefined;
    const token = newToken();
    await storeToken(tx, FIRST_TOKEN_NAME, "admin", token);
    return token;
  });
}
