import { resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ProblemError } from "@internevo/domain";
import type { Command } from "commander";
import { dataDirectoryOf, type Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { startStack, untilAborted } from "../local-stack.ts";

/** A service may take this long to end, Postgres and NATS after it. */
const STOP_SECONDS = 60;

export function addUp(program: Command, context: Context): void {
  program
    .command("up")
    .description("start the local stack in the foreground: Postgres, NATS and all services; Ctrl-C stops it")
    .action(async () => {
      const output = context.output();
      const started = await startStack({ output, dataDirectory: dataDirectoryOf(context), nextFree: false });
      try {
        const { apiUrl, token, dataDirectory } = started;
        if (output.json) output.document({ consoleUrl: `${apiUrl}/`, apiUrl: `${apiUrl}/api/v1`, documentationUrl: `${apiUrl}/docs`, token, dataDirectory, pid: process.pid });
        else for (const [name, value] of [["console", `${apiUrl}/#token=${token}`], ["API", `${apiUrl}/api/v1`], ["docs", `${apiUrl}/docs`], ["token", token]]) output.data(`${`${name}`.padEnd(8)} ${value}`);
        output.note(`Ctrl-C, or \`internevo down --data-directory ${dataDirectory}\`, stops it; what it did is kept`);
        await untilAborted(AbortSignal.any([context.signal, started.stack.lost]));
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
      const { readStackInfo } = await import("@internevo/local-stack");
      const directory = resolve(dataDirectoryOf(context));
      const info = readStackInfo(directory);
      if (info === undefined) {
        output.note(`no local stack runs in ${directory}`);
        if (output.json) output.document({ stopped: false, dataDirectory: directory });
        return;
      }
      process.kill(info.pid, "SIGTERM");
      const deadline = Date.now() + STOP_SECONDS * 1000;
      // It is not a child of this process: only its record says that it has gone.
      while (readStackInfo(directory)?.pid === info.pid) {
        context.signal.throwIfAborted();
        if (Date.now() > deadline) throw new ProblemError("unavailable", `process ${info.pid} did not stop within ${STOP_SECONDS} s`, [{ field: "--data-directory", value: directory, message: "is still in use", remedy: `see ${directory}/logs` }]);
        await sleep(100);
      }
      if (output.json) output.document({ stopped: true, dataDirectory: directory, pid: info.pid });
      else output.data(`stopped ${directory}`);
    });
}
