import { isAbsolute } from "node:path";
import {
  asSource,
  dataFiles,
  dataPaths,
  ProblemError,
  sourcesOf,
  type Data,
  type DataSource,
  type JobSpec,
  type PackedDocuments,
  type ProblemDetail,
  type SingleData,
} from "@internevo/domain";
import {
  assertHeldOut,
  assertMayBeData,
  assertHoldsBatches,
  assertKnowsDocuments,
  assertRoomForDocuments,
  countPackedDocuments,
  FULLY_READ_BYTES,
  openData,
  openSource,
  type DataPlaces,
  type DocumentTask,
  type Judge,
  type Reading,
  type TokenData,
} from "@internevo/data";

/** Faults that are told at most. */
const MOST_TOLD = 20;

/** What is to be checked, with what is known of the job. */
export interface DataTask {
  readonly data: Data | null;
  /** V of the model: every token is below it. */
  readonly vocabularySize?: number;
  readonly sequenceLengthTokens?: number;
  /** Of held-out data: the batches that it must hold. */
  readonly evaluated?: Pick<JobSpec, "validation" | "globalBatchTokens">;
  /** Of held-out data: what is trained on. */
  readonly trained?: Data | null;
  /** What else decides how packed documents are counted; where it is left out, they are not. */
  readonly counting?: Pick<DocumentTask, "ranks"> & Pick<DocumentTask["model"], "slidingWindowTokens">;
}

/** What is known of data once it is checked. */
export interface CheckedData {
  readonly tokens: number;
  /** Of its text, which is written as tokens before it is trained on; absent: none of it is text. */
  readonly textBytes?: number;
  /** What packed documents leave of attention; null where none are packed, or it was not asked for. */
  readonly documents: PackedDocuments | null;
}

/** Where an installation reads data and weights. */
export type Allowed = DataPlaces;

async function checkTokens(
  data: TokenData,
  vocabularySize: number | undefined,
  reading: Reading,
): Promise<number> {
  const source = await openSource(data, reading);
  assertKnowsDocuments(data, source);
  if (vocabularySize !== undefined && source.sizeBytes <= FULLY_READ_BYTES) await source.read(vocabularySize);
  return source.tokenCount;
}

/** Bytes are tokens. */
async function checkText(data: Extract<SingleData, { format: "text" }>, reading: Reading): Promise<number> {
  const details: ProblemDetail[] = [];
  let tokens = 0;
  for (const { path, field } of dataPaths(data)) {
    try {
      const { handle, sizeBytes } = await openData(path, field, reading);
      await handle.close();
      tokens += sizeBytes;
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      details.push(...error.details);
    }
  }
  const [first] = details;
  if (first)
    throw new ProblemError(
      "data-invalid",
      `${String(first.value)} ${first.message}`,
      details.slice(0, MOST_TOLD),
    );
  return tokens;
}

/** @returns its tokens */
async function checkSource(
  data: SingleData,
  vocabularySize: number | undefined,
  sequenceLengthTokens: number | undefined,
  reading: Reading,
): Promise<number> {
  const tokens =
    data.format === "text"
      ? await checkText(data, reading)
      : await checkTokens(data, vocabularySize, reading);
  if (sequenceLengthTokens !== undefined && tokens < sequenceLengthTokens + 1) {
    throw new ProblemError(
      "data-invalid",
      `the data holds ${tokens} tokens: fewer than one sequence of ${sequenceLengthTokens} and its last target`,
      [
        {
          field: "data",
          value: tokens,
          message: "holds less than one sequence",
          remedy: `give at least ${sequenceLengthTokens + 1} tokens, or a shorter sequenceLengthTokens`,
        },
      ],
    );
  }
  return tokens;
}

interface Size {
  readonly tokens: number;
  readonly textBytes?: number;
}

/** Checks every source, so that the faults of all are told. */
async function checkSources(
  sources: readonly DataSource[],
  vocabularySize: number | undefined,
  sequenceLengthTokens: number | undefined,
  reading: Reading,
): Promise<Size> {
  let [tokens, textBytes] = [0, 0];
  const problems: ProblemError[] = [];
  for (const { data, part } of sources) {
    try {
      const found = await asSource(part, () =>
        checkSource(data, vocabularySize, sequenceLengthTokens, reading),
      );
      tokens += found;
      // Bytes are tokens.
      if (data.format === "text") textBytes += found;
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      problems.push(error);
    }
  }
  const [first] = problems;
  if (first === undefined) return { tokens, ...(textBytes > 0 ? { textBytes } : {}) };
  const details = problems.flatMap((problem) => problem.details).slice(0, MOST_TOLD);
  throw new ProblemError(first.code, first.message, details, { cause: first });
}

/**
 * Checks that a job's data can be trained on, as the machine that serves the API sees it.
 * @throws ProblemError `job-invalid` without data or with a relative path; `data-invalid` missing,
 * unreadable, empty, truncated, a token beyond the vocabulary, fewer tokens than one sequence, more documents in
 * a sequence than there is room for; or not where data may lie, whether it is there or not.
 */
export async function checkData({
  data,
  vocabularySize,
  sequenceLengthTokens,
  evaluated,
  trained,
  counting,
  roots,
  own,
}: DataTask & Allowed): Promise<CheckedData> {
  if (data === null) {
    throw new ProblemError("job-invalid", "a job without data cannot be run", [
      {
        field: "data",
        message: "is missing",
        remedy: "add data, or ask for its plan only: `internevo plan`, or POST /api/v1/plans",
      },
    ]);
  }
  const relative = dataPaths(data).filter(({ path }) => !isAbsolute(path));
  if (relative.length > 0) {
    throw new ProblemError(
      "job-invalid",
      `${relative[0]?.field} is a relative path`,
      relative
        .slice(0, MOST_TOLD)
        .map(({ path, field }) => ({
          field,
          value: path,
          message: "is a relative path, and the services do not know where your job file is",
          remedy:
            "give the path from / on, on the machine where the services run; " +
            "`internevo submit` completes paths from the job file's folder",
        })),
    );
  }
  const judge: Judge = (files) => assertMayBeData(files, { roots, own });
  await judge(dataFiles(data));
  if (trained) await assertHeldOut(data, trained);
  const sources = sourcesOf(data);
  const size = await checkSources(sources, vocabularySize, sequenceLengthTokens, { judge });
  if (evaluated !== undefined && sequenceLengthTokens !== undefined)
    assertHoldsBatches(size.tokens, { ...evaluated, sequenceLengthTokens });
  if (counting === undefined || vocabularySize === undefined || sequenceLengthTokens === undefined)
    return { ...size, documents: null };
  const { ranks, ...window } = counting;
  const model = { vocabularySize, ...window };
  const counted = await countPackedDocuments(data, { model, sequenceLengthTokens, ranks }, { judge });
  if (counted === undefined) return { ...size, documents: null };
  const fullest = sources[counted.mostIn]?.data;
  assertRoomForDocuments(data, counted.mostDocuments, dataFiles(fullest ?? data)[0]?.path ?? "the data");
  return { ...size, documents: counted.documents ?? null };
}
