import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ProblemError } from "@internevo/domain";
import type { Command } from "commander";
import { dataDirectoryOf, DEFAULT_DATA_DIRECTORY, type Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { startDetachedStack, startStack, untilAborted } from "../local-stack.ts";
import type { Output } from "../output.ts";

/** A service may take this long to end, Postgres and NATS after it. */
const STOP_SECONDS = 60;

interface RunningStack {
  readonly apiUrl: string;
  readonly token: string;
  readonly dataDirectory: string;
  readonly pid: number;
}

/** Where a stack is, and the link that signs one in. @param more what the document says besides */
export function showStack(
  { apiUrl, token, dataDirectory, pid }: RunningStack,
  output: Output,
  more: Readonly<Record<string, unknown>> = {},
): void {
  if (output.json)
    output.document({
      consoleUrl: `${apiUrl}/`,
      apiUrl: `${apiUrl}/api/v1`,
      documentationUrl: `${apiUrl}/docs`,
      token,
      dataDirectory,
      pid,
      ...more,
    });
  else
    for (const [name, value] of [
      ["console", `${apiUrl}/#token=${token}`],
      ["API", `${apiUrl}/api/v1`],
      ["docs", `${apiUrl}/docs`],
      ["token", token],
    ])
      output.data(`${`${name}`.padEnd(8)} ${value}`);
}

/** The stack that runs in a directory; one that is starting is waited for, until it is ready or gone. */
async function findReadyStack(directory: string, signal: AbortSignal): Promise<RunningStack | undefined> {
  const { readStackInfo } = await import("@internevo/local-stack");
  const dataDirectory = resolve(directory);
  for (;;) {
    signal.throwIfAborted();
    const info = readStackInfo(dataDirectory);
    if (info === undefined) return undefined;
    if (info.readyAt !== null && info.apiUrl !== null)
      return { apiUrl: info.apiUrl, token: info.apiToken, dataDirectory, pid: info.pid };
    await sleep(100);
  }
}

export function addUp(program: Command, context: Context): void {
  program
    .command("up")
    .description(
      "start the local stack: Postgres, NATS and all services; in the foreground, where Ctrl-C stops it",
    )
    .option(
      "--detach",
      "return when it is ready, or tell where it is if it runs already; " +
        "it runs on, also when the terminal is closed, until `internevo down`",
    )
    .addHelpText(
      "after",
      () => `
Data directory: everything that the stack keeps is in ${DEFAULT_DATA_DIRECTORY} of the current directory.
Choose another with --data-directory DIR or INTERNEVO_DATA_DIRECTORY; the other commands then need the same.
At present: ${resolve(dataDirectoryOf(context))}`,
    )
    .action(async ({ detach }: { detach?: boolean }) => {
      const output = context.output();
      const { signal } = context;
      if (detach === true) {
        const running = await findReadyStack(dataDirectoryOf(context), signal);
        if (running !== undefined) {
          showStack(running, output);
          output.note(
            `it runs already, as process ${running.pid}; \`internevo status\` says how ` +
              `it is, \`internevo down --data-directory ${running.dataDirectory}\` stops it`,
          );
          return;
        }
        const { info, dataDirectory } = await startDetachedStack({
          output,
          dataDirectory: dataDirectoryOf(context),
          signal,
        });
        showStack({ apiUrl: info.apiUrl, token: info.apiToken, dataDirectory, pid: info.pid }, output);
        output.note(
          `it runs on as process ${info.pid}; \`internevo down ` +
            `--data-directory ${dataDirectory}\` stops it; what it did is kept`,
        );
        return;
      }
      const started = await startStack({
        output,
        dataDirectory: dataDirectoryOf(context),
        nextFree: false,
        signal,
      });
      try {
        showStack({ ...started, pid: process.pid }, output);
        output.note(
          `Ctrl-C, or \`internevo down --data-directory ${started.dataDirectory}\`, stops it; what it did is kept`,
        );
        await untilAborted(AbortSignal.any([signal, started.stack.lost]));
        output.note("stopping");
        started.stack.lost.throwIfAborted();
      } finally {
        await started.stack.stop();
      }
      context.setExitCode(EXIT.ok);
    });
}

export function addDown(program: Command, context: Context): void {
  program
    .command("down")
    .description("stop the local stack of a data directory")
    .action(async () => {
      const output = context.output();
      const { askToEnd, readStackInfo, supervisorLives } = await import("@internevo/local-stack");
      const directory = resolve(dataDirectoryOf(context));
      const info = readStackInfo(directory);
      if (info === undefined) {
        output.note(`no local stack runs in ${directory}`);
        if (output.json) output.document({ stopped: false, dataDirectory: directory });
        return;
      }
      askToEnd(info.pid, "SIGTERM");
      const deadline = Date.now() + STOP_SECONDS * 1000;
      // It is not a child of this process, and its record goes before it does.
      while (supervisorLives(info)) {
        context.signal.throwIfAborted();
        if (Date.now() > deadline)
          throw new ProblemError("unavailable", `process ${info.pid} did not stop within ${STOP_SECONDS} s`, [
            {
              field: "--data-directory",
              value: directory,
              message: "is still in use",
              remedy: `see ${directory}/logs`,
            },
          ]);
        await sleep(100);
      }
      if (output.json) output.document({ stopped: true, dataDirectory: directory, pid: info.pid });
      else output.data(`stopped ${directory}`);
    });
}
