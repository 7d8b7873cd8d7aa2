import { resolve } from "node:path";
import {
  cheapestCluster,
  clusterSizes,
  explain,
  largestSequence,
  measuredOfBoth,
  paretoFront,
  sweep,
  sweepGpus,
  SWEEP_AXES,
  sweptJobs,
  whyNot,
  type SweepAxis,
} from "@internevo/advisor";
import {
  estimatedProfileName,
  findShippedProfile,
  GIVEN_PROFILE_WORDS,
  GPU_NAMES,
} from "@internevo/cost-model";
import { assertWritable, writeWhole } from "../files.ts";
import {
  assertHeadroomOfAxis,
  documentsWords,
  estimatedProfileWords,
  estimatesWords,
  parseQuantity,
  plannedMemoryBytes,
  ProblemError,
  readMemory,
  withHeadroom,
  withoutDocuments,
  type JobSpec,
  type Plan,
  type Profile,
  type Tried,
} from "@internevo/domain";
import type { PlanOfJob } from "@internevo/plan";
import { Option, type Command } from "commander";
import { clustersChart, paretoChart, sweepChart } from "../advice-chart.ts";
import {
  candidateRow,
  clustersText,
  csvText,
  explanationText,
  frontText,
  gpusText,
  largestSequenceText,
  sweepText,
  whyNotText,
} from "../advice-view.ts";
import {
  durationArgument,
  integerArgument,
  lengthTokensArgument,
  numberArgument,
  trainingTokensArgument,
} from "../arguments.ts";
import type { Context } from "../context.ts";
import { estimatesFor, type EstimatesFor } from "../estimates.ts";
import { EXIT } from "../exit-codes.ts";
import { HEADROOM } from "../headroom.ts";
import { JOB_HELP, namedJob, rankedPlan } from "../named-job.ts";
import { jobProfile, type ProfileContext } from "../named-profile.ts";
import type { Colors, Output } from "../output.ts";
import { chooseAnyPlan, choosePlans, PLAN_HELP } from "../plan-argument.ts";
import { addPlanningOptions, searchedJob, type PlanningOptions } from "../planning-options.ts";

interface AdviceOptions extends PlanningOptions {
  readonly profile?: string;
}

/** A job, what was measured of its cluster, and what its trials measured where it was submitted. */
async function loadJob(
  text: string,
  profileName: string | undefined,
  asked: PlanningOptions,
  context: ProfileContext,
): Promise<{
  job: JobSpec;
  profile: Profile;
  trials: readonly Tried[];
  estimates: EstimatesFor;
  /** What a GPU has, with what a headroom keeps free of it. */
  gpuBytes: number;
  /** The plan that a rank of a submitted job's tables names. */
  ranked: (text: string) => Plan | undefined;
}> {
  const named = await namedJob(text, profileName, context);
  const { submitted } = named;
  const job = searchedJob(named.spec, asked);
  const profile = await jobProfile(job, named.profile, context);
  const estimates = estimatesFor(text, named, profileName, profile);
  const gpuBytes = named.spec.cluster.memoryPerGpuBytes;
  const ranked = (plan: string) => rankedPlan(plan, named, { ...asked, profile: profileName });
  return { job, profile, trials: submitted?.trials ?? [], estimates, gpuBytes, ranked };
}

/** Searches of one answer: beyond that nobody waits. */
const MOST_VALUES = 1000;
/** A number as people write it; a zero before it is half of one that was written with a comma. */
const PLAIN_NUMBER = /^(?:0|[1-9]\d*)?(?:\.\d+)?(?<=\d)(?:[eE][+-]?\d+)?$/;

/**
 * Values of a sweep: "4096,8192", with units as job files have them (4k, 80GB); "a..b" doubles from a to b.
 */
