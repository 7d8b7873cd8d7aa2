import { readFileSync } from "node:fs";
import type { InternEvoClient } from "@internevo/client";
import { printable, ProblemError } from "@internevo/domain";
import { Command, CommanderError } from "commander";
import { addBackup, addRestore } from "./commands/backup.ts";
import { addAdvice } from "./commands/advice.ts";
import { addArtifacts } from "./commands/artifacts.ts";
import { addCheckpoint } from "./commands/checkpoint.ts";
import { addFrameworks } from "./commands/frameworks.ts";
import { addLogin, addLogout } from "./commands/login.ts";
import { addMemory } from "./commands/memory.ts";
import { addPlan } from "./commands/plan.ts";
import { addCancel, addLogs, addPriority, addPs, addResume, addShow } from "./commands/jobs.ts";
import { addCluster } from "./commands/cluster.ts";
import { addPlanChange } from "./commands/plan-change.ts";
import { addProfile } from "./commands/profile.ts";
import { addProject } from "./commands/project.ts";
import { addReplan } from "./commands/replan.ts";
import { addSimulate } from "./commands/simulate.ts";
import { addDown, addUp } from "./commands/stack.ts";
import { addQuickstart } from "./commands/quickstart.ts";
import { addStatus } from "./commands/status.ts";
import { addClone } from "./commands/clone.ts";
import { addCompare } from "./commands/compare.ts";
import { addSubmit } from "./commands/submit.ts";
import { addToken } from "./commands/token.ts";
import { addAudit } from "./commands/audit.ts";
import { addQueue } from "./commands/queue.ts";
import { addRetention } from "./commands/retention.ts";
import { addUsage } from "./commands/usage.ts";
import { addValidate } from "./commands/validate.ts";
import { addWebhook } from "./commands/webhook.ts";
import { addWhoami } from "./commands/whoami.ts";
import { connect, type Context, type GlobalOptions } from "./context.ts";
import { EXIT, exitCodeOf, InterruptedError, type ExitCode } from "./exit-codes.ts";
import { createOutput, describeError, type OutputStreams } from "./output.ts";
import { withStopSignal } from "./stop-signal.ts";

const version = (
  JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as { version: string }
).version;

/**
 * Errors of the command line itself are JSON too where that is asked for: they are met before the options are
 * read.
 */
const asksForJson = (args: readonly string[]): boolean =>
  args.slice(0, args.includes("--") ? args.indexOf("--") : undefined).includes("--json");

function buildProgram(streams: OutputStreams, json: boolean): Command {
  return new Command("internevo")
    .description(
      "plans, tries and trains long-sequence language models over hybrid parallelism and redundant sharding",
    )
    .version(version)
    .option("--url <url>", "where the API is (INTERNEVO_URL); default: the local stack")
    .option("--token <token>", "bearer token (INTERNEVO_TOKEN); default: the local stack's")
    .option(
      "--data-directory <directory>",
      "the local stack's folder (INTERNEVO_DATA_DIRECTORY); default: .internevo",
    )
    .option("--json", "data as JSON on standard output, errors as JSON on standard error")
    .addHelpText(
      "after",
      `\nExit status: ${Object.entries(EXIT)
        .map(([name, code]) => `${code} ${name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)}`)
        .join(", ")}.`,
    )
    .configureOutput({
      writeOut: (text) => streams.stdout.write(text),
      writeErr: (text) => json || streams.stderr.write(text.split("\n").map(printable).join("\n")),
    })
    .showHelpAfterError("(see --help)")
    .exitOverride();
}

/** Subcommands inherit how errors end, but not when they were added before it was set: it is set for all. */
function endWithErrors(command: Command): void {
  command.exitOverride();
  for (const child of command.commands) endWithErrors(child);
}

