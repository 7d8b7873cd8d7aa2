import { existsSync, statSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import {
  companionName,
  exportBest,
  exportPredicted,
  FRAMEWORKS,
  FRAMEWORK_VERSIONS,
  importConfiguration,
  importedJob,
  type Framework,
  type FrameworkFile,
  type Launch,
} from "@internevo/frameworks";
import { estimatedProfileWords, ProblemError, resolveJob } from "@internevo/domain";
import { GIVEN_PROFILE_WORDS } from "@internevo/cost-model";
import { feasibleFamilies, planJob } from "@internevo/search";
import { Option, type Command } from "commander";
import { stringify } from "yaml";
import { integerArgument, memoryArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { readText, type Expected } from "../files.ts";
import { importText, inexpressibleText, writtenText } from "../frameworks-view.ts";
import { loadProfile } from "../named-profile.ts";
import { cannotWrite, writeNew } from "../new-files.ts";
import { NOTES_OPTION, showNotes } from "../output.ts";
import { PLAN_HELP } from "../plan-argument.ts";
import { addPlanningOptions, searchedJob, type PlanningOptions } from "../planning-options.ts";
import { findPlan, profileOf } from "./memory.ts";

const frameworkOption = (): Option =>
  new Option("--framework <framework>", "whose configuration").choices(FRAMEWORKS).makeOptionMandatory();
const profileHelp = `what was measured of the cluster: ${GIVEN_PROFILE_WORDS}, a file, or a stored one`;

/**
 * Writes the files of a configuration into a directory, which is made where there is none. @returns where
 * they are.
 */
async function writeInto(directory: string, files: readonly FrameworkFile[]): Promise<string[]> {
  if (existsSync(directory) && !statSync(directory).isDirectory())
    throw cannotWrite(
      directory,
      "is a file, and several may have to be written",
      "give a directory; it is made where there is none",
    );
  return writeNew(files.map(({ name, text }) => ({ name: join(directory, name), text })));
}

const CONFIGURATION: Expected = { code: "bad-request", field: "file", what: "a configuration" };

async function readConfiguration(
  framework: Framework,
  path: string,
): Promise<[FrameworkFile, ...FrameworkFile[]]> {
  const text = await readText(path, CONFIGURATION);
  const main = { name: path, text };
  const named = companionName(framework, text);
  if (named === null) return [main];
  const places = [resolve(dirname(path), named), resolve(dirname(path), named.split("/").at(-1) as string)];
  const found = places.find((place) => existsSync(place));
  return found === undefined ? [main] : [main, { name: named, text: await readText(found, CONFIGURATION) }];
}

interface ImportOptions {
  readonly framework: Framework;
  readonly nodes?: number;
  readonly gpusPerNode?: number;
  readonly memory?: string;
  readonly profile: string;
  readonly out?: string;
  readonly notes?: boolean;
}

function launchOf({ nodes, gpusPerNode }: ImportOptions): Launch | null {
  if (gpusPerNode === undefined && nodes !== undefined)
    throw new ProblemError("bad-request", "--nodes needs --gpus-per-node", [
      { field: "--gpus-per-node", value: null, message: "is missing", remedy: "give both" },
    ]);
  return gpusPerNode === undefined ? null : { nodes: nodes ?? 1, gpusPerNode };
}

export function addFrameworks(program: Command, context: Context): void {
  addExport(program, context);
  addImport(program, context);
}

function addExport(program: Command, context: Context): void {
  const command = program
    .command("export")
    .description(
      "a plan as configuration of another framework; what it cannot express is named. Offline for a job file",
    )
    .argument(
      "<job>",
      "job file, YAML or JSON (- for standard input); or a job's id, the beginning of it, or its name",
    )
    .addOption(frameworkOption())
    .option(
      "--plan <plan>",
      `${PLAN_HELP}; default: the plan that the job trains with, of a file the best that the framework can say`,
    )
    .option("--profile <name or file>", `${profileHelp}, to find the plan with; default: the job's`)
    .option(
      "--out <directory>",
      "write the files into this directory, which is made where there is none; default: standard output",
    );
  addPlanningOptions(command).action(
    async (
      text: string,
      options: PlanningOptions & { framework: Framework; plan?: string; profile?: string; out?: string },
    ) => {
      const { spec, plan, profile, isBest } = await findPlan(text, options, context);
      const measured = await profileOf(spec, profile, context);
      const searched = searchedJob(spec, options);
      // Whoever names no plan wants the best; of those that the framework can say.
      const exported = context.computing(() =>
        isBest && measured !== null
          ? exportBest(options.framework, searched, measured)
          : exportPredicted(options.framework, searched, plan, measured),
      );
      const output = context.output();
      const paths = options.out === undefined ? [] : await writeInto(options.out, exported.files);
      if (output.json) output.document({ job: spec.name, asked: plan, ...exported, written: paths });
      else {
        if (options.out === undefined)
          for (const { name, text: content } of exported.files)
            output.data(`${exported.files.length > 1 ? `==> ${name} <==\n` : ""}${content.trimEnd()}`);
        for (const path of paths) output.note(`written: ${path}`);
        output.note(`for ${exported.version}`);
        const estimated = measured === null ? undefined : estimatedProfileWords(measured, spec.cluster);
        if (estimated !== undefined) output.note(estimated);
        for (const line of [
          ...inexpressibleText(exported.inexpressible),
          ...writtenText(exported, plan, output.colors),
        ])
          output.note(line);
      }
    },
  );
}

function addImport(program: Command, context: Context): void {
  program
    .command("import")
    .description(
      "read a configuration of another framework as model, workload and plan, and ask how good it is. Offline",
    )
    .argument(
      "<file>",
      "arguments in a shell script (megatron, deepspeed), Python (internevo) " +
        "or TOML (torchtitan); a file that it names is read beside it",
    )
    .addOption(frameworkOption())
    .option("--nodes <n>", "default: as the file says", integerArgument(1, 2 ** 20))
    .option("--gpus-per-node <n>", "default: as the file says", integerArgument(1, 4096))
    .option("--memory <size>", "of a GPU, e.g. 80GB; default: the profile's", memoryArgument)
    .option("--profile <name or file>", profileHelp, "a800-128")
    .option("--out <file>", "write the job file")
    .option(...NOTES_OPTION)
    .addHelpText(
      "after",
      `\nOption names are those of:\n${FRAMEWORKS.map((framework) => `  ${framework}: ${FRAMEWORK_VERSIONS[framework]}`).join("\n")}`,
    )
    .action(async (path: string, options: ImportOptions) => {
      const launch = launchOf(options);
      const files = await readConfiguration(options.framework, path);
      const imported = context.computing(() => importConfiguration(options.framework, files, launch));
      const profile = await loadProfile(options.profile, "--profile", context);
      const memory = options.memory ?? profile.cluster.memoryPerGpuBytes;
      if (memory === undefined)
        throw new ProblemError("bad-request", "the memory of a GPU is not known", [
          {
            field: "--memory",
            value: null,
            message: "is missing, and the profile does not say it",
            remedy: "give such as --memory 80GB",
          },
        ]);
      const file = importedJob(imported, "imported", memory, options.profile);
      const job = resolveJob(file);
      const [result, families] = context.computing(() => [
        planJob(job, profile, { top: 1, locate: imported.plan }),
        feasibleFamilies(job, profile),
      ]);
      const output = context.output();
      const written =
        options.out === undefined ? [] : await writeNew([{ name: options.out, text: stringify(file) }]);
      if (output.json) output.document({ imported, job: file, planning: result, families, written });
      else {
        output.data(importText(imported, job, result, families, output.colors));
        const estimated = estimatedProfileWords(profile, job.cluster);
        if (estimated !== undefined) output.data(estimated);
        showNotes(result.warnings, output, options.notes === true);
        for (const place of written) output.note(`written: ${place}`);
      }
    });
}