export function axisValues(axis: SweepAxis, text: string): number[] {
  const refuse = (part: string, what: string, message: string, remedy: string): ProblemError =>
    new ProblemError("job-invalid", what, [{ field: "--values", value: part, message, remedy }]);
  const one = (part: string): number => {
    if (axis === "memory") {
      const memory = readMemory(part);
      if ("bytes" in memory) return memory.bytes;
      throw refuse(part, `"${part}" ${memory.message}`, memory.message, memory.remedy);
    }
    const plain = PLAIN_NUMBER.test(part.trim()) ? Number(part) : undefined;
    const value =
      axis === "sequence" || axis === "batch" ? (parseQuantity(part, "lengthTokens") ?? plain) : plain;
    if (value === undefined || !Number.isFinite(value) || value <= 0) {
      throw refuse(
        part,
        `"${part}" is no value of ${axis}`,
        "is not a positive number",
        `give values such as ${EXAMPLES[axis]}; a comma stands between two values`,
      );
    }
    return value;
  };
  const tooMany = (): ProblemError =>
    refuse(
      text.length > 60 ? `${text.slice(0, 60)}…` : text,
      `--values are more than ${MOST_VALUES}`,
      "takes a search each",
      `give at most ${MOST_VALUES}`,
    );
  const values: number[] = [];
  for (const part of text.split(",", MOST_VALUES + 1)) {
    const [from = "", to, rest] = part.split("..");
    if (to === undefined || rest !== undefined) values.push(one(part));
    else {
      const [first, last] = [one(from), one(to)];
      if (first > last)
        throw refuse(
          part,
          `"${part}" is no range: it ends below its beginning`,
          "ends below its beginning",
          `write ${to}..${from}`,
        );
      for (let value = first; value <= last && values.length <= MOST_VALUES; value *= 2) values.push(value);
    }
    if (values.length > MOST_VALUES) throw tooMany();
  }
  return values;
}

const EXAMPLES: Readonly<Record<SweepAxis, string>> = {
  sequence: "4k,8k,16k or 4k..64k",
  batch: "1M,2M or 1M..16M",
  nodes: "1,2,4 or 1..64",
  memory: "40GB,80GB or 20GiB..160GiB",
  "intra-node-bandwidth": "0.5,1,2 or 0.25..8",
  "inter-node-bandwidth": "0.5,1,2 or 0.25..8",
  "compute-speed": "0.5,1,2 or 0.25..8",
};

const profileOption = (): Option =>
  new Option(
    "--profile <name or file>",
    `what was measured of the cluster: ${GIVEN_PROFILE_WORDS}, a file, or a stored one; default: the job's`,
  );

interface WhatIfOptions extends PlanningOptions {
  readonly profile?: string;
  readonly axis?: SweepAxis;
  readonly values?: string;
  readonly computeSpeed?: string;
  readonly gpu?: string;
  readonly largestSequence?: boolean;
  readonly unit?: number;
  readonly sequences?: number;
  readonly pareto?: boolean;
  readonly deadline?: number;
  readonly tokens?: number;
  readonly price?: number;
  readonly csv?: boolean;
  readonly svg?: string;
}

/** Options that say something of one question only. */
const OF_QUESTION: Readonly<
  Record<string, { readonly questions: readonly (keyof WhatIfOptions)[]; readonly written: string }>
> = {
  values: { questions: ["axis", "deadline"], written: "--axis, or to --deadline" },
  tokens: { questions: ["deadline"], written: "--deadline" },
  price: { questions: ["deadline"], written: "--deadline" },
  unit: { questions: ["largestSequence"], written: "--largest-sequence" },
  sequences: { questions: ["largestSequence"], written: "--largest-sequence" },
};

function assertBelongs(options: WhatIfOptions, json: boolean): void {
  for (const [name, { questions, written }] of Object.entries(OF_QUESTION)) {
    const value = options[name as keyof WhatIfOptions];
    if (value === undefined || questions.some((question) => options[question] !== undefined)) continue;
    throw new ProblemError("job-invalid", `--${name} does not belong to this question`, [
      {
        field: `--${name}`,
        value,
        message: `only belongs to ${written}`,
        remedy: "leave it out, or ask that question",
      },
    ]);
  }
  if (json && options.csv === true)
    throw new ProblemError("job-invalid", "--json and --csv are two forms of one answer", [
      { field: "--csv", value: true, message: "is given with --json", remedy: "give one of them" },
    ]);
}

