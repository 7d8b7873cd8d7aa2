import { createHash } from "node:crypto";
import { findTokenOwner, findTokenOwners, type Database, type TokenOwner } from "@internevo/store";

/** Digests of tokens that were valid when they were looked up last. */
const MOST_KNOWN = 1000;
const BATCH_MILLISECONDS = 250;

interface Batch {
  readonly tokens: Set<string>;
  readonly owners: Promise<Map<string, TokenOwner>>;
}

const digestOf = (token: string): string => createHash("sha256").update(token).digest("base64");

/**
 * Who shows a token. A valid token is always found, whatever else its address sends: other processes and
 * other people may share it. What an address costs the database that guesses is bounded: the tokens that were
 * not seen valid before are looked up together, four times a second.
 */
export class TokenLookup {
  readonly #database: Database;
  readonly #known = new Set<string>();
  #batch: Batch | undefined;

  constructor(database: Database) {
    this.#database = database;
  }

  /** @param isGuessing whether the request's address has shown many wrong tokens lately. */
  async ownerOf(token: string, isGuessing: boolean): Promise<TokenOwner | undefined> {
    const digest = digestOf(token);
    const owner =
      isGuessing && !this.#known.has(digest)
        ? await this.#together(token)
        : await findTokenOwner(this.#database.db, token);
    this.#known.delete(digest);
    if (owner !== undefined) this.#known.add(digest);
    const [oldest] = this.#known;
    if (this.#known.size > MOST_KNOWN && oldest !== undefined) this.#known.delete(oldest);
    return owner;
  }

  async #together(token: string): Promise<TokenOwner | undefined> {
    this.#batch ??= this.#begin();
    this.#batch.tokens.add(token);
    return (await this.#batch.owners).get(token);
  }

  #begin(): Batch {
    const tokens = new Set<string>();
    const due = new Promise<void>((resolve) => setTimeout(resolve, BATCH_MILLISECONDS));
    const owners = due.then(() => {
      this.#batch = undefined;
      return findTokenOwners(this.#database.db, [...tokens]);
    });
    return { tokens, owners };
  }
}
