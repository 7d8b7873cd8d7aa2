import { createHash } from "node:crypto";
import { findTokenOwner, findTokenOwners, type Database, type TokenOwner } from "@internevo/store";

/** Digests of tokens that were valid when they were looked up last. */
const MOST_KNOWN = 1000;
const BATCH_MILLISECONDS = 250;

interface Batch {
  readonly tokens: Set<string>;
  readonly owners: Promise<Map<string, TokenOwner>>;
}

/** The look-up of one token. Who asks while it runs waits for the next: it may have been revoked since it began. */
interface Lookup {
  readonly owner: Promise<TokenOwner | undefined>;
  next: Promise<TokenOwner | undefined> | undefined;
}

const digestOf = (token: string): string => createHash("sha256").update(token).digest("base64");

/**
 * Who shows a token. A valid token is always found, whatever else its address sends: other processes and
 * other people may share it. What an address costs the database that guesses is bounded: the tokens that were
 * not seen valid before are looked up together, four times a second. What one token costs is bounded
 * too: it is looked up once for all requests that came since its last look-up began.
 */
export class TokenLookup {
  readonly #database: Database;
  readonly #known = new Set<string>();
  readonly #running = new Map<string, Lookup>();
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
        : await this.#shared(token, digest);
    this.#known.delete(digest);
    if (owner !== undefined) this.#known.add(digest);
    const [oldest] = this.#known;
    if (this.#known.size > MOST_KNOWN && oldest !== undefined) this.#known.delete(oldest);
    return owner;
  }

  #shared(token: string, digest: string): Promise<TokenOwner | undefined> {
    const running = this.#running.get(digest);
    if (running === undefined) return this.#lookUp(token, digest);
    const again = (): Promise<TokenOwner | undefined> => this.#lookUp(token, digest);
    running.next ??= running.owner.then(again, again);
    return running.next;
  }

  #lookUp(token: string, digest: string): Promise<TokenOwner | undefined> {
    const owner = findTokenOwner(this.#database.db, token).finally(() => this.#running.delete(digest));
    this.#running.set(digest, { owner, next: undefined });
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
