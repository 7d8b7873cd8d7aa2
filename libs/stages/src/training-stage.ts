import { resolve } from "node:path";
import { asPartOf, dataFiles, heldOutData, ProblemError, type JobSpec } from "@internevo/domain";
import {
  assertMayBeData,
  assertHoldsBatches,
  assertInitialWeights,
  assertLeadsStill,
  assertRoomForDocuments,
  assertWeightsLeadStill,
  dataRootsOf,
  datasetsDirectory,
  handOverWeights,
  prepareData,
  prepareDataset,
  type DataPlaces,
  type DataRoots,
  type Dataset,
  type DatasetUser,
  type Judge,
  type PreparedData,
  type PrepareOptions,
  type Reading,
} from "@internevo/data";
import { assertProgram, trainerIn, type Trainer } from "@internevo/launcher";
import type { CommandType } from "@internevo/contracts";
import type { CommandContext, Effect } from "@internevo/service-kit";
import { unendedJobs, type Database, type JobRow, type StageState } from "@internevo/store";
import type { Static, TObject } from "typebox";
import { weightsDirectory } from "./directories.ts";
import { endedByProblem } from "./failure.ts";
import type { JobFeed } from "./job-feed.ts";
import type { nativeConfig } from "./native-config.ts";
import { PreparingTurns } from "./preparing-turns.ts";
import { stageFeed } from "./stage-feed.ts";
import { jobOfWeights } from "./weights-of-job.ts";

/** What every stage that starts the trainer is set to. */
export interface TrainingSettings {
  readonly trainer: Trainer;
  readonly dataDirectory: string;
  /** Where installations of this machine see each other. */
  readonly machineDirectory: string;
  readonly dataRoots: DataRoots;
  /** Hosts of clusters with launcher: ssh. */
  readonly clustersFile?: string | undefined;
  readonly threadsPerRank: number;
  /** Attempts in a row that may lose ranks without progress, of what measures. */
  readonly lostRankLimit: number;
  /** Share of a host's processor time from which on others count as a disturbance. */
  readonly mostOthersPercent: number;
}

export const trainingSettings = (config: Static<TObject<typeof nativeConfig>>): TrainingSettings => ({
  trainer: trainerIn(config.INTERNEVO_NATIVE_DIRECTORY),
  dataDirectory: resolve(config.INTERNEVO_DATA_DIRECTORY),
  machineDirectory: resolve(config.INTERNEVO_MACHINE_DIRECTORY),
  dataRoots: dataRootsOf(config.INTERNEVO_DATA_ROOTS),
  clustersFile: config.INTERNEVO_CLUSTERS,
  threadsPerRank: config.INTERNEVO_THREADS_PER_RANK,
  lostRankLimit: config.INTERNEVO_LOST_RANK_LIMIT,
  mostOthersPercent: config.INTERNEVO_MOST_OTHERS_PERCENT,
});

const placesOf = ({ dataRoots, dataDirectory }: TrainingSettings): DataPlaces => ({
  roots: dataRoots,
  own: dataDirectory,
});

const cutOf = ({ model, sequenceLengthTokens }: JobSpec) => ({
  vocabularySize: model.vocabularySize,
  sequenceLengthTokens,
});

/** How the stage of a job prepares its data: it is the job's until that has ended. */
export interface Preparing extends PrepareOptions {
  readonly signal: AbortSignal;
  readonly user: DatasetUser;
  readonly project: string;
}

export const preparingFor = (
  { id, project }: Pick<JobRow, "id" | "project">,
  database: Database,
  signal: AbortSignal,
): Preparing => ({ signal, user: { jobId: id, unended: (ids) => unendedJobs(database.db, ids) }, project });

/** Of this process. */
const turns = new PreparingTurns();

/** What ranks are given. */
export interface PreparedTraining {
  readonly dataset: PreparedData;
  /** The folder of the weights to begin with; undefined: there are none, or they are not needed. */
  readonly weights: string | undefined;
}

type PreparedJob = Pick<JobRow, "id" | "spec" | "project" | "weightsOf">;