/** Every command, as `--help` lists them. */
export function commandLine(streams: OutputStreams, json: boolean, context: Context): Command {
  const program = buildProgram(streams, json);
  for (const add of [
    addQuickstart,
    addUp,
    addDown,
    addStatus,
    addPlan,
    addAdvice,
    addSimulate,
    addMemory,
    addFrameworks,
    addValidate,
    addSubmit,
    addClone,
    addPs,
    addPriority,
    addShow,
    addCompare,
    addLogs,
    addArtifacts,
    addCancel,
    addResume,
    addPlanChange,
    addCluster,
    addProfile,
    addReplan,
    addCheckpoint,
    addProject,
    addQueue,
    addRetention,
    addUsage,
    addLogin,
    addLogout,
    addToken,
    addWebhook,
    addAudit,
    addWhoami,
    addBackup,
    addRestore,
  ])
    add(program, context);
  endWithErrors(program);
  return program;
}

/**
 * What is read of an answer and is not in it, as whoever asked can understand it. Other errors stay as they are.
 * @param asked the API whose answers were read
 */
function asRead(error: unknown, asked: InternEvoClient | undefined): unknown {
  if (asked === undefined || !(error instanceof TypeError || error instanceof RangeError)) return error;
  return new ProblemError(
    "unavailable",
    `an answer of ${asked.baseUrl} is not what this version reads: ${error.message}`,
    [
      {
        field: "--url",
        value: asked.baseUrl,
        message: "may be another program than InternEvo's API, or another version of it",
        remedy:
          "see that the address is right, and use the command line of the API's version; if both are so, this is a " +
          "fault of the command line: report it",
      },
    ],
    { cause: error },
  );
}

/** A second interrupt that comes later ends the program at once. */
const SAME_INTERRUPT_MS = 300;

/**
 * Runs one command line.
 * @returns the exit status; see docs/reference/cli.md.
 */
export async function run(args: readonly string[], streams: OutputStreams): Promise<ExitCode> {
  const stop = new AbortController();
  let interruptedAt = Number.POSITIVE_INFINITY;
  const interrupt = (): void => {
    // What started the program may hand on the signal that the program had from the terminal too.
    if (performance.now() - interruptedAt > SAME_INTERRUPT_MS) process.exit(EXIT.interrupted);
    if (stop.signal.aborted) return;
    interruptedAt = performance.now();
    stop.abort(new InterruptedError());
  };
  const listen = (): void =>
    void process.on("SIGINT", interrupt).on("SIGTERM", interrupt).on("SIGHUP", interrupt);
  const deafen = (): void =>
    void process.off("SIGINT", interrupt).off("SIGTERM", interrupt).off("SIGHUP", interrupt);
  listen();
  let exitCode: ExitCode = EXIT.ok;
  const json = asksForJson(args);
  let asked: InternEvoClient | undefined;
  const options = (): GlobalOptions => program.opts<GlobalOptions>();
  const context: Context = {
    output: () => createOutput(streams, options().json === true),
    client: async () => (asked = await connect(context)),
    options,
    env: streams.env,
    signal: stop.signal,
    setExitCode(code) {
      exitCode = code;
    },
    computing(work) {
      deafen();
      try {
        return work();
      } finally {
        listen();
      }
    },
  };
  const program = commandLine(streams, json, context);
  try {
    await withStopSignal(stop.signal, () => program.parseAsync([...args], { from: "user" }));
    return exitCode;
  } catch (error) {
    const cause: unknown = stop.signal.aborted ? stop.signal.reason : asRead(error, asked);
    // Commander has written its own message, except as JSON; of help that was asked for there is no error.
    if (cause instanceof CommanderError) {
      if (json && cause.exitCode !== 0)
        streams.stderr.write(
          `${describeError(new ProblemError("bad-request", cause.message.replace(/^error: /, "")), true)}\n`,
        );
    } else streams.stderr.write(`${describeError(cause, options().json === true)}\n`);
    return exitCodeOf(cause);
  } finally {
    deafen();
  }
}
