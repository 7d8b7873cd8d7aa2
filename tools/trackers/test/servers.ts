import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, request as httpRequest, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createServer as createTcpServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@internevo/test-kit";

/** The interpreter that `npm run trackers` has prepared. */
function python(): string {
  const found = process.env["INTERNEVO_TRACKERS_PYTHON"];
  if (found === undefined) throw new Error("run these tests by `npm run trackers`");
  return found;
}

/** Runs a program in Python, and returns what it printed. */
export function runPython(args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync(python(), args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`python ${args.join(" ")} ended with ${status}:\n${stderr}`);
  return stdout;
}

export async function freePort(): Promise<number> {
  const server = createTcpServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

type Json = Record<string, unknown>;

/** A point of a metric, as MLflow has it. */
export interface Point {
  readonly step: number;
  readonly value: number;
  readonly timestamp: number;
}

export interface MlflowRunView {
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly params: Readonly<Record<string, string>>;
  readonly tags: Readonly<Record<string, string>>;
  readonly metrics: readonly string[];
}

const texts = (pairs: unknown): Record<string, string> =>
  Object.fromEntries(
    ((pairs ?? []) as { key: string; value: string }[]).map(({ key, value }) => [key, value]),
  );

/** A real MLflow server, with a database of its own. */
export class MlflowServer {
  readonly port: number;
  readonly #directory = mkdtempSync(join(tmpdir(), "internevo-mlflow-"));
  readonly #process: ChildProcess;
  #log = "";

  constructor(port: number) {
    this.port = port;
    const store = `sqlite:///${join(this.#directory, "mlflow.db")}`;
    this.#process = spawn(
      "setpriv",
      [
        "--pdeathsig",
        "KILL",
        python(),
        "-m",
        "mlflow",
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        String(port),
      ].concat(["--workers", "1", "--backend-store-uri", store, "--artifacts-destination", this.#directory]),
      {
        cwd: this.#directory,
        detached: true,
        env: {
          ...process.env,
          MLFLOW_SERVER_ENABLE_JOB_EXECUTION: "false",
          MLFLOW_DISABLE_TELEMETRY: "true",
        },
        stdio: ["ignore", "pipe", "pipe"],
      },
    );
    for (const stream of [this.#process.stdout, this.#process.stderr])
      stream?.on("data", (chunk: Buffer) => void (this.#log = (this.#log + String(chunk)).slice(-10_000)));
  }

  async untilUp(): Promise<this> {
    const isUp = async (): Promise<boolean> =>
      fetch(`http://127.0.0.1:${this.port}/health`).then(
        ({ ok }) => ok,
        () => false,
      );
    await eventually("MLflow", isUp, 120, () => this.#log);
    return this;
  }

  async #ask(path: string, body?: Json): Promise<Json> {
    const response = await fetch(`http://127.0.0.1:${this.port}/api/2.0/mlflow/${path}`, {
      method: body === undefined ? "GET" : "POST",
      ...(body === undefined
        ? {}
        : { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
    });
    const answer = (await response.json()) as Json;
    if (!response.ok) throw new Error(JSON.stringify(answer));
    return answer;
  }

  /** The runs whose tag has a value; of all experiments. */
  async runs(tag: string, value: string): Promise<MlflowRunView[]> {
    const { experiments } = await this.#ask("experiments/search", { max_results: 100 });
    const { runs } = await this.#ask("runs/search", {
      experiment_ids: (experiments as { experiment_id: string }[]).map(({ experiment_id: id }) => id),
      filter: `tags.\`${tag}\` = '${value}'`,
      max_results: 1000,
    });
    return ((runs ?? []) as { info: Json; data: Json }[]).map(({ info, data }) => ({
      id: String(info["run_id"]),
      name: String(info["run_name"]),
      status: String(info["status"]),
      params: texts(data["params"]),
      tags: texts(data["tags"]),
      metrics: ((data["metrics"] ?? []) as { key: string }[]).map(({ key }) => key),
    }));
  }

  /** Everything that MLflow has of a metric, twice where it has it twice. */
  async history(runId: string, key: string): Promise<Point[]> {
    const points: Point[] = [];
    for (let token = ""; ;) {
      const query = new URLSearchParams({ run_id: runId, metric_key: key, max_results: "1000" });
      if (token !== "") query.set("page_token", token);
      const { metrics, next_page_token: next } = await this.#ask(`metrics/get-history?${query.toString()}`);
      for (const point of (metrics ?? []) as Json[])
        points.push({
          step: Number(point["step"] ?? 0),
          value: Number(point["value"]),
          timestamp: Number(point["timestamp"]),
        });
      if (typeof next !== "string" || next === "") return points.sort((a, b) => a.step - b.step);
      token = next;
    }
  }

  async stop(): Promise<void> {
    const gone = new Promise((resolve) => this.#process.once("close", resolve));
    // Its workers belong to its group.
    process.kill(-(this.#process.pid as number), "SIGKILL");
    await gone;
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

/** What a proxy does with a request. */
export type Fault =
  | { readonly kind: "pass" }
  /** It answers itself, and the server never hears of it. */
  | { readonly kind: "answer"; readonly status: number; readonly body: string }
  /** The server does it, and its answer is lost. */
  | { readonly kind: "lose-answer" }
  | { readonly kind: "silence" }
  | { readonly kind: "delay"; readonly seconds: number };

/** Stands before a server, and does with each request what it is told. */
export class FaultyProxy {
  readonly requests: { readonly path: string; readonly fault: Fault["kind"] }[] = [];
  fault: (path: string, body: string) => Fault | Promise<Fault> = () => ({ kind: "pass" });
  readonly #server: Server;
  readonly #behind: number;

  constructor(behind: number) {
    this.#behind = behind;
    this.#server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on(
        "end",
        () => void this.#handle(request.method, request.url ?? "", Buffer.concat(chunks), response),
      );
      request.on("error", () => {});
    });
  }

  async listen(port = 0): Promise<number> {
    await new Promise<void>((resolve) => this.#server.listen(port, "127.0.0.1", resolve));
    return (this.#server.address() as AddressInfo).port;
  }

  async #handle(
    method: string | undefined,
    url: string,
    body: Buffer,
    response: ServerResponse,
  ): Promise<void> {
    const path = (url.split("?")[0] ?? "").replace("/api/2.0/mlflow/", "");
    const fault = await this.fault(path, String(body));
    this.requests.push({ path, fault: fault.kind });
    if (fault.kind === "silence") return;
    if (fault.kind === "answer") {
      response.writeHead(fault.status, { "content-type": "application/json" }).end(fault.body);
      return;
    }
    if (fault.kind === "delay") await new Promise((resolve) => setTimeout(resolve, 1000 * fault.seconds));
    const call = httpRequest(
      {
        host: "127.0.0.1",
        port: this.#behind,
        method,
        path: url,
        headers: { "content-type": "application/json" },
      },
      (answer) => {
        if (fault.kind === "lose-answer") {
          answer.resume().on("end", () => response.destroy());
          return;
        }
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
      },
    );
    call.on("error", () => response.destroy());
    call.end(body);
  }

  close(): Promise<void> {
    this.#server.closeAllConnections();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }
}