async function checkedWeights(
  settings: TrainingSettings,
  database: Database,
  job: PreparedJob,
  reading: Omit<Reading, "judge">,
): Promise<string | undefined> {
  const { initialWeights, model } = job.spec;
  if (initialWeights === undefined) return undefined;
  const ofJob = await jobOfWeights(settings.dataDirectory, database, job, initialWeights);
  const checked = await assertInitialWeights(
    initialWeights,
    model,
    { ...placesOf(settings), ofJob },
    reading,
  );
  return handOverWeights(checked, weightsDirectory(settings.dataDirectory, job.id));
}

/**
 * The folder of the weights that a job begins with, checked; undefined where it names none. As
 * {@link prepareTraining} has it.
 * @throws ProblemError
 */
export const prepareWeights = (
  settings: TrainingSettings,
  database: Database,
  job: PreparedJob,
  options: Preparing,
): Promise<string | undefined> =>
  turns.run(options.project, options.signal, (pause) =>
    checkedWeights(settings, database, job, { ...options, pause }),
  );

/**
 * What every start of the trainer needs. Projects take turns in it.
 * @param isBegun training goes on from a checkpoint: the weights that it began with may be gone
 * @throws ProblemError for data that cannot be trained on, or a trainer that is not built.
 */
export async function prepareTraining(
  settings: TrainingSettings,
  database: Database,
  job: PreparedJob,
  options: Preparing,
  isBegun = false,
): Promise<PreparedTraining> {
  const { spec } = job;
  const { data } = spec;
  await assertProgram(settings.trainer);
  if (data === null)
    throw new ProblemError("data-invalid", "the job names no data", [
      { field: "data", message: "is missing", remedy: "add data to the job" },
    ]);
  const judge: Judge = (files) => assertMayBeData(files, placesOf(settings));
  await judge(dataFiles(data));
  return turns.run(options.project, options.signal, async (pause) => {
    const reading = { ...options, pause };
    const weights = isBegun ? undefined : await checkedWeights(settings, database, job, reading);
    const dataset = await prepareData(data, settings.dataDirectory, cutOf(spec), { ...reading, judge });
    return { dataset, weights };
  });
}

/**
 * Checks once more, right before ranks are started, that what they are given still leads to what was read.
 * @throws ProblemError `data-invalid`
 */
export async function assertPrepared(
  { dataDirectory }: TrainingSettings,
  spec: JobSpec,
  { dataset, weights }: PreparedTraining,
  heldOut?: Dataset,
): Promise<void> {
  const datasets = datasetsDirectory(dataDirectory);
  if (spec.data !== null) await assertLeadsStill(spec.data, dataset, datasets);
  const data = heldOutData(spec);
  if (data !== null && heldOut !== undefined)
    await asPartOf("validation", () => assertLeadsStill(data, heldOut, datasets));
  if (weights !== undefined) await assertWeightsLeadStill(weights);
}

/**
 * The held-out data of a job; undefined where it names none. @throws ProblemError for data that cannot be
 * evaluated, or that has fewer batches than the job asks for.
 */
export async function prepareHeldOut(
  settings: TrainingSettings,
  spec: JobSpec,
  options: Preparing,
): Promise<Dataset | undefined> {
  const data = heldOutData(spec);
  if (data === null) return undefined;
  const judge: Judge = (files) => assertMayBeData(files, placesOf(settings));
  return asPartOf("validation", async () => {
    await judge(dataFiles(data));
    const dataset = await turns.run(options.project, options.signal, (pause) =>
      prepareDataset(data, settings.dataDirectory, cutOf(spec), { ...options, judge, pause }),
    );
    assertHoldsBatches(dataset.tokenCount, spec);
    if (dataset.mostDocuments !== undefined)
      assertRoomForDocuments(data, dataset.mostDocuments, dataset.path);
    return dataset;
  });
}

/**
 * Runs a stage with its feed, which is closed whatever happens. An expected error is the job's failure;
 * others are thrown.
 */
export async function withStageFeed<T extends CommandType>(
  context: CommandContext<T> & { readonly data: { readonly jobId: string } },
  stage: StageState,
  work: (feed: JobFeed) => Promise<Effect>,
): Promise<Effect> {
  const feed = stageFeed(context);
  try {
    return await work(feed);
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    context.log.warn({ code: error.code, details: error.details }, error.message);
    return endedByProblem(context.data.jobId, stage, error);
  } finally {
    await feed.close();
  }
}
