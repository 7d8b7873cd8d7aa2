import { SendError } from "../tracker.ts";

export interface ServerSettings {
  /** Where MLflow is, for example https://mlflow.example.org; a path before `/api` is kept. */
  readonly url: string;
  readonly token?: string | undefined;
  readonly user?: string | undefined;
  readonly password?: string | undefined;
  /** For one request and its answer. */
  readonly timeoutSeconds: number;
}

/** MLflow said no. */
export class MlflowError extends SendError {
  readonly status: number;
  /** MLflow's own, for example RESOURCE_DOES_NOT_EXIST. */
  readonly code: string;

  constructor(status: number, code: string, message: string, retryAfterSeconds: number | null) {
    super(message, retryAfterSeconds);
    this.name = "MlflowError";
    this.status = status;
    this.code = code;
  }
}

/** A page of a metric's history is some hundred kilobytes. */
const LONGEST_ANSWER_BYTES = 16 * 2 ** 20;
const EXCERPT_CHARACTERS = 200;

export type Json = Readonly<Record<string, unknown>>;

function authorization({ token, user, password }: ServerSettings): Record<string, string> {
  if (token !== undefined) return { authorization: `Bearer ${token}` };
  if (user === undefined) return {};
  return { authorization: `Basic ${Buffer.from(`${user}:${password ?? ""}`).toString("base64")}` };
}

/** Reads no more than is sensible, however much comes. */
async function bodyOf(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  if (response.body !== null)
    for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes > LONGEST_ANSWER_BYTES)
        throw new SendError(`MLflow's answer is longer than ${LONGEST_ANSWER_BYTES} bytes`);
    }
  return Buffer.concat(chunks).toString("utf8");
}

function objectOf(body: string): Json | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : undefined;
  } catch {
    return undefined;
  }
}

/** Why `fetch` failed, in the words of what lies below it. */
function causeOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  if (cause instanceof AggregateError) return causeOf(cause.errors[0]);
  return cause instanceof Error ? causeOf(cause) : error.message;
}

const textOf = (value: unknown): string => (typeof value === "string" ? value : "");

/** Requests to an MLflow server's REST interface. */
export class MlflowClient {
  readonly #settings: ServerSettings;
  readonly #base: string;

  constructor(settings: ServerSettings) {
    this.#settings = settings;
    this.#base = `${settings.url.replace(/\/+$/, "")}/api/2.0/mlflow`;
  }

  get(path: string, query: Readonly<Record<string, string>>, signal: AbortSignal): Promise<Json> {
    return this.#ask("GET", `${path}?${new URLSearchParams(query).toString()}`, undefined, signal);
  }

  post(path: string, body: Json, signal: AbortSignal): Promise<Json> {
    return this.#ask("POST", path, JSON.stringify(body), signal);
  }

  /** @throws SendError for whatever is no answer of MLflow; MlflowError for one that says no */
  async #ask(method: string, path: string, body: string | undefined, signal: AbortSignal): Promise<Json> {
    const { timeoutSeconds } = this.#settings;
    const late = AbortSignal.timeout(1000 * timeoutSeconds);
    let response: Response;
    let text: string;
    try {
      response = await fetch(`${this.#base}/${path}`, {
        method,
        headers: { "content-type": "application/json", ...authorization(this.#settings) },
        ...(body === undefined ? {} : { body }),
        redirect: "manual",
        signal: AbortSignal.any([signal, late]),
      });
      text = await bodyOf(response);
    } catch (error) {
      if (error instanceof SendError) throw error;
      const why = late.aborted ? `no answer within ${timeoutSeconds} s` : causeOf(error);
      throw new SendError(`MLflow at ${this.#settings.url}: ${why}`);
    }
    return this.#checked(path, response, text);
  }

  #checked(path: string, response: Response, text: string): Json {
    const { status, headers } = response;
    const answer = objectOf(text);
    if (status === 200 && answer !== undefined) return answer;
    const retryAfter = Number(headers.get("retry-after") ?? Number.NaN);
    const code = textOf(answer?.["error_code"]);
    const said = textOf(answer?.["message"]) || text.slice(0, EXCERPT_CHARACTERS);
    const remedies: Readonly<Record<number, string>> = {
      200: "is it MLflow, and not a page for signing in?",
      401: "check token, or user and password",
      403: "may its user write to the experiment?",
    };
    const isRedirect = status >= 300 && status <= 399;
    const remedy = isRedirect ? "redirects are not followed: give the address itself" : remedies[status];
    throw new MlflowError(
      status,
      code,
      [`MLflow answered ${path.split("?")[0] ?? path} with ${status}`, code, said, remedy]
        .filter(Boolean)
        .join(": "),
      Number.isFinite(retryAfter) ? retryAfter : null,
    );
  }
}
