import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";

type Json = Record<string, unknown>;

/** A request as it came. */
export interface Recorded {
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  readonly body: Json;
}

interface Reply {
  readonly status: number;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

const missing: Reply = {
  status: 404,
  body: { error_code: "RESOURCE_DOES_NOT_EXIST", message: "no such thing" },
};

/**
 * Keeps requests to MLflow's REST interface, and says yes to them in its words. It is no MLflow: `npm run trackers`
 * has a real one, which is too large for `npm test`.
 */
export class RecordingServer {
  readonly requests: Recorded[] = [];
  /** What is answered instead, where it says something. */
  instead: (request: Recorded) => Reply | undefined = () => undefined;
  readonly #server: Server;

  constructor() {
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", () => {
        const url = new URL(request.url ?? "/", "http://127.0.0.1");
        const text = Buffer.concat(chunks).toString();
        const recorded: Recorded = {
          path: url.pathname.replace("/behind/a/path/api/2.0/mlflow/", ""),
          query: url.searchParams,
          headers: request.headers,
          body: text === "" ? {} : (JSON.parse(text) as Json),
        };
        this.requests.push(recorded);
        const { status, body, headers } = this.instead(recorded) ?? this.#reply(recorded);
        response
          .writeHead(status, { "content-type": "application/json", ...headers })
          .end(typeof body === "string" ? body : JSON.stringify(body));
      });
    });
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/behind/a/path`;
  }

  close(): Promise<void> {
    this.#server.closeAllConnections();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }

  bodies(path: string): Json[] {
    return this.requests.filter((request) => request.path === path).map(({ body }) => body);
  }

  /** The metrics that came for a run, of a name. */
  metrics(runId: string, key: string): Json[] {
    return this.bodies("runs/log-batch")
      .filter((body) => body["run_id"] === runId)
      .flatMap((body) => (body["metrics"] ?? []) as Json[])
      .filter((metric) => metric["key"] === key);
  }

  /** The runs that were made with the tag that a filter names. */
  #found(filter: string): Json[] {
    const [, key, value] = /^tags\.`(.*)` = '(.*)'$/.exec(filter) ?? [];
    return this.bodies("runs/create").flatMap(({ tags }, index) =>
      (tags as Json[]).some((tag) => tag["key"] === key && tag["value"] === value)
        ? [{ info: { run_id: `run-${index + 1}` } }]
        : [],
    );
  }

  #reply({ path, query, body }: Recorded): Reply {
    const made = this.bodies("runs/create").length;
    const replies: Readonly<Record<string, () => Reply>> = {
      "experiments/get-by-name": () => missing,
      "experiments/create": () => ({ status: 200, body: { experiment_id: "7" } }),
      "runs/create": () => ({ status: 200, body: { run: { info: { run_id: `run-${made}` } } } }),
      "runs/search": () => ({ status: 200, body: { runs: this.#found(String(body["filter"])) } }),
      "metrics/get-history": () => ({
        status: 200,
        body: { metrics: this.metrics(query.get("run_id") ?? "", query.get("metric_key") ?? "") },
      }),
    };
    return (replies[path] ?? (() => ({ status: 200, body: {} })))();
  }
}