/** @throws ProblemError unless exactly one question is asked, with the options that belong to it. */
function assertOneQuestion(options: WhatIfOptions, json: boolean): void {
  const asked = [
    options.axis !== undefined,
    options.gpu !== undefined,
    options.largestSequence === true,
    options.pareto === true,
    options.deadline !== undefined,
  ].filter(Boolean);
  if (asked.length !== 1) {
    throw new ProblemError("job-invalid", "what-if answers one question at a time", [
      {
        field: "--axis, --compute-speed, --gpu, --largest-sequence, --pareto, --deadline",
        message: asked.length === 0 ? "none of them is given" : "more than one of them is given",
        remedy:
          "give one: --axis with --values, --compute-speed, --gpu, --largest-sequence, --pareto, or --deadline with --tokens",
      },
    ]);
  }
  assertBelongs(options, json);
  if (options.largestSequence === true && options.svg !== undefined)
    throw new ProblemError("job-invalid", "the answer to --largest-sequence is one number", [
      {
        field: "--svg",
        value: options.svg,
        message: "has nothing to draw",
        remedy: "leave it out, or draw --axis sequence --values 4k..16m",
      },
    ]);
}

/** `--compute-speed 1,2` is `--axis compute-speed --values 1,2`. */
function withAxis(given: WhatIfOptions): WhatIfOptions {
  const { computeSpeed, ...options } = given;
  if (computeSpeed === undefined) return given;
  const other = options.axis === undefined ? undefined : "--axis";
  if (other === undefined && options.values === undefined)
    return { ...options, axis: "compute-speed", values: computeSpeed };
  throw new ProblemError("job-invalid", `--compute-speed says axis and values by itself`, [
    {
      field: "--compute-speed",
      value: computeSpeed,
      message: `is given beside ${other ?? "--values"}`,
      remedy: "give one of them",
    },
  ]);
}

async function whatIf(path: string, given: WhatIfOptions, context: Context): Promise<void> {
  const options = withAxis(given);
  assertOneQuestion(options, context.options().json === true);
  if (options.gpu !== undefined) return onGpus(path, options.gpu, options, context);
  if (options.svg !== undefined) await assertWritable(options.svg, "--svg");
  const { job, profile, estimates } = await loadJob(path, options.profile, { fix: options.fix }, context);
  if (options.axis !== undefined) assertHeadroomOfAxis(options.axis, options.headroom, HEADROOM);
  const question = new WhatIf({ job, profile, estimates }, options, context);
  if (options.axis !== undefined) return question.sweep(options.axis);
  if (options.largestSequence === true) return question.largestSequence();
  return options.pareto === true ? question.pareto() : question.cheapest(options.deadline as number);
}

/** The best plan on each kind of GPU. */
async function onGpus(path: string, text: string, options: WhatIfOptions, context: Context): Promise<void> {
  const refused = (["profile", "svg"] as const).find((name) => options[name] !== undefined);
  if (refused !== undefined)
    throw new ProblemError("job-invalid", `--${refused} does not belong to --gpu`, [
      {
        field: `--${refused}`,
        value: options[refused],
        message: "does not belong to --gpu, which takes the estimated profile of each GPU",
        remedy: "leave it out",
      },
    ]);
  const gpus = text.split(",").map((name) => name.trim().toLowerCase());
  const { spec } = await namedJob(path, undefined, context);
  // A headroom is of each GPU's own memory, so it is the job's until the GPU is known.
  const job = searchedJob(spec, { fix: options.fix });
  const kept: JobSpec = options.headroom === undefined ? job : { ...job, headroom: options.headroom.text };
  const rows = context.computing(() => sweepGpus(kept, gpus, "--gpu", context.signal));
  const output = context.output();
  const notes = gpus.flatMap((gpu) => {
    const profile = findShippedProfile(estimatedProfileName(gpu));
    return profile === undefined ? [] : (estimatedProfileWords(profile) ?? []);
  });
  if (options.csv === true)
    output.data(
      csvText(
        rows.map(({ gpu, memoryPerGpuBytes, tokensPerSecond, feasible, reason, best }) => ({
          gpu,
          memoryPerGpuBytes,
          tokensPerSecond,
          foundToFit: feasible,
          ...candidateRow(best),
          reason: reason ?? "",
        })),
      ),
    );
  else if (output.json) output.document({ axis: "gpu", rows, estimated: notes });
  else
    output.data(
      `${gpusText(rows, output.colors)}\n\nProfiles of these GPUs are *estimated* from published figures, not measured: ranges say how far off they may be.`,
    );
}

