import type { ProjectChange, ProjectRecord } from "@internevo/contracts";
import { formatGpuHours, formatInteger, formatWeight, WEIGHT_BOUNDS } from "@internevo/domain";
import { InvalidArgumentError, type Command } from "commander";
import { integerArgument, numberArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { addList } from "../lists.ts";
import { projectsTable } from "../project-view.ts";

const NO_LIMIT = "none";
type Quota = number | typeof NO_LIMIT;
/** A quota: a number, or none. */
const quota =
  (read: (text: string) => number) =>
  (text: string): Quota =>
    text.trim().toLowerCase() === NO_LIMIT ? NO_LIMIT : read(text);

interface Change {
  readonly description?: string;
  readonly maxGpus?: Quota;
  readonly gpuHoursPerMonth?: Quota;
  readonly weight?: number;
}

/** What the options change. */
function changeOf({ description, maxGpus, gpuHoursPerMonth, weight }: Change): ProjectChange {
  const limitOf = (given: Quota): number | null => (given === NO_LIMIT ? null : given);
  return {
    ...(description === undefined ? {} : { description }),
    ...(maxGpus === undefined ? {} : { maxGpus: limitOf(maxGpus) }),
    ...(gpuHoursPerMonth === undefined ? {} : { gpuHoursPerMonth: limitOf(gpuHoursPerMonth) }),
    ...(weight === undefined ? {} : { weight }),
  };
}

function hoursArgument(text: string): number {
  try {
    return numberArgument(0, 1e12)(text);
  } catch (error) {
    if (!(error instanceof InvalidArgumentError)) throw error;
    throw new InvalidArgumentError(`give GPU-hours such as 1000, or ${NO_LIMIT}.`);
  }
}

const withChange = (command: Command): Command =>
  command
    .option("--description <text>", "what it is, in a line")
    .option(
      "--max-gpus <count>",
      `GPUs that its jobs hold at once at most, or ${NO_LIMIT}`,
      quota(integerArgument(0, 2 ** 31 - 1)),
    )
    .option(
      "--gpu-hours-per-month <hours>",
      `GPU-hours that its jobs may use in a calendar month (UTC), or ${NO_LIMIT}`,
      quota(hoursArgument),
    )
    .option(
      "--weight <weight>",
      "its share of GPU time beside other projects that wait: twice the weight, twice the time",
      numberArgument(WEIGHT_BOUNDS.minimum, WEIGHT_BOUNDS.maximum),
    );

const quotaWords = ({ maxGpus, gpuHoursPerMonth, weight }: ProjectRecord): string =>
  `${maxGpus === null ? "any number of GPUs" : `${formatInteger(maxGpus)} GPUs at once`}, ${gpuHoursPerMonth === null ? "any number of GPU-hours" : `${formatGpuHours(gpuHoursPerMonth)} GPU-hours a month`}, weight ${formatWeight(weight)}`;

export function addProject(program: Command, context: Context): void {
  const group = program
    .command("project")
    .description("projects, whose jobs are kept apart; to change them needs an admin of the installation");
  addList(group, context, {
    description: "list projects that the token may see: quotas, and what is used of them",
    list: (client, { signal }) => client.listProjects({ signal }),
    none: "no projects",
    table: projectsTable,
  });
  const show = (project: ProjectRecord): void => {
    const output = context.output();
    if (output.json) output.document(project);
    else output.data(`project ${project.name}: ${quotaWords(project)}`);
  };
  withChange(
    group
      .command("create")
      .description("create a project")
      .argument("<name>", "lower-case letters, digits and hyphens, e.g. nlp"),
  ).action(async (name: string, options: Change) => {
    const client = await context.client();
    show(await client.createProject({ name, ...changeOf(options) }, { signal: context.signal }));
  });
  withChange(
    group
      .command("set")
      .description("change a project's description, quotas and weight; what is left out stays as it is")
      .argument("<name>", "name of the project"),
  ).action(async (name: string, options: Change) => {
    const client = await context.client();
    show(await client.changeProject(name, changeOf(options), { signal: context.signal }));
  });
  group
    .command("delete")
    .description("delete a project that has no jobs, workloads and tokens")
    .argument("<name>", "name of the project")
    .action(async (name: string) => {
      const client = await context.client();
      await client.deleteProject(name, { signal: context.signal });
      const output = context.output();
      if (output.json) output.document({ deleted: name });
      else output.data(`project ${name} is deleted`);
    });
}
