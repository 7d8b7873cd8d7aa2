import { existsSync } from "node:fs";
import {
  dataFiles,
  heldOutData,
  type Data,
  describeJob,
  measuredFirstWords,
  printableJson,
  ProblemError,
  resolveJob,
  writtenJob,
  type JobFile,
  type JobSpec,
} from "@internevo/domain";
import { ApiConnectionError, ApiProblemError, type InternEvoClient } from "@internevo/client";
import { weightsWarnings } from "@internevo/data";
import { trainerFault } from "@internevo/plan";
import { undividedOf } from "@internevo/search";
import type { Command } from "commander";
import { stringify } from "yaml";
import type { Context } from "../context.ts";
import { readJobFile } from "../job-input.ts";
import { isProfileFile, readProfileFile, unknownProfileWarnings } from "../profile-file.ts";
import type { Output } from "../output.ts";
import { noteWarnings } from "../submission.ts";

/**
 * The job that a file stands for, every default filled in. Its data and weights are read where jobs run, when
 * it is submitted; {@link absentHere} says what is not on this machine.
 * @param path of a job file, `-` for standard input.
 * @throws ProblemError `job-invalid`, with one detail a fault.
 */
export const validateCommand = async (path: string): Promise<JobSpec> => resolveJob(await readJobFile(path));

/** Refuses a job that no plan divides. @throws ProblemError `no-feasible-plan` */
export function assertDivides(spec: JobSpec): void {
  const undivided = undividedOf(spec);
  if (undivided === undefined) return;
  const { plan, cluster } = spec;
  throw plan === undefined
    ? new ProblemError("no-feasible-plan", "no plan divides the job", [
        { field: "cluster.gpusPerNode", value: cluster.gpusPerNode, ...undivided },
      ])
    : new ProblemError("no-feasible-plan", "no plan is as the job's plan asks", [
        { field: "plan", value: plan, ...undivided },
      ]);
}

const MOST_ABSENT = 10;

const dataFilesOf = (heldOut: Data | null): { readonly path: string; readonly field: string }[] =>
  heldOut === null
    ? []
    : dataFiles(heldOut).map(({ path, field }) => ({ path, field: `validation.${field}` }));

/**
 * What a job cannot be submitted without and this machine does not have: no fault of the job file, for the
 * services may run elsewhere.
 */
export function absentHere({ data, validation, initialWeights, ...spec }: JobSpec): string[] {
  const fault = trainerFault(spec);
  const planned =
    fault === null
      ? []
      : [
          `${fault.field} (is ${printableJson(fault.value)}): the job can be ` +
            `planned, and \`internevo submit\` refuses it\n    → ${fault.remedy}`,
        ];
  if (data === null)
    return [...planned, "data is missing: the job can be planned, and `internevo submit` refuses it"];
  const named = [
    ...dataFiles(data),
    ...dataFilesOf(heldOutData({ data, ...(validation ? { validation } : {}) })),
    ...(initialWeights === undefined ? [] : [{ path: initialWeights, field: "initialWeights" }]),
  ];
  const absent = named.filter(({ path }) => !existsSync(path));
  const notes = [
    ...planned,
    ...absent
      .slice(0, MOST_ABSENT)
      .map(
        ({ path, field }) =>
          `${field} (is ${printableJson(path)}): does not exist on this machine\n    → give a ` +
          `path that exists where the services run: \`internevo submit\` refuses the job otherwise`,
      ),
  ];
  return absent.length > MOST_ABSENT
    ? [...notes, `${absent.length - MOST_ABSENT} more files of its data do not exist on this machine`]
    : notes;
}

/** Writes a resolved job as a job file: one JSON document, or YAML. */
export function showJob(spec: JobSpec, output: Output): void {
  if (output.json) return output.document(writtenJob(spec));
  output.data(stringify(writtenJob(spec)).trimEnd());
}

/** The API at hand; undefined when there is none. */
async function clientAtHand(context: Context): Promise<InternEvoClient | undefined> {
  try {
    return await context.client();
  } catch (error) {
    if (error instanceof ProblemError && error.code === "unavailable") return undefined;
    throw error;
  }
}

/** A profile file is read here, and submission stores it: the services are asked about the rest. */
function withoutProfileFile(file: JobFile): JobFile {
  const { profile, ...cluster } = file.cluster;
  return isProfileFile(profile ?? null) ? { ...file, cluster } : file;
}

/**
 * Asks the API at hand whether it would take the job, and says what speaks against submitting it all the
 * same.
 * @returns whether anybody was asked.
 * @throws ApiProblemError as submission does
 */
async function checkSubmission(spec: JobSpec, context: Context): Promise<boolean> {
  const client = await clientAtHand(context);
  if (client === undefined) return false;
  const output = context.output();
  try {
    const { warnings, measuredFirst } = await client.checkJob(withoutProfileFile(writtenJob(spec)), {
      signal: context.signal,
    });
    noteWarnings(warnings, output);
    const { profile } = spec.cluster;
    if (measuredFirst)
      output.note(
        measuredFirstWords(
          // With a profile file nothing is measured, and the stack was not told of it.
          isProfileFile(profile) ? { missing: 0, noisy: 0, seconds: null, profile } : measuredFirst,
        ),
      );
    return true;
  } catch (error) {
    const isNobody =
      error instanceof ApiConnectionError || (error instanceof ApiProblemError && error.code === "forbidden");
    if (!isNobody) throw error;
    output.note(`note: the stack was not asked whether it would take the job: ${error.message}`);
    return false;
  }
}

export function addValidate(program: Command, context: Context): void {
  program
    .command("validate")
    .description(
      "check a job file, and show the job with every default; " +
        "where a stack is at hand, also whether it would take the job",
    )
    .argument("<job>", "job file, YAML or JSON; - for standard input")
    .option("--offline", "check the file alone, and ask no stack")
    .action(async (job: string, { offline = false }: { offline?: boolean }) => {
      const spec = await validateCommand(job);
      const { profile } = spec.cluster;
      assertDivides(spec);
      if (isProfileFile(profile)) await readProfileFile(profile);
      const output = context.output();
      showJob(spec, output);
      let isTaken: boolean;
      try {
        isTaken = !offline && (await checkSubmission(spec, context));
      } catch (error) {
        if (error instanceof ApiProblemError && !output.json)
          output.note(`the stack refuses this job, which can be planned: ${describeJob(spec)}`);
        throw error;
      }
      if (!isTaken) {
        for (const warning of absentHere(spec)) output.note(`warning: ${warning}`);
        noteWarnings([...unknownProfileWarnings(spec.cluster), ...weightsWarnings(spec)], output);
      }
      if (!output.json) output.note(`valid: ${describeJob(spec)}`);
    });
}