/** One question about a job under other circumstances, and how its answer is shown. */
class WhatIf {
  readonly #memoryPerGpuBytes: number;
  readonly #job: JobSpec;
  readonly #profile: Profile;
  readonly #estimates: EstimatesFor;
  readonly #options: WhatIfOptions;
  readonly #context: Context;
  readonly #output: Output;

  constructor(
    {
      job,
      profile,
      estimates,
    }: { readonly job: JobSpec; readonly profile: Profile; readonly estimates: EstimatesFor },
    options: WhatIfOptions,
    context: Context,
  ) {
    this.#memoryPerGpuBytes = job.cluster.memoryPerGpuBytes;
    this.#job = withHeadroom(job, options.headroom, HEADROOM);
    this.#profile = profile;
    this.#estimates = estimates;
    this.#options = options;
    this.#context = context;
    this.#output = context.output();
  }

  async sweep(axis: SweepAxis): Promise<void> {
    const job = this.#job;
    if (this.#options.values === undefined)
      throw new ProblemError("job-invalid", "--axis needs --values", [
        {
          field: "--values",
          value: null,
          message: "is missing",
          remedy: "give values such as 4k,8k,16k or 4k..64k",
        },
      ]);
    const values = axisValues(axis, this.#options.values);
    const { signal } = this.#context;
    const rows = this.#context.computing(() => sweep(job, this.#profile, axis, values, signal));
    this.#show(
      { axis, rows },
      sweepText(axis, rows, this.#output.colors),
      rows.map(({ value, tokensPerSecond, feasible, reason, best }) => ({
        [axis]: value,
        tokensPerSecond,
        foundToFit: feasible,
        ...candidateRow(best),
        reason: reason ?? "",
      })),
      sweptJobs(job, axis, rows),
    );
    await this.#draw(() => sweepChart(job, axis, rows));
  }

  largestSequence(): void {
    const job = this.#job;
    const limitBytes = plannedMemoryBytes(job);
    const sequences = this.#options.sequences ?? 1;
    const answer = this.#context.computing(() =>
      largestSequence(job, this.#profile, {
        unitTokens: this.#options.unit ?? 1024,
        sequences,
        signal: this.#context.signal,
      }),
    );
    this.#show(
      answer,
      largestSequenceText(answer, {
        limitBytes,
        keptBytes: this.#memoryPerGpuBytes - limitBytes,
        keptBy: this.#options.headroom === undefined ? "the job's headroom" : HEADROOM,
        jobBatchTokens: job.globalBatchTokens,
        colors: this.#output.colors,
      }),
      [
        {
          sequenceLengthTokens: answer.sequenceLengthTokens,
          globalBatchTokens: answer.globalBatchTokens,
          ...candidateRow(answer.best),
          next: answer.next.sequenceLengthTokens,
          reason: answer.next.reason,
        },
      ],
      answer.best === null
        ? []
        : [
            {
              ...withoutDocuments(job),
              sequenceLengthTokens: answer.sequenceLengthTokens,
              globalBatchTokens: answer.globalBatchTokens,
            },
          ],
    );
    if (answer.best === null) this.#context.setExitCode(EXIT.noFeasiblePlan);
  }

  async pareto(): Promise<void> {
    const front = await paretoFront(this.#job, this.#profile, { signal: this.#context.signal });
    this.#show(
      { front },
      frontText(front, this.#output.colors),
      front.map(candidateRow),
      front.length > 0 ? [this.#job] : [],
    );
    if (front.length > 0) await this.#draw(() => paretoChart(this.#job, front));
    if (front.length === 0) this.#context.setExitCode(EXIT.noFeasiblePlan);
  }

  async cheapest(deadlineSeconds: number): Promise<void> {
    const job = this.#job;
    const { tokens, values, price } = this.#options;
    if (tokens === undefined)
      throw new ProblemError("job-invalid", "--deadline needs --tokens", [
        {
          field: "--tokens",
          value: null,
          message: "is missing",
          remedy: "give the tokens to train on, e.g. --tokens 2T",
        },
      ]);
    const asked = values === undefined ? clusterSizes(job) : axisValues("nodes", values);
    const deadline = {
      tokens,
      seconds: deadlineSeconds,
      ...(price === undefined ? {} : { pricePerGpuHour: price }),
      nodes: asked,
    };
    const { signal } = this.#context;
    const { cheapest, considered } = this.#context.computing(() =>
      cheapestCluster(job, this.#profile, deadline, signal),
    );
    this.#show(
      { cheapest, considered },
      clustersText({ considered, cheapest, asked, deadlineSeconds }, this.#output.colors),
      considered.map(({ nodes, gpus, seconds, gpuHours, cost, meetsDeadline, best }) => ({
        nodes,
        gpus,
        seconds,
        gpuHours,
        cost: cost ?? "",
        meetsDeadline: String(meetsDeadline),
        ...candidateRow(best),
      })),
      sweptJobs(
        job,
        "nodes",
        considered.map(({ nodes, best }) => ({ value: nodes, best })),
      ),
    );
    if (considered.length > 0) await this.#draw(() => clustersChart(job, considered, deadlineSeconds));
    if (cheapest === null) this.#context.setExitCode(EXIT.noFeasiblePlan);
  }

  /** @param planned the jobs that the answer's plans are of */
  #show(
    document: object,
    text: string,
    csv: readonly Readonly<Record<string, string | number>>[],
    planned: readonly JobSpec[],
  ): void {
    if (this.#options.csv === true) return this.#output.data(csvText(csv));
    const estimates = this.#context.computing(() => this.#estimates(planned));
    const documents = planned[0] && documentsWords(planned[0]);
    if (this.#output.json)
      this.#output.document({
        ...document,
        ...(documents === undefined ? {} : { documents }),
        ...(estimates === undefined ? {} : { estimates }),
      });
    else
      this.#output.data(
        [text, documents, estimates && estimatesWords(estimates)]
          .filter((part) => part !== undefined)
          .join("\n\n"),
      );
  }

  async #draw(svg: () => string): Promise<void> {
    if (this.#options.svg === undefined) return;
    await writeWhole(this.#options.svg, svg(), "--svg");
    this.#output.note(`the picture is in ${resolve(this.#options.svg)}`);
  }
}

