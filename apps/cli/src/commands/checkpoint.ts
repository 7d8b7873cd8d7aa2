import { existsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { diskOf, marginBytes } from "@internevo/data";
import { formatBytes, ProblemError } from "@internevo/domain";
import { Option, type Command } from "commander";
import { integerArgument } from "../arguments.ts";
import {
  inspectionText,
  verificationText,
  writtenText,
  type Inspection,
  type Verification,
  type Written,
} from "../checkpoint-view.ts";
import type { Context } from "../context.ts";
import { EXIT, type ExitCode } from "../exit-codes.ts";
import { checkpointTool, runCheckpointTool } from "../native-tool.ts";
import type { Output } from "../output.ts";

/**
 * Runs the tool with progress for a terminal. @throws ProblemError `not-found` when `directory` does not
 * exist.
 */
async function runTool<T>(
  context: Context,
  command: string,
  directory: string,
  args: readonly string[],
): Promise<T> {
  const path = resolve(directory);
  if (!existsSync(path))
    throw new ProblemError("not-found", `${path} does not exist`, [
      {
        field: "directory",
        value: directory,
        message: "does not exist",
        remedy: "give the directory of a checkpoint, or of a run's checkpoints",
      },
    ]);
  const output = context.output();
  const result = await runCheckpointTool({
    path: checkpointTool(context.env),
    args: [command, path, ...args],
    signal: context.signal,
    onProgress: ({ doneBytes, totalBytes }) =>
      output.status(
        `${command} ${((100 * doneBytes) / Math.max(1, totalBytes)).toFixed(0)}% of ${formatBytes(totalBytes)}`,
      ),
  });
  output.status("");
  const { event: _event, command: _command, ...rest } = result;
  return rest as T;
}

/** What the tool is told to write, and the bytes that it leaves free of that disk. */
async function target(out: string): Promise<string[]> {
  const path = resolve(out);
  let directory = dirname(path);
  while (!existsSync(directory)) directory = dirname(directory);
  const margin = Math.floor(marginBytes(await diskOf(directory)));
  return [path, ...(margin > 0 ? ["--leave-free-bytes", String(margin)] : [])];
}

function showWritten(written: Written, what: string, output: Output): ExitCode {
  if (output.json) output.document(written);
  else output.data(writtenText(written, what));
  return EXIT.ok;
}

interface ReshardOptions {
  readonly plan?: string;
  readonly files?: number;
}

export function addCheckpoint(program: Command, context: Context): void {
  const checkpoint = program
    .command("checkpoint")
    .description("what a training run saved: look, check, cut anew, export");
  addInspect(checkpoint, context);
  addVerify(checkpoint, context);
  addReshard(checkpoint, context);
  addExport(checkpoint, context);
  addImport(checkpoint, context);
}

function addInspect(checkpoint: Command, context: Context): void {
  checkpoint
    .command("inspect")
    .description(
      "step, plan, files and tensors of a checkpoint; the list of a run's; the model of a Hugging Face folder",
    )
    .argument("<directory>", "a checkpoint, the directory of a run's checkpoints, or a Hugging Face folder")
    .action(async (directory: string) => {
      const output = context.output();
      const found = await runTool<Inspection>(context, "inspect", directory, []);
      if (output.json) output.document(found);
      else output.data(inspectionText(found, output.colors));
    });
}

function addVerify(checkpoint: Command, context: Context): void {
  checkpoint
    .command("verify")
    .description(
      "check every checksum, and that the slices are every tensor exactly once; status 1 when something is damaged",
    )
    .argument("<directory>", "a checkpoint, or the directory of a run's checkpoints")
    .action(async (directory: string) => {
      const output = context.output();
      const found = await runTool<Verification>(context, "verify", directory, []);
      if (output.json) output.document(found);
      else output.data(verificationText(found, output.colors));
      context.setExitCode(found.ok ? EXIT.ok : EXIT.failed);
    });
}

function addReshard(checkpoint: Command, context: Context): void {
  checkpoint
    .command("reshard")
    .description(
      "write a checkpoint once more, cut for another plan or into so many files; a run needs it not: it loads any",
    )
    .argument("<directory>", "a checkpoint, or the directory of a run's checkpoints (then the latest)")
    .argument("<output>", "directory to write; must not exist")
    .addOption(
      new Option("--plan <file>", "JSON file of a plan: files as its ranks would write them").conflicts(
        "files",
      ),
    )
    .option("--files <n>", "so many files of equal size", integerArgument(1, 100_000))
    .action(async (directory: string, out: string, options: ReshardOptions) => {
      const args = [
        ...(options.plan === undefined ? [] : ["--plan", resolve(options.plan)]),
        ...(options.files === undefined ? [] : ["--files", String(options.files)]),
      ];
      context.setExitCode(
        showWritten(
          await runTool<Written>(context, "reshard", directory, [...(await target(out)), ...args]),
          "wrote",
          context.output(),
        ),
      );
    });
}

function addExport(checkpoint: Command, context: Context): void {
  checkpoint
    .command("export")
    .description("write the weights as a Hugging Face folder of the model's family")
    .argument("<directory>", "a checkpoint, or the directory of a run's checkpoints (then the latest)")
    .argument("<output>", "folder to write; must not exist")
    .addOption(
      new Option("--precision <precision>", "of the numbers").choices(["fp32", "bf16"]).default("fp32"),
    )
    .option(
      "--max-file-bytes <n>",
      "largest safetensors file; default 5 GiB",
      integerArgument(1, Number.MAX_SAFE_INTEGER),
    )
    .action(async (directory: string, out: string, options: { precision: string; maxFileBytes?: number }) => {
      const bound =
        options.maxFileBytes === undefined ? [] : ["--max-file-bytes", String(options.maxFileBytes)];
      context.setExitCode(
        showWritten(
          await runTool<Written>(context, "export", directory, [
            ...(await target(out)),
            "--precision",
            options.precision,
            ...bound,
          ]),
          "exported",
          context.output(),
        ),
      );
    });
}

function addImport(checkpoint: Command, context: Context): void {
  checkpoint
    .command("import")
    .description(
      "write the weights of a Hugging Face folder (LLaMA, Mistral, Qwen2, Qwen3, InternLM2) as a checkpoint, for a run's initialWeights",
    )
    .argument("<folder>", "a Hugging Face folder")
    .argument("<output>", "directory to write; must not exist")
    .option("--files <n>", "so many files of equal size", integerArgument(1, 100_000))
    .action(async (folder: string, out: string, options: { files?: number }) => {
      const args = options.files === undefined ? [] : ["--files", String(options.files)];
      context.setExitCode(
        showWritten(
          await runTool<Written>(context, "import", folder, [...(await target(out)), ...args]),
          "imported",
          context.output(),
        ),
      );
    });
}
