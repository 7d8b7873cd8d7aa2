import { resolve } from "node:path";
import { ProblemError } from "@internevo/domain";
import type { LocalStack } from "@internevo/local-stack";
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
  /** Undefined: `.internevo`, or the next free `.internevo-2`, … when another stack runs there and `nextFree` is set. */
  readonly dataDirectory: string | undefined;
  readonly nextFree: boolean;
}

const MAXIMUM_STACKS = 50;
const isInUse = (error: unknown): boolean => error instanceof ProblemError && error.code === "conflict";

/** Starts Postgres, NATS and all services. @throws ProblemError `conflict` when another stack uses the directory; `unavailable` */
export async function startStack(options: StartStackOptions): Promise<StartedStack> {
  const { output } = options;
  const { productServices, startLocalStack } = await import("@internevo/local-stack");
  const first = options.dataDirectory ?? DEFAULT_DATA_DIRECTORY;
  for (let number = 1; ; number += 1) {
    const dataDirectory = resolve(number === 1 ? first : `${first}-${number}`);
    output.note(`starting Postgres, NATS and the services in ${dataDirectory}`);
    try {
      const stack = await startLocalStack({
        dataDirectory,
        services: productServices(),
        onRestart: (source, end, inSeconds) => output.note(`${source} ended (${end.signal ?? `status ${end.code}`}); it is started again in ${inSeconds} s`),
      });
      const { apiUrl, apiToken } = stack.info();
      if (apiUrl === null) {
        await stack.stop();
        throw new ProblemError("unavailable", `the API did not say where it listens; see ${dataDirectory}/logs`);
      }
      return { stack, dataDirectory, apiUrl, token: apiToken };
    } catch (error) {
      if (!isInUse(error) || !options.nextFree || options.dataDirectory !== undefined || number >= MAXIMUM_STACKS) throw error;
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
