import { spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { TestDatabase } from "@internevo/test-kit/stack";
import { testStack } from "@internevo/test-kit/stack";
import { newToken } from "@internevo/store";

export const BIN = fileURLToPath(new URL("../bin/internevo.mjs", import.meta.url));
const API = fileURLToPath(new URL("../../api/src/main.ts", import.meta.url));

export interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}
export interface Started {
  readonly child: ChildProcess;
  readonly stdout: () => string;
  readonly stderr: () => string;
  /** Resolves when the output contains the text; rejects when the process ends before. */
  readonly says: (stream: "stdout" | "stderr", text: string) => Promise<void>;
  readonly ended: Promise<Ended>;
}

/** The command line as a process of its own. */
export function start(
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
  options: { readonly cwd?: string; readonly input?: string } = {},
): Started {
  const child = spawn(process.execPath, [BIN, ...args], {
    env: {
      PATH: process.env["PATH"],
      HOME: process.env["HOME"],
      INTERNEVO_MACHINE_DIRECTORY: process.env["INTERNEVO_MACHINE_DIRECTORY"],
      ...env,
    },
    cwd: options.cwd,
    stdio: ["pipe", "pipe", "pipe"],
  });
  const text = { stdout: "", stderr: "" };
  const watchers = new Set<() => void>();
  for (const stream of ["stdout", "stderr"] as const) {
    child[stream].setEncoding("utf8").on("data", (chunk: string) => {
      text[stream] += chunk;
      for (const watch of watchers) watch();
    });
  }
  child.stdin.end(options.input ?? "");
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (status) => resolve({ status, ...text }));
  });
  return {
    child,
    stdout: () => text.stdout,
    stderr: () => text.stderr,
    says: (stream, wanted) =>
      new Promise((resolve, reject) => {
        const watch = (): void => {
          if (!text[stream].includes(wanted)) return;
          watchers.delete(watch);
          resolve();
        };
        watchers.add(watch);
        watch();
        void ended.then((end) =>
          reject(
            new Error(`it ended with ${end.status} before it said ${wanted}:\n${end.stdout}\n${end.stderr}`),
          ),
        );
      }),
    ended,
  };
}

export const run = (
  args: readonly string[],
  env?: NodeJS.ProcessEnv,
  options?: { readonly cwd?: string; readonly input?: string },
): Promise<Ended> => start(args, env, options).ended;

export interface ApiProcess {
  readonly url: string;
  readonly token: string;
  stop(): Promise<void>;
}

/** The API service as a process of its own, over a test's database. */
export async function startApiProcess(
  database: TestDatabase,
  settings: NodeJS.ProcessEnv = {},
): Promise<ApiProcess> {
  const token = newToken();
  const env = {
    ...process.env,
    DATABASE_URL: database.url,
    NATS_URL: testStack().natsUrl,
    INTERNEVO_NAMESPACE: `cli-${token.slice(5, 13)}`,
    INTERNEVO_API_PORT: "0",
    INTERNEVO_API_TOKEN: token,
    ...settings,
  };
  const child = spawn(process.execPath, [API], { env, stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const url = await new Promise<string>((resolve, reject) => {
    createInterface({ input: child.stdout }).on("line", (line) => {
      if (line.includes('"event":"ready"')) resolve((JSON.parse(line) as { apiUrl: string }).apiUrl);
    });
    void ended.then(() => reject(new Error("the API ended before it was ready")));
  });
  return {
    url,
    token,
    async stop() {
      child.kill("SIGTERM");
      await ended;
    },
  };
}
