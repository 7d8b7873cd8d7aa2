import { printable } from "@internevo/domain";
import { isConnectionLoss, isDiskFull, recordAudit, type AuditEntry, type Database } from "@internevo/store";
import type { FastifyInstance } from "fastify";
import { countedAs } from "../work/caller.ts";
import { actionOf } from "./mutations.ts";
import { statusOf } from "./problems.ts";

const MUTATING = new Set(["POST", "PUT", "PATCH", "DELETE"]);

/** Refusals of one kind and token that are written down each, in this time; further ones are counted. */
export const MOST_WRITTEN = 20;
const REPEATED_MILLISECONDS = 60_000;
/** Kinds of refusals that are counted at once; further ones are written down one by one. */
const MOST_COUNTED = 1000;
/** Characters of what a refused request named; every id is shorter. */
const LONGEST_TARGET = 100;

interface Counted {
  readonly entry: AuditEntry;
  readonly timer: NodeJS.Timeout;
  refused: number;
  lastAt: number;
}

/**
 * Writes down what was refused. Of a refusal that one token or person repeats the first 20 in a minute have a row
 * each, and one row at its end says how many followed (`details.repeated`).
 */
export class RefusalAudit {
  readonly #counted = new Map<string, Counted>();
  readonly #app: FastifyInstance;
  readonly #database: Database;

  constructor(app: FastifyInstance, database: Database) {
    this.#app = app;
    this.#database = database;
    app.addHook("onClose", async () => {
      await Promise.all([...this.#counted.keys()].map((key) => this.#end(key)));
    });
  }

  /** @param who the token or person, as it is counted */
  async note(who: string, entry: AuditEntry): Promise<void> {
    const { action, status, details } = entry;
    const key = JSON.stringify([who, action, status, details?.["code"]]);
    const found = this.#counted.get(key);
    if (found) Object.assign(found, { refused: found.refused + 1, lastAt: performance.now() });
    if (found && found.refused > MOST_WRITTEN) return;
    if (!found && this.#counted.size < MOST_COUNTED) this.#count(key, entry);
    await this.#record(entry);
  }

  #count(key: string, entry: AuditEntry): void {
    const failed = (error: unknown): void =>
      this.#app.log.error({ err: error }, "a refusal could not be written to the audit log");
    const timer = setTimeout(() => void this.#end(key).catch(failed), REPEATED_MILLISECONDS).unref();
    this.#counted.set(key, { entry, timer, refused: 1, lastAt: performance.now() });
  }

  async #record(entry: AuditEntry, secondsAgo = 0): Promise<void> {
    try {
      await recordAudit(this.#database.db, entry, secondsAgo);
    } catch (error) {
      if (!isConnectionLoss(error) && !isDiskFull(error)) throw error;
      this.#app.log.warn(
        { err: error, traceId: entry.traceId },
        "the refusal could not be written to the audit log",
      );
    }
  }

  async #end(key: string): Promise<void> {
    const found = this.#counted.get(key);
    if (!found) return;
    this.#counted.delete(key);
    clearTimeout(found.timer);
    const { entry } = found;
    const repeated = found.refused - MOST_WRITTEN;
    if (repeated <= 0) return;
    const { actor, role, action, status, project = null } = entry;
    const details = { ...entry.details, repeated };
    // Each had a target of its own, and the last one's trace would say nothing of the others. It is of the time of
    // the last: a project that has the name by now was not refused anything.
    await this.#record(
      { actor, role, action, status, project, target: null, details },
      (performance.now() - found.lastAt) / 1000,
    );
  }
}

/** What was refused is written down as well; a mutation that happened has its row in its own transaction. */
export function registerRefusalAudit(app: FastifyInstance, database: Database): RefusalAudit {
  const refusals = new RefusalAudit(app, database);
  app.addHook("onResponse", async (request) => {
    // What no route answers has changed nothing, and may be any text.
    if (request.problem === null || request.actor === null || request.is404 || !MUTATING.has(request.method))
      return;
    // What every viewer may POST is a question: it would have changed nothing.
    if (request.method === "POST" && request.routeOptions.config.role === "viewer") return;
    const { actor, problem } = request;
    const { id } = (request.params ?? {}) as { id?: string };
    await refusals.note(countedAs(actor), {
      actor: actor.name,
      role: actor.role,
      action: actionOf(request),
      // An id that is refused may be any text, and not all text can be stored.
      target: id === undefined ? null : printable(id).slice(0, LONGEST_TARGET),
      // What a project's token was refused is that project's business.
      project: request.project ?? actor.project,
      status: statusOf(problem.code),
      traceId: request.trace.traceId,
      details: { code: problem.code },
    });
  });
  return refusals;
}
