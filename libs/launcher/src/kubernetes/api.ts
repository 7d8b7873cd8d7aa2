import { createHash } from "node:crypto";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest, type RequestOptions } from "node:https";
import { KubeConfig } from "@kubernetes/client-node";
import { LineSplitter } from "../process/lines.ts";
import type { KubernetesSettings } from "./settings.ts";

const ANSWER_MILLISECONDS = 20_000;
/** An object of the API is smaller than etcd's bound on a request, a list of pods is not. */
const MOST_LINE_BYTES = 1 << 26;

/** The API server gives no answer: it may have heard the question. */
export class KubernetesAwayError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = "KubernetesAwayError";
  }
}

/** The API server has answered, and refuses. */
export class KubernetesRefusalError extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.name = "KubernetesRefusalError";
    this.status = status;
  }
}

export interface Question {
  readonly method?: "GET" | "PATCH" | "DELETE";
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  readonly contentType?: string;
}

interface Status {
  readonly message?: string;
  readonly details?: { readonly causes?: readonly { readonly message?: string }[] };
}

/** Answers after which the same question may have another one. */
const isPassing = (status: number): boolean =>
  status === 401 || status === 408 || status === 409 || status === 429 || status >= 500;

/** A webhook or aggregated API that is down answers as the server's own failure; one that refuses does not. */
function errorOf(status: number, said: string): Error {
  let told: Status = {};
  try {
    told = JSON.parse(said) as Status;
  } catch {
    // A proxy before the server says it in its own words.
  }
  const words = told.message ?? `status ${status}: ${said.slice(0, 200)}`;
  return isPassing(status) ? new KubernetesAwayError(words) : new KubernetesRefusalError(status, words);
}

/** The API server of a cluster. */
export class KubernetesApi {
  readonly #config: KubeConfig;

  /** @throws KubernetesAwayError where the kubeconfig cannot be read or names no server. */
  constructor({ kubeconfig, context }: Pick<KubernetesSettings, "kubeconfig" | "context">) {
    this.#config = new KubeConfig();
    try {
      if (kubeconfig === undefined) this.#config.loadFromCluster();
      else this.#config.loadFromFile(kubeconfig);
    } catch (error) {
      throw new KubernetesAwayError(
        `the kubeconfig ${kubeconfig ?? "of this pod"} cannot be read: ${(error as Error).message}`,
        { cause: error },
      );
    }
    if (context !== undefined) this.#config.setCurrentContext(context);
    if (!this.#config.getCurrentCluster())
      throw new KubernetesAwayError(`the kubeconfig ${kubeconfig ?? ""} names no cluster`);
  }

  /** The same for all that reach the same server in the same way, and for no others. */
  get identity(): string {
    const how = [this.#config.getCurrentContext(), this.#config.exportConfig()];
    return createHash("sha256").update(JSON.stringify(how)).digest("hex");
  }

  async #open(question: Question, signal: AbortSignal): Promise<IncomingMessage> {
    const { method = "GET", path, query = {}, body, contentType = "application/json" } = question;
    const target = new URL((this.#config.getCurrentCluster()?.server ?? "").replace(/\/$/, "") + path);
    for (const [name, value] of Object.entries(query)) target.searchParams.set(name, value);
    const text = body === undefined ? undefined : JSON.stringify(body);
    const options: RequestOptions = {
      method,
      signal,
      headers: {
        accept: "application/json",
        ...(text === undefined
          ? {}
          : { "content-type": contentType, "content-length": Buffer.byteLength(text) }),
      },
    };
    try {
      await this.#config.applyToHTTPSOptions(options);
    } catch (error) {
      throw new KubernetesAwayError(`no credentials: ${(error as Error).message}`, { cause: error });
    }
    return new Promise((resolve, reject) => {
      const asked = (target.protocol === "http:" ? httpRequest : httpsRequest)(target, options, resolve);
      asked.once("error", (error: NodeJS.ErrnoException) =>
        reject(new KubernetesAwayError(error.message || (error.code ?? "no answer"), { cause: error })),
      );
      asked.end(text);
    });
  }

  /** @returns the object that is answered. @throws KubernetesAwayError, KubernetesRefusalError */
  async ask<T>(question: Question): Promise<T> {
    const answer = await this.#open(question, AbortSignal.timeout(ANSWER_MILLISECONDS));
    const said = await whole(answer);
    const status = answer.statusCode ?? 0;
    if (status >= 400) throw errorOf(status, said);
    try {
      return JSON.parse(said) as T;
    } catch (error) {
      throw new KubernetesAwayError(`it answers ${status} and no JSON: ${said.slice(0, 200)}`, {
        cause: error,
      });
    }
  }

  /** The same for an object that need not be there. @returns undefined where it is not. */
  async find<T>(question: Question): Promise<T | undefined> {
    try {
      return await this.ask<T>(question);
    } catch (error) {
      if (error instanceof KubernetesRefusalError && error.status === 404) return undefined;
      throw error;
    }
  }

  /** Tells every line of an answer that goes on, until its end. @throws as {@link ask}. */
  async lines(
    question: Question,
    signal: AbortSignal,
    { onOpen, onLine }: { readonly onOpen: () => void; readonly onLine: (line: string) => void },
  ): Promise<void> {
    const answer = await this.#open(question, signal);
    const status = answer.statusCode ?? 0;
    if (status >= 400) throw errorOf(status, await whole(answer));
    onOpen();
    const lines = new LineSplitter({
      onLine,
      onOverlong: () => answer.destroy(new Error("a line of the watch is too long")),
      boundBytes: MOST_LINE_BYTES,
    });
    try {
      for await (const chunk of answer) lines.push(chunk as Buffer);
    } catch (error) {
      throw new KubernetesAwayError((error as Error).message, { cause: error });
    }
  }
}

async function whole(answer: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of answer) chunks.push(chunk as Buffer);
  } catch (error) {
    throw new KubernetesAwayError((error as Error).message, { cause: error });
  }
  return Buffer.concat(chunks).toString("utf8");
}
