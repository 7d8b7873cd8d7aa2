import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { createTestDatabase, madeOnce, testStack, type TestDatabase } from "@internevo/test-kit/stack";
import { newToken, storeToken } from "@internevo/store";
import { chromium, type Browser } from "playwright-core";

const CONSOLE = fileURLToPath(new URL("..", import.meta.url));
const API = fileURLToPath(new URL("../../api/src/main.ts", import.meta.url));
const CHROMIUM = "/usr/bin/chromium";
const CHROMIUM_FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  // What moves is drawn by the processor here, for as long as a page is open.
  "--force-prefers-reduced-motion",
];

const ended = (child: ChildProcess): Promise<number | null> =>
  new Promise((resolve) =>
    child.exitCode !== null || child.signalCode !== null
      ? resolve(child.exitCode)
      : child.once("exit", resolve),
  );

/** Builds the console as it ships. */
async function buildConsole(directory: string): Promise<void> {
  const vite = join(dirname(createRequire(import.meta.url).resolve("vite/package.json")), "bin", "vite.js");
  const { NODE_ENV: _test, ...environment } = process.env;
  const child = spawn(process.execPath, [vite, "build", "--outDir", directory, "--logLevel", "warn"], {
    cwd: CONSOLE,
    env: environment,
    stdio: ["ignore", "inherit", "inherit"],
  });
  const status = await ended(child);
  if (status !== 0) throw new Error(`vite build ended with ${status}`);
}

export interface RunningApi {
  readonly url: string;
  stop(signal?: NodeJS.Signals): Promise<void>;
}

/** The API as it is deployed: a process of its own. */
async function startApi(
  database: TestDatabase,
  consoleDirectory: string,
  dataDirectory: string,
  port: number,
  settings: Readonly<Record<string, string>>,
): Promise<RunningApi> {
  const child = spawn(process.execPath, [API], {
    stdio: ["ignore", "pipe", "inherit"],
    env: {
      ...process.env,
      NODE_ENV: "production",
      DATABASE_URL: database.url,
      NATS_URL: testStack().natsUrl,
      INTERNEVO_NAMESPACE: `console-${randomUUID().slice(0, 8)}`,
      INTERNEVO_API_PORT: String(port),
      INTERNEVO_API_TOKEN: newToken(),
      INTERNEVO_API_CONSOLE_DIRECTORY: consoleDirectory,
      INTERNEVO_DATA_DIRECTORY: dataDirectory,
      INTERNEVO_API_REQUESTS_PER_MINUTE: "100000",
      ...settings,
      INTERNEVO_API_MAXIMUM_EVENT_LOOP_DELAY_MS: "0", // a machine that gives its processor to others is not what these tests are about
    },
  });
  const url = await new Promise<string>((resolve, reject) => {
    child.once("exit", (status) => reject(new Error(`the API ended with ${status} before it was ready`)));
    createInterface({ input: child.stdout }).on("line", (line) => {
      const entry = JSON.parse(line) as { event?: string; apiUrl?: string };
      if (entry.event === "ready" && entry.apiUrl !== undefined) resolve(entry.apiUrl);
    });
  });
  return {
    url,
    async stop(signal = "SIGTERM") {
      child.kill(signal);
      await ended(child);
    },
  };
}

export interface ConsoleStack {
  readonly url: string;
  /** Of the API: where its jobs keep their files. */
  readonly dataDirectory: string;
  readonly database: TestDatabase["database"];
  readonly browser: Browser;
  readonly tokens: Readonly<Record<"admin" | "viewer", string>>;
  /** Ends the API at once, as a crash does. */
  killApi(): Promise<void>;
  /** Starts it again at the same address. */
  restartApi(): Promise<void>;
  close(): Promise<void>;
}

/**
 * The built console, served by a real API over a real database, and a real browser. @param settings of the API,
 * beyond those that every test has
 */
export async function startConsoleStack(
  settings: Readonly<Record<string, string>> = {},
): Promise<ConsoleStack> {
  if (!existsSync(CHROMIUM)) throw new Error(`${CHROMIUM} is missing: apt-get install chromium`);
  const dataDirectory = mkdtempSync(join(tmpdir(), "internevo-console-data-"));
  const database = await createTestDatabase();
  const directory = await madeOnce("console", buildConsole);
  const tokens = { admin: newToken(), viewer: newToken() };
  await storeToken(database.database.db, "ada", "admin", tokens.admin);
  await storeToken(database.database.db, "vic", "viewer", tokens.viewer);
  let api = await startApi(database, directory, dataDirectory, 0, settings);
  const { url } = api;
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: CHROMIUM_FLAGS });
  return {
    url,
    dataDirectory,
    database: database.database,
    browser,
    tokens,
    killApi: () => api.stop("SIGKILL"),
    async restartApi() {
      api = await startApi(database, directory, dataDirectory, Number(new URL(url).port), settings);
    },
    async close() {
      await browser.close();
      await api.stop();
      await database.drop();
      rmSync(dataDirectory, { recursive: true, force: true });
    },
  };
}