/** An answer about one job, whether its packed documents were counted, and whether its profile is estimated. */
function showAdvice(
  answer: { readonly estimatedProfile?: string },
  text: (colors: Colors) => string,
  job: JobSpec,
  context: Context,
): void {
  const output = context.output();
  const documents = documentsWords(job);
  if (output.json) output.document({ ...answer, ...(documents === undefined ? {} : { documents }) });
  else
    output.data(
      [text(output.colors), documents, answer.estimatedProfile]
        .filter((part) => part !== undefined)
        .join("\n\n"),
    );
}

export function addAdvice(program: Command, context: Context): void {
  addWhyNot(program, context);
  addExplain(program, context);
  addWhatIf(program, context);
}

function addWhyNot(program: Command, context: Context): void {
  const command = program
    .command("why-not")
    .description(
      "why a plan is not chosen: what rejects it, by how much, and the " +
        "smallest change that makes it feasible; or what is better. Offline for a job file",
    )
    .argument("<job>", JOB_HELP)
    .argument("<plan>", `${PLAN_HELP}; or a part of one, e.g. tp8,pp2: the best of those with it`)
    .addOption(profileOption());
  addPlanningOptions(command).action(async (path: string, text: string, options: AdviceOptions) => {
    const { job, profile, trials, gpuBytes, ranked } = await loadJob(path, options.profile, options, context);
    const plan = ranked(text) ?? (await chooseAnyPlan(text, "plan", job, profile, context));
    const answer = context.computing(() => whyNot(job, profile, plan, trials));
    showAdvice(answer, (colors) => whyNotText(answer, gpuBytes, colors), job, context);
  });
}

