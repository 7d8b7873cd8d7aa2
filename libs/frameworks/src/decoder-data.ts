import {
  dataPaths,
  formatPercent,
  MAXIMUM_SOURCES,
  MAXIMUM_STEPS,
  megatronStem,
  sharesOf,
  sourcesOf,
  type Data,
  type SingleData,
  type Validation,
} from "@internevo/domain";
import { isDecimal, type Argument, type Options } from "./command-line.ts";
import type { ExportedJob, ImportedConfiguration, TakenAs } from "./framework.ts";
import { CHECKPOINT_FOLDER } from "./job-fields.ts";

/*
 * Data, evaluation and checkpoints, as Megatron-LM and Megatron-DeepSpeed have options for them alike.
 */

/** The name of data in Megatron-LM's format; null for other data. */
const stemOf = (data: Validation["data"] | SingleData | undefined): string | null =>
  data?.format === "megatron" ? megatronStem(data.path) : null;

/** What is trained on, as --data-path takes it: one name, or each source's weight and name; null for other data. */
function blendOf(data: Data | null): readonly [string | number, ...(string | number)[]] | null {
  if (data === null) return null;
  const blend: (string | number)[] = [];
  for (const { data: source, weight } of sourcesOf(data)) {
    const stem = stemOf(source);
    if (stem === null) return null;
    blend.push(...(data.format === "mixture" ? [weight, stem] : [stem]));
  }
  const [first, ...rest] = blend;
  return first === undefined ? null : [first, ...rest];
}

/** Whether both programs can evaluate a job's held-out data: it is read as training data is. */
export const isEvaluated = ({ data, validation }: ExportedJob): boolean =>
  blendOf(data) !== null && stemOf(validation?.data) !== null;

/** Steps between evaluations where there are none: the programs divide by it all the same. */
const neverEvaluated = ({ steps }: ExportedJob): readonly Argument[] => [
  ["--eval-interval", steps],
  ["--eval-iters", 0],
];

/** Keeps no part of --data-path for evaluation. */
export const TRAINED_WHOLE: Argument = ["--split", "100,0,0"];

/**
 * What is trained on and what is evaluated. Left to themselves the programs keep a part of the data for evaluation, and
 * evaluate 100 batches of it.
 * @param none stands for data that the program does not read
 */
export function dataArguments(job: ExportedJob, none: readonly Argument[]): readonly Argument[] {
  const { data, validation } = job;
  const [train, valid] = [blendOf(data), stemOf(validation?.data)];
  if (train === null) return [...none, ...neverEvaluated(job)];
  if (valid === null || validation === undefined)
    return [["--data-path", ...train], TRAINED_WHOLE, ...neverEvaluated(job)];
  return [
    ["--train-data-path", ...train],
    ["--valid-data-path", valid],
    ["--eval-interval", validation.everySteps],
    ["--eval-iters", validation.batches],
  ];
}

/** Where checkpoints are written and how often; a run that is started again goes on from the newest. */
export function checkpointArguments(
  { checkpointing }: ExportedJob,
  load: readonly Argument[] = [["--load", CHECKPOINT_FOLDER]],
): readonly Argument[] {
  if (checkpointing === null) return [];
  return [["--save", CHECKPOINT_FOLDER], ...load, ["--save-interval", checkpointing.everySteps]];
}

/** A number of an option that is without effect on time and memory: what is none says nothing. */
export function plainNumber(options: Options, name: string, most: number, least = 1): number | undefined {
  const text = options.text(name) ?? "";
  const value = /^\d{1,15}$/.test(text) ? Number(text) : -1;
  return value >= least && value <= most ? value : undefined;
}

/** Whether it is a path that the script says, and not one that only running it tells. */
const isPlainPath = (path: string): boolean => /^[^\p{Cc}$]{1,4096}$/u.test(path);

/** The one path of an option; several, or one that only running the script tells, say nothing. */
function plainPath(options: Options, name: string): string | undefined {
  const [path, ...more] = options.all(name) ?? [];
  return path !== undefined && more.length === 0 && isPlainPath(path) ? path : undefined;
}

type MegatronData =
  | { readonly format: "megatron"; readonly path: string }
  | Pick<Extract<Data, { format: "mixture" }>, "format" | "sources">;

/**
 * A path, or weights and paths in turns. Paths without weights are mixed by their sizes, which a script does not say.
 */
function readBlend(options: Options, name: string): MegatronData | undefined {
  const path = plainPath(options, name);
  if (path !== undefined) return { format: "megatron", path };
  const values = options.all(name) ?? [];
  const sources = values.flatMap((weight, index) =>
    index % 2 === 0 && isDecimal(weight) && Number(weight) > 0 && Number(weight) <= 1e12
      ? [{ format: "megatron" as const, path: values[index + 1] ?? "", weight: Number(weight) }]
      : [],
  );
  const paths = sources.map((source) => source.path);
  const isWhole =
    sources.length > 0 &&
    2 * sources.length === values.length &&
    sources.length <= MAXIMUM_SOURCES &&
    paths.every(isPlainPath) &&
    new Set(paths.map(megatronStem)).size === paths.length &&
    !sharesOf(sources.map(({ weight }) => weight)).includes(0);
  return isWhole ? { format: "mixture", sources } : undefined;
}

