import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { ProblemError, type ProblemCode } from "@internevo/domain";

const OWN_NATIVE_DIRECTORY = fileURLToPath(new URL("../../../native/dist", import.meta.url));
const STDERR_BOUND = 4000;

/** `internevo-checkpoint` of an installation: `INTERNEVO_NATIVE_DIRECTORY`, else the checkout's. */
export const checkpointTool = (env: NodeJS.ProcessEnv): string =>
  resolve(join(env["INTERNEVO_NATIVE_DIRECTORY"] ?? OWN_NATIVE_DIRECTORY, "bin", "internevo-checkpoint"));

export interface ToolProgress {
  readonly doneBytes: number;
  readonly totalBytes: number;
}

export interface ToolRun {
  readonly path: string;
  readonly args: readonly string[];
  readonly signal: AbortSignal;
  readonly onProgress: (progress: ToolProgress) => void;
}

interface ToolError {
  readonly code: string;
  readonly message: string;
  readonly field?: string;
  readonly value?: unknown;
  readonly remedy?: string;
}

const PROBLEM_CODES: Readonly<Record<string, ProblemCode>> = {
  bad_config: "bad-request",
  plan_unsupported: "plan-invalid",
  checkpoint_error: "data-invalid",
};

const problemOf = (error: ToolError): ProblemError =>
  new ProblemError(
    PROBLEM_CODES[error.code] ?? "internal",
    error.message,
    error.field === undefined
      ? []
      : [
          {
            field: error.field,
            ...(error.value === undefined ? {} : { value: error.value }),
            message: error.message,
            remedy: error.remedy || "see the message",
          },
        ],
  );

/**
 * Runs the native checkpoint tool, which writes progress and then one result or error, as JSON lines.
 * @returns the result event.
 * @throws ProblemError what the tool refused; `unavailable` when it is not installed; `internal` when it ends
 * without a result.
 */
export async function runCheckpointTool(run: ToolRun): Promise<Record<string, unknown>> {
  if (!existsSync(run.path)) {
    throw new ProblemError(
      "unavailable",
      `internevo-checkpoint cannot be started: ${run.path} does not exist`,
      [
        {
          field: "INTERNEVO_NATIVE_DIRECTORY",
          value: run.path,
          message: "holds no such program",
          remedy:
            "build the native programs with `npm run setup`, or point " +
            "INTERNEVO_NATIVE_DIRECTORY to where they are installed",
        },
      ],
    );
  }
  run.signal.throwIfAborted();
  const child = spawn(run.path, [...run.args], { stdio: ["ignore", "pipe", "pipe"] });
  const kill = (): void => void child.kill("SIGTERM");
  run.signal.addEventListener("abort", kill, { once: true });
  const ended = new Promise<string>((settle, fail) => {
    child.once("error", fail);
    child.once("close", (code, signal) => settle(signal ?? `status ${code}`));
  });
  // Awaited below; a failed start must not count as unhandled before that.
  ended.catch(() => undefined);
  let stderr = "";
  child.stderr.on("data", (chunk: Buffer) => (stderr = (stderr + chunk.toString()).slice(-STDERR_BOUND)));
  let result: Record<string, unknown> | undefined;
  let error: ToolError | undefined;
  try {
    for await (const line of createInterface({ input: child.stdout })) {
      const event = JSON.parse(line) as { event: string };
      if (event.event === "progress") run.onProgress(event as ToolProgress & { event: string });
      if (event.event === "result") result = event;
      if (event.event === "error") error = event as unknown as ToolError;
    }
    const how = await ended;
    run.signal.throwIfAborted();
    if (error) throw problemOf(error);
    if (!result)
      throw new ProblemError(
        "internal",
        `internevo-checkpoint ended by ${how} without a result${stderr === "" ? "" : `: ${stderr.trim()}`}`,
      );
    return result;
  } finally {
    run.signal.removeEventListener("abort", kill);
    kill();
  }
}