function addExplain(program: Command, context: Context): void {
  const command = program
    .command("explain")
    .description("how one plan wins over another, term by term. Offline for a job file")
    .argument("<job>", JOB_HELP)
    .argument("[a]", `${PLAN_HELP}; default: the best`)
    .argument("[b]", `${PLAN_HELP}; default: the best, or the second best beside it`)
    .addOption(profileOption());
  type Given = [path: string, a: string | undefined, b: string | undefined, options: AdviceOptions];
  addPlanningOptions(command).action(async (...[path, a = "1", b, options]: Given) => {
    const { job, profile, trials, ranked } = await loadJob(path, options.profile, options, context);
    const other = b ?? (a === "1" ? "2" : "1");
    const [first, second] = (await choosePlans(
      [
        { text: a, field: "A", plan: ranked(a) },
        { text: other, field: "B", plan: ranked(other) },
      ],
      job,
      profile,
      context,
    )) as [PlanOfJob, PlanOfJob];
    const answer = explain(job, profile, first, second, measuredOfBoth(trials, first, second));
    showAdvice(answer, (colors) => explanationText(answer, colors), job, context);
  });
}

function addWhatIf(program: Command, context: Context): void {
  const command = program
    .command("what-if")
    .description(
      "the best plan under other circumstances: a sweep, the longest " +
        "sequence, time against memory, the cheapest cluster. Offline for a job file",
    )
    .argument("<job>", JOB_HELP)
    .addOption(profileOption())
    .addOption(
      new Option(
        "--axis <axis>",
        "what to vary; bandwidths and compute-speed are factors of the measured ones",
      ).choices(SWEEP_AXES),
    )
    .option(
      "--values <list>",
      "values of the axis, e.g. 4k,8k or 4k..256k (doubling); with --deadline: numbers of nodes",
    )
    .option(
      "--compute-speed <list>",
      "as --axis compute-speed --values: GPUs that compute so many times as fast",
    )
    .option(
      "--gpu <list>",
      `the best plan on each kind of GPU, by its estimated profile and with its memory: ${GPU_NAMES.join(", ")}`,
    )
    .option("--largest-sequence", "the longest sequence for which a plan fits")
    .option(
      "--unit <tokens>",
      "of --largest-sequence: lengths are multiples of it (default: 1024)",
      lengthTokensArgument(2 ** 30),
    )
    .option(
      "--sequences <n>",
      "of --largest-sequence: sequences of a step (default: 1)",
      integerArgument(1, 2 ** 20),
    )
    .option("--pareto", "time against memory: the Pareto-optimal plans");
  addPlanningOptions(command)
    .addOption(
      new Option(
        "--deadline <duration>",
        "the cheapest cluster that trains --tokens in it, e.g. 30d",
      ).argParser(durationArgument),
    )
    .option("--tokens <n>", "tokens to train on, e.g. 2T", trainingTokensArgument)
    .option("--price <amount>", "of one GPU for an hour", numberArgument(0, 1e6))
    .option("--csv", "comma-separated values")
    .option("--svg <file>", "write a picture too")
    .action((path: string, options: WhatIfOptions) => whatIf(path, options, context));
}
