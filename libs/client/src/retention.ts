import {
  API_PREFIX,
  type Retention,
  type RetentionChange,
  type RetentionPreview,
  type RetentionRun,
  type RetentionTrial,
} from "@internevo/contracts";
import { randomKey, request, type Connection, type MutationOptions, type PageOptions } from "./request.ts";

const PATH = `${API_PREFIX}/retention`;

/** For how long the installation keeps what ended jobs leave. */
export class RetentionClient {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** The settings, and what was removed last. */
  show({ signal }: { signal?: AbortSignal } = {}): Promise<Retention> {
    return request(this.#connection, PATH, { signal });
  }

  /** Changes what is given; null keeps a kind for ever. */
  change(change: RetentionChange, { signal }: { signal?: AbortSignal } = {}): Promise<Retention> {
    return request(this.#connection, PATH, { method: "PATCH", body: change, signal });
  }

  /** What would be removed now, with one page of the jobs. @param trial days, or `forever`, in place of what is set */
  preview(trial: RetentionTrial = {}, options: PageOptions = {}): Promise<RetentionPreview> {
    const { signal, ...page } = options;
    return request(this.#connection, `${PATH}/preview`, { query: { ...trial, ...page }, signal });
  }

  /** Has what is due removed now. A run that goes on already is the answer. */
  run({ idempotencyKey, signal }: MutationOptions = {}): Promise<RetentionRun> {
    const headers = { "idempotency-key": idempotencyKey ?? randomKey() };
    return request(this.#connection, `${PATH}/run`, { method: "POST", headers, signal });
  }
}