/** How a program keeps documents apart. */
interface Packing {
  /** The option that does it. */
  readonly by: string;
  /** The token that ends a document; none where the data's own borders do. */
  readonly token: number | undefined;
}

/** Options that are taken as nothing, unless the data whose documents they part is known. */
const PACKING = [
  "--reset-position-ids",
  "--reset-attention-mask",
  "--dataloader-inter-document-masking",
  "--eod-mask-loss",
];

function readPacking(
  options: Options,
  { by, token }: Packing,
  takenAs: TakenAs[],
): Pick<Data, "packing" | "endOfDocumentToken"> {
  if (!options.has(by)) return {};
  takenAs.splice(0, takenAs.length, ...takenAs.filter(({ option }) => !PACKING.includes(option)));
  return { packing: "documents", ...(token === undefined ? {} : { endOfDocumentToken: token }) };
}

type Read = Pick<ImportedConfiguration, "data" | "validation" | "checkpointing">;

type Held = Validation & { readonly data: { readonly path: string } };

/** Held-out data that a script gives a data set of its own for. */
function readValidation(options: Options): Held | undefined {
  const path = plainPath(options, "--valid-data-path");
  const everySteps = plainNumber(options, "--eval-interval", MAXIMUM_STEPS);
  const batches = plainNumber(options, "--eval-iters", 1_000_000);
  if (path === undefined || everySteps === undefined || batches === undefined) return undefined;
  return { data: { format: "megatron", path }, everySteps, batches };
}

/** Checkpoints that a job keeps where it says nothing. */
const KEPT = 2;

/** How both programs divide --data-path where a script does not say it: training, validation and test. */
const OWN_SPLIT = "969, 30, 1";

/** The share of the data that is trained on; undefined for a text that says none. */
function trainedShare(split: string): number | undefined {
  const parts = (split.match(/[.\d]+/g) ?? []).map(Number);
  const share = (parts[0] ?? 0) / parts.reduce((sum, part) => sum + part, 0);
  return Number.isFinite(share) ? share : undefined;
}

/** Says that a job trains on what the program would keep for evaluation. */
function sayWhole(options: Options, takenAs: TakenAs[]): void {
  const given = options.text("--split");
  const share = trainedShare(given ?? OWN_SPLIT);
  if (share === undefined || share >= 1) return;
  const who = given === undefined ? `the program's default, ${OWN_SPLIT},` : "this";
  takenAs.push({
    option: "--split",
    value: given ?? "missing",
    as: `100,0,0: the job trains on all of the data; ${who} keeps ${formatPercent(1 - share)} of it for evaluation`,
  });
}

/** Options that are without effect on time and memory, and that became the job's own. */
function ownOptions({ validation, checkpointing }: Read, dataOption: string | undefined): string[] {
  return [
    ...(dataOption === undefined ? [] : [dataOption]),
    ...(dataOption === "--data-path" ? ["--split"] : []),
    ...(validation === undefined ? [] : ["--valid-data-path", "--eval-interval", "--eval-iters"]),
    ...(checkpointing === undefined ? [] : ["--save-interval"]),
  ];
}

/**
 * Data, held-out data and checkpoints of a script, where it says them whole.
 * @param found what is taken otherwise, and what is without effect: the job's own is taken out of it
 */
export function readData(
  options: Options,
  packing: Packing | null,
  { takenAs, ignored }: { readonly takenAs: TakenAs[]; readonly ignored: string[] },
): Read {
  const dataOption = ["--data-path", "--train-data-path"].find((name) => readBlend(options, name));
  const data = dataOption === undefined ? undefined : readBlend(options, dataOption);
  const trained = data === undefined ? [] : dataPaths(data).map(({ path }) => megatronStem(path));
  const validation = data === undefined ? undefined : readValidation(options);
  const packed = data === undefined || packing === null ? {} : readPacking(options, packing, takenAs);
  const everySteps = options.has("--save")
    ? plainNumber(options, "--save-interval", MAXIMUM_STEPS)
    : undefined;
  if (dataOption === "--data-path") sayWhole(options, takenAs);
  const read: Read = {
    ...(data === undefined ? {} : { data: { ...data, ...packed } }),
    ...(validation === undefined || trained.includes(megatronStem(validation.data.path))
      ? {}
      : { validation }),
    ...(everySteps === undefined ? {} : { checkpointing: { everySteps, keepLast: KEPT } }),
  };
  const own = ownOptions(read, dataOption);
  ignored.splice(0, ignored.length, ...ignored.filter((name) => !own.includes(name)));
  return read;
}
