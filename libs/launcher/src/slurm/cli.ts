import { execFile } from "node:child_process";
import { positive } from "../scheduled/positive.ts";
import {
  accountedJob,
  jobsOf,
  nodesOf,
  SlurmAwayError,
  SlurmRefusalError,
  type SlurmControl,
  type SlurmRequest,
} from "./control.ts";

/** Slurm's own patience with its controller is a minute and more. */
const ANSWER_MILLISECONDS = 90_000;

/** Slurm's D-HH:MM:SS, rounded up to whole seconds. */
export function slurmTime(seconds: number): string {
  const total = Math.ceil(seconds);
  const two = (value: number): string => String(value).padStart(2, "0");
  return `${Math.floor(total / 86_400)}-${two(Math.floor((total % 86_400) / 3600))}:${two(Math.floor((total % 3600) / 60))}:${two(total % 60)}`;
}

/** The sbatch command line of a request. */
export function sbatchCommand(request: SlurmRequest): string[] {
  const { settings } = request;
  const option = (name: string, value: string | number | undefined): string[] =>
    value === undefined ? [] : [`--${name}=${value}`];
  return [
    // Were this process killed now, a submission must not begin afterwards.
    "setpriv",
    "--pdeathsig",
    "KILL",
    "--",
    "sbatch",
    "--parsable",
    // A requeued job would begin with a checkpoint that nobody has compared with the steps that are stored:
    // the supervisor submits the next one.
    "--no-requeue",
    `--job-name=${request.name}`,
    `--comment=${request.comment}`,
    `--nodes=${positive("nodes", request.nodes)}`,
    `--ntasks=${request.nodes * positive("ranksPerNode", request.ranksPerNode)}`,
    `--ntasks-per-node=${request.ranksPerNode}`,
    `--cpus-per-task=${positive("threadsPerRank", request.threadsPerRank)}`,
    ...((settings.exclusive ?? true) ? ["--exclusive"] : []),
    ...option("partition", settings.partition),
    ...option("account", settings.account),
    ...option("qos", settings.qos),
    ...option("constraint", settings.constraint),
    ...option("reservation", settings.reservation),
    ...option("gres", settings.gres),
    ...option(
      "mem",
      settings.memoryPerNodeBytes === undefined
        ? undefined
        : `${Math.ceil(settings.memoryPerNodeBytes / 1024)}K`,
    ),
    ...option(
      "time",
      request.timeLimitSeconds === undefined ? undefined : slurmTime(request.timeLimitSeconds),
    ),
    `--signal=B:USR1@${saveSecondsOf(request)}`,
    `--chdir=${request.directory}`,
    `--output=${request.logPath}`,
    "--open-mode=append",
    "--export=ALL",
    request.scriptPath,
  ];
}

/** How long before its end a job saves: less than the default where the whole job is short. */
export const saveSecondsOf = ({
  settings,
  timeLimitSeconds,
}: Pick<SlurmRequest, "settings" | "timeLimitSeconds">): number =>
  Math.min(settings.saveSeconds ?? 120, Math.floor((timeLimitSeconds ?? Infinity) / 2));

const AWAY =
  /Unable to contact slurm controller|Connection (refused|timed out|reset)|Socket timed out|Zero Bytes were transmitted|Communication (connection|shutdown) failure|Message (send|receive) failure|Invalid authentication credential|Unexpected message received|Slurm backup controller|Transport endpoint|Unable to establish controller|temporarily unable to accept|Resource temporarily unavailable|credential.*(expired|replayed)|Munge encode failed|Protocol authentication error/i;

/** Slurm's words without the program's name before them. */
const saidBy = (stderr: string): string =>
  stderr
    .split("\n")
    .map((line) => line.replace(/^\w+: (error|fatal|info): /, "").trim())
    .filter((line) => line !== "")
    .join("; ");

function ask(
  command: readonly string[],
  environment: Readonly<Record<string, string>> | undefined,
): Promise<string> {
  const [program, ...parameters] = command as [string, ...string[]];
  return new Promise((resolve, reject) => {
    execFile(
      program,
      parameters,
      {
        timeout: ANSWER_MILLISECONDS,
        killSignal: "SIGKILL",
        maxBuffer: 1 << 28,
        ...(environment ? { env: environment } : {}),
      },
      (error, stdout, stderr) => {
        if (!error) return resolve(stdout);
        const words = saidBy(stderr) || error.message;
        // Killed by the time limit, or not answered: whether Slurm has heard is unknown.
        if (error.killed === true || error.signal || AWAY.test(stderr))
          return reject(new SlurmAwayError(words, { cause: error }));
        reject(new SlurmRefusalError(words, { cause: error }));
      },
    );
  });
}

function parsed(text: string, command: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new SlurmAwayError(`${command} wrote no JSON: ${text.slice(0, 200)}`, { cause: error });
  }
}

/** Slurm by its command-line tools, which must be on PATH. */
export const slurmTools = (): SlurmControl => ({
  async submit(request) {
    const answer = await ask(sbatchCommand(request), { ...request.environment });
    const id = /^(\d+)(;|$)/m.exec(answer.trim());
    if (!id)
      throw new SlurmAwayError(
        `sbatch answered ${JSON.stringify(answer.slice(0, 200))}, which is no job's number`,
      );
    return Number(id[1]);
  },
  async jobsNamed(name) {
    // 22.05 tells all jobs whatever it is asked for.
    return jobsOf(
      parsed(await ask(["squeue", "--json", "--states=all", `--name=${name}`], undefined), "squeue --json"),
    ).filter((job) => job.name === name);
  },
  async cancel(id) {
    await ask(["scancel", "--quiet", String(id)], undefined).catch((error: unknown) => {
      if (!(error instanceof SlurmRefusalError) || !/Invalid job id|already/i.test(error.message))
        throw error;
    });
  },
  async askToEnd(id) {
    await ask(["scancel", "--quiet", "--batch", "--signal=USR1", String(id)], undefined);
  },
  async accounted(id, name) {
    try {
      return accountedJob(
        parsed(await ask(["sacct", "--json", `--jobs=${id}`], undefined), "sacct --json"),
        id,
        name,
      );
    } catch (error) {
      if (error instanceof SlurmAwayError || error instanceof SlurmRefusalError) return error.message;
      throw error;
    }
  },
  nodes: async () => nodesOf(parsed(await ask(["sinfo", "--json"], undefined), "sinfo --json")),
});
