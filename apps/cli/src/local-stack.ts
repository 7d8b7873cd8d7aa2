import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { PROBLEM_CODES, ProblemError, type ProblemDetail } from "@internevo/domain";
import type { LocalStack, StackInfo } from "@internevo/local-stack";
import { DEFAULT_DATA_DIRECTORY } from "./context.ts";
import type { Output } from "./output.ts";

export interface StartedStack {
  readonly stack: LocalStack;
  readonly dataDirectory: string;
  readonly apiUrl: string;
  readonly token: string;
}

export interface StartStackOptions {
  readonly output: Output;
  /**
   * Undefined: `.internevo`, or the next free `.internevo-2`, … when another stack runs there and `nextFree`
   * is set.
   */
  readonly dataDirectory: string | undefined;
  readonly nextFree: boolean;
  /** Ends the start: what has been started is stopped. */
  readonly signal: AbortSignal;
}

const MAXIMUM_STACKS = 50;
const isInUse = (error: unknown): boolean => error instanceof ProblemError && error.code === "conflict";

const MAIN = fileURLToPath(new URL("./main.ts", import.meta.url));

/** The notes of a stack behind the terminal. */
const ownLog = (dataDirectory: string): string => join(dataDirectory, "logs", "up.log");

/** What was written since a log had so many bytes; all of it where the log was emptied meanwhile. */
async function lastWords(path: string, before: number): Promise<Buffer> {
  const all = await readFile(path);
  return all.length < before ? all : all.subarray(before);
}

/**
 * Starts Postgres, NATS and all services. @throws ProblemError `conflict` when another stack uses the
 * directory; `unavailable`; the signal's reason
 */
export async function startStack(options: StartStackOptions): Promise<StartedStack> {
  const { output } = options;
  const { boundOwnLog, productServices, startLocalStack } = await import("@internevo/local-stack");
  const first = options.dataDirectory ?? DEFAULT_DATA_DIRECTORY;
  for (let number = 1; ; number += 1) {
    const dataDirectory = resolve(number === 1 ? first : `${first}-${number}`);
    // What `up --detach` started writes there.
    boundOwnLog(process.stderr, ownLog(dataDirectory));
    output.note(`starting Postgres, NATS and the services in ${dataDirectory}`);
    try {
      const stack = await startLocalStack({
        dataDirectory,
        services: productServices(),
        signal: options.signal,
        onRestart: (source, end, inSeconds) =>
          output.note(
            `${source} ended (${end.signal ?? `status ${end.code}`}); it is started again in ${inSeconds} s`,
          ),
      });
      const { apiUrl, apiToken } = stack.info();
      if (apiUrl === null) {
        await stack.stop();
        throw new ProblemError(
          "unavailable",
          `the API did not say where it listens; see ${dataDirectory}/logs`,
        );
      }
      return { stack, dataDirectory, apiUrl, token: apiToken };
    } catch (error) {
      if (
        !isInUse(error) ||
        !options.nextFree ||
        options.dataDirectory !== undefined ||
        number >= MAXIMUM_STACKS
      )
        throw error;
      output.note(`another stack runs in ${dataDirectory}; the next one is taken`);
    }
  }
}

/** Resolves when the signal aborts. */
export const untilAborted = (signal: AbortSignal): Promise<void> =>
  new Promise((done) => {
    if (signal.aborted) done();
    else signal.addEventListener("abort", () => done(), { once: true });
  });

type ReadyStack = StackInfo & { readonly apiUrl: string };

/** What the program said last, where that is an error as it says them with `--json`. */
function problemIn(text: string, otherwise: string): Error {
  try {
    const { code, message, errors } = (
      JSON.parse(text.trim().split("\n").at(-1) ?? "") as {
        error: { code: string; message: string; errors?: ProblemDetail[] };
      }
    ).error;
    const known = PROBLEM_CODES.find((one) => one === code);
    return known === undefined ? new Error(message) : new ProblemError(known, message, errors);
  } catch (error) {
    // Not its own words, as where it was killed.
    return new ProblemError(
      "unavailable",
      `${otherwise}: ${text.trim().split("\n").slice(-5).join("\n")}`,
      [],
      { cause: error },
    );
  }
}

/**
 * Starts the stack as a process in a session of its own, which no terminal ends, and waits until it is ready.
 * Its notes go to `logs/up.log`.
 * @throws ProblemError as {@link startStack}; the signal's reason, when the stack is gone again
 */
export async function startDetachedStack({
  output,
  dataDirectory: given,
  signal,
}: Omit<StartStackOptions, "nextFree"> & { readonly dataDirectory: string }): Promise<{
  readonly info: ReadyStack;
  readonly dataDirectory: string;
}> {
  const { makeDataDirectory, readStackInfo } = await import("@internevo/local-stack");
  const dataDirectory = resolve(given);
  makeDataDirectory(dataDirectory);
  const path = ownLog(dataDirectory);
  const log = openSync(path, "a", 0o600);
  const { size: before } = await stat(path);
  const child = spawn(
    process.execPath,
    [...process.execArgv, MAIN, "up", "--json", "--data-directory", dataDirectory],
    { detached: true, stdio: ["ignore", "ignore", log] },
  );
  closeSync(log);
  const ended = once(child, "exit") as Promise<[code: number | null, signal: NodeJS.Signals | null]>;
  let end: { readonly how: string } | undefined;
  void ended.then(
    ([code, by]) => (end = { how: by ?? `status ${code}` }),
    (error: Error) => (end = { how: error.message }),
  );
  output.note(`starting Postgres, NATS and the services in ${dataDirectory}`);
  for (;;) {
    const info = readStackInfo(dataDirectory);
    if (info !== undefined && info.pid === child.pid && info.readyAt !== null && info.apiUrl !== null) {
      child.unref();
      return { info: { ...info, apiUrl: info.apiUrl }, dataDirectory };
    }
    if (end !== undefined)
      throw problemIn(
        (await lastWords(path, before)).toString(),
        `the stack ended (${end.how}) before it was ready`,
      );
    if (signal.aborted) {
      child.kill("SIGTERM");
      await ended;
      throw signal.reason;
    }
    await sleep(50);
  }
}
