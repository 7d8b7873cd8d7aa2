import { CSRF_HEADER, type Problem } from "@internevo/contracts";
import { ApiConnectionError, ApiProblemError, UnexpectedAnswerError } from "./errors.ts";

export interface Connection {
  readonly baseUrl: string;
  /** Undefined: a browser's session, whose cookie the browser sends, or nobody. */
  readonly token: string | undefined;
  /** What a session's requests that change something show. */
  readonly csrfToken: (() => string | undefined) | undefined;
  readonly fetch: typeof fetch;
}

/** A list: the name stands once for each. */
export type QueryValue = string | number | readonly string[] | undefined;

export interface RequestOptions {
  readonly method?: "GET" | "POST" | "PATCH" | "DELETE";
  readonly query?: Readonly<Record<string, QueryValue>>;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string | undefined>>;
  readonly signal?: AbortSignal | undefined;
}

const isAbort = (error: unknown, signal: AbortSignal | undefined): boolean =>
  signal?.aborted === true || (error instanceof Error && error.name === "AbortError");

export function urlOf(connection: Connection, path: string, query: RequestOptions["query"] = {}): string {
  const url = new URL(connection.baseUrl.replace(/\/+$/, "") + path);
  for (const [name, value] of Object.entries(query))
    for (const one of [value].flat()) if (one !== undefined) url.searchParams.append(name, String(one));
  return url.href;
}

/** No answer of the API is near it; what is downloaded has no bound. */
export const MOST_ANSWER_BYTES = 64 * 2 ** 20;

/** An answer's JSON. @throws UnexpectedAnswerError for one without an end; SyntaxError for one that is no JSON */
async function jsonOf(response: Response): Promise<unknown> {
  const pieces: string[] = [];
  const decoder = new TextDecoder();
  let bytes = 0;
  // Its type says nothing of its pieces.
  const body = response.body as ReadableStream<Uint8Array> | null;
  const reader = body?.getReader();
  while (reader !== undefined) {
    const { done, value } = await reader.read();
    if (done) break;
    bytes += value.length;
    if (bytes > MOST_ANSWER_BYTES) {
      // What is left of the answer is nothing to anybody, and neither is how its connection ends.
      void reader.cancel().catch(() => {});
      throw new UnexpectedAnswerError(response.url, response.status, `more than ${MOST_ANSWER_BYTES} bytes`);
    }
    pieces.push(decoder.decode(value, { stream: true }));
  }
  return JSON.parse(pieces.join("") + decoder.decode()) as unknown;
}

/**
 * An answer's JSON, whose errors are those of {@link request}. @param noJson what an answer that is no JSON stands for
 */
async function answerOf(
  url: string,
  response: Response,
  signal: AbortSignal | undefined,
  noJson: (error: SyntaxError) => unknown,
): Promise<unknown> {
  try {
    return await jsonOf(response);
  } catch (error) {
    if (isAbort(error, signal) || error instanceof UnexpectedAnswerError) throw error;
    if (error instanceof SyntaxError) return noJson(error);
    throw new ApiConnectionError(url, error);
  }
}

/** Throws what a refused answer means. */
async function refusal(url: string, response: Response, signal: AbortSignal | undefined): Promise<Error> {
  const type = response.headers.get("content-type") ?? "no content type";
  if (!type.startsWith("application/problem+json"))
    return new UnexpectedAnswerError(url, response.status, type);
  // A refusal that is no JSON says no problem.
  const problem = await answerOf(url, response, signal, () => undefined);
  if (!isProblem(problem))
    return new UnexpectedAnswerError(url, response.status, `${type} that says no problem`);
  const retryAfter = Number(response.headers.get("retry-after") ?? Number.NaN);
  return new ApiProblemError(problem, Number.isFinite(retryAfter) ? retryAfter : undefined);
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Has what is read of every problem. A code or a detail that this version does not know is one all the same. */
const isProblem = (body: unknown): body is Problem =>
  isRecord(body) &&
  typeof body["title"] === "string" &&
  typeof body["status"] === "number" &&
  typeof body["code"] === "string" &&
  (body["errors"] === undefined || (Array.isArray(body["errors"]) && body["errors"].every(isRecord)));

/**
 * Sends one request.
 * @throws ApiProblemError the API refused; ApiConnectionError it could not be reached; UnexpectedAnswerError
 * it is not the API.
 */
export async function open(
  connection: Connection,
  path: string,
  options: RequestOptions = {},
): Promise<Response> {
  const url = urlOf(connection, path, options.query);
  const headers = new Headers({ accept: "application/json, application/problem+json" });
  if (connection.token !== undefined) headers.set("authorization", `Bearer ${connection.token}`);
  const csrfToken = connection.csrfToken?.();
  if (csrfToken !== undefined) headers.set(CSRF_HEADER, csrfToken);
  for (const [name, value] of Object.entries(options.headers ?? {}))
    if (value !== undefined) headers.set(name, value);
  if (options.body !== undefined) headers.set("content-type", "application/json");
  let response: Response;
  try {
    response = await connection.fetch(url, {
      method: options.method ?? "GET",
      headers,
      ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    });
  } catch (error) {
    if (isAbort(error, options.signal)) throw error;
    throw new ApiConnectionError(url, error);
  }
  if (!response.ok) throw await refusal(url, response, options.signal);
  return response;
}

/** Sends one request and reads its JSON answer; see {@link open} for the errors. */
export async function request<T>(
  connection: Connection,
  path: string,
  options: RequestOptions = {},
): Promise<T> {
  const response = await open(connection, path, options);
  if (response.status === 204) return undefined as T;
  const type = response.headers.get("content-type") ?? "no content type";
  const url = urlOf(connection, path, options.query);
  if (!type.startsWith("application/json")) throw new UnexpectedAnswerError(url, response.status, type);
  const answer = await answerOf(url, response, options.signal, (error) => {
    throw new ApiConnectionError(url, error);
  });
  // Every answer of the API is an object.
  if (!isRecord(answer)) throw new UnexpectedAnswerError(url, response.status, "JSON that is no object");
  return answer as T;
}

/** 128 random bits. Not `randomUUID`, which browsers refuse to pages that came over plain HTTP. */
export const randomKey = (): string =>
  Array.from(globalThis.crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");

export interface PageOptions {
  readonly cursor?: string;
  /** Items a page, 1 to 200. */
  readonly limit?: number;
  readonly signal?: AbortSignal;
}

export interface MutationOptions {
  /**
   * The same key with the same body gives the same answer, and acts once. One is made up when it is absent.
   */
  readonly idempotencyKey?: string;
  readonly signal?: AbortSignal;
}
