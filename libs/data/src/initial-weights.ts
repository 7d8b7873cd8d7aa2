import type { Stats } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import {
  beginningOf,
  formatBytes,
  formatCounted,
  isNestedDeeper,
  ProblemError,
  RopeScalingSchema,
  validate,
  type Model,
} from "@internevo/domain";
import { Type, type Static, type TSchema } from "typebox";
import { ANY_TENSORS, FolderTensors } from "./awaited-tensors.ts";
import {
  ConfigSchema,
  hasFusedProjections,
  huggingFaceMembers,
  memberFault,
  SUPPORTED_MODELS,
  type Config,
  type Member,
} from "./hugging-face.ts";
import { assertMayBeWeights, whereItLeads, type Judge, type WeightsPlaces } from "./data-roots.ts";
import { openData, readExactly, type Reading } from "./open-data.ts";
import { checkSafetensors } from "./safetensors.ts";
import { COPY_AGAIN, WEIGHTS_FIELD as FIELD, weightsFault as refuse } from "./weights-fault.ts";

/** What describes weights is small; the list of a checkpoint's slices is the largest of it. */
const MOST_CONFIG_BYTES = 2 ** 20;
const MOST_LIST_BYTES = 2 ** 26;
/**
 * Levels of a description; a checkpoint's has eight. What is deeper would overflow the stack of whatever
 * walks through it.
 */
const MOST_LEVELS = 100;
/** Characters that a message tells of a file's own words. */
const MOST_TOLD = 100;

const Scalar = Type.Optional(Type.Union([Type.Number(), Type.Boolean(), Type.Null()]));

/** What describes weights, as it was read, and where the files with their tensors lie. */
export interface CheckedWeights {
  readonly documents: ReadonlyMap<string, string>;
  /** By their names in the folder, as ranks are told them. */
  readonly files: ReadonlyMap<string, string>;
}

/** A folder of weights that is being read, and what was found in it so far. */
interface Folder {
  readonly path: string;
  readonly places: WeightsPlaces;
  readonly reading: Reading;
  readonly documents: Map<string, string>;
  readonly files: Map<string, string>;
}

/** Of a file in the same folder, never of a path elsewhere. */
const FileName = Type.String({ minLength: 1, maxLength: 255, pattern: "^(?!\\.{1,2}$)[^/\\u0000]+$" });
const IndexSchema = Type.Object({ weight_map: Type.Record(Type.String(), FileName) });

const SIZES = [
  "hiddenSize",
  "layers",
  "heads",
  "kvHeads",
  "ffnHiddenSize",
  "vocabularySize",
  "tiedEmbeddings",
  "ropeTheta",
  "normEpsilon",
  "headSize",
  "queryKeyNorm",
  "queryKeyValueBias",
  "slidingWindowTokens",
] as const satisfies readonly (keyof Model)[];
const ManifestSchema = Type.Object({
  content: Type.Object({
    identity: Type.Object({
      model: Type.Object({
        ...(Object.fromEntries(SIZES.map((size) => [size, Scalar])) as Record<
          (typeof SIZES)[number],
          typeof Scalar
        >),
        ropeScaling: Type.Optional(RopeScalingSchema),
      }),
    }),
    files: Type.Array(
      Type.Object({ name: FileName, bytes: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }) }),
      { minItems: 1 },
    ),
  }),
});

/**
 * What a document should have had, by the field where it first does not. What it has instead is not told: it
 * may be any file of this machine.
 */
function shapeFault(schema: TSchema, value: unknown): string | undefined {
  try {
    validate(schema, value, "data-invalid", "the document");
    return undefined;
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    const [fault] = error.details;
    return `${beginningOf(fault?.field ?? "", MOST_TOLD)}: ${beginningOf(fault?.remedy ?? "", MOST_TOLD)}`;
  }
}

/**
 * A description of weights: of bounded size and depth, and checked whole before anything of it is used.
 * Undefined when there is none.
 * @throws ProblemError `data-invalid`, which tells what is expected and nothing of what is there.
 */
async function readDocument<S extends TSchema>(
  { path: folder, places, reading, documents }: Folder,
  name: string,
  schema: S,
  mostBytes: number,
  remedy: string,
): Promise<Static<S> | undefined> {
  const path = join(folder, name);
  await assertMayBeWeights([{ path, field: FIELD }], places);
  if ((await statIfThere(path)) === undefined) return undefined;
  const { handle, sizeBytes } = await openData(path, FIELD, reading);
  let text: string;
  try {
    if (sizeBytes > mostBytes)
      throw refuse(
        path,
        `is larger than the ${formatBytes(mostBytes)} that a description of weights may have`,
        remedy,
      );
    text = (await readExactly(handle, 0, sizeBytes)).toString("utf8");
  } finally {
    await handle.close();
  }
  if (isNestedDeeper(text, MOST_LEVELS))
    throw refuse(path, `is nested more than ${MOST_LEVELS} levels deep`, remedy);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw refuse(path, "is not JSON", remedy);
  }
  const fault = shapeFault(schema, value);
  if (fault !== undefined) throw refuse(path, `is no description of weights: ${fault}`, remedy);
  documents.set(name, text);
  return value as Static<S>;
}

const WEIGHTS_REMEDY = "use the model of these weights, or other weights";

/** @throws ProblemError `data-invalid` that names every member in which the weights are not the model's. */
function assertEqual(path: string, members: readonly Member[], model: Model): void {
  const faults = members.flatMap((member) => memberFault(member, model) ?? []);
  const [first, ...others] = faults;
  if (first === undefined) return;
  const more =
    others.length === 0
      ? ""
      : `, and ${formatCounted(others.length, "more member")} ${others.length === 1 ? "differs" : "differ"}`;
  throw new ProblemError(
    "data-invalid",
    `${path} ${first}${more}`,
    faults.map((message) => ({ field: FIELD, value: path, message, remedy: WEIGHTS_REMEDY })),
  );
}

/** Undefined where nothing is there. @throws ProblemError `data-invalid` where that cannot be told. */
async function statIfThere(path: string): Promise<Stats | undefined> {
  return stat(path).catch((error: unknown) => {
    const { code = String(error) } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    throw refuse(path, `cannot be read (${code})`, "let the services read it, or give another folder", error);
  });
}

/** @returns sizes in bytes, in the order of the names. */
async function sizesOfFiles({ path: folder, places }: Folder, names: readonly string[]): Promise<number[]> {
  await assertMayBeWeights(
    names.map((name) => ({ path: join(folder, name), field: FIELD })),
    places,
  );
  const sizes: number[] = [];
  for (const name of names) {
    const found = await statIfThere(join(folder, name));
    if (!found?.isFile() || found.size === 0)
      throw refuse(join(folder, name), found ? "is no file with content" : "does not exist", COPY_AGAIN);
    sizes.push(found.size);
  }
  return sizes;
}

/** The files of a folder that have its tensors. */
async function tensorFiles(folder: Folder): Promise<readonly string[]> {
  const { path: at, places } = folder;
  const whole = "model.safetensors";
  await assertMayBeWeights([{ path: join(at, whole), field: FIELD }], places);
  if ((await statIfThere(join(at, whole))) !== undefined) return [whole];
  const name = "model.safetensors.index.json";
  const remedy = "copy the index of the weights again";
  const index = await readDocument(folder, name, IndexSchema, MOST_LIST_BYTES, remedy);
  if (!index)
    throw refuse(
      at,
      "has neither model.safetensors nor model.safetensors.index.json",
      "give a folder with safetensors files",
    );
  const names = new Set(Object.values(index.weight_map));
  if (names.size === 0)
    throw refuse(
      join(at, name),
      "is no description of weights: weight_map: give the file of each tensor",
      remedy,
    );
  return [...names];
}

async function assertHuggingFace(folder: Folder, config: Config, model: Model): Promise<void> {
  const { path: at, reading } = folder;
  const path = join(at, "config.json");
  const members = huggingFaceMembers(config);
  if ("message" in members) throw refuse(path, members.message, members.remedy);
  assertEqual(path, members, model);
  const files = await tensorFiles(folder);
  await sizesOfFiles(folder, files);
  const tensors = new FolderTensors(model, hasFusedProjections(config));
  for (const name of files) {
    const { forRanks } = await checkSafetensors(join(at, name), tensors, reading);
    folder.files.set(name, forRanks);
  }
  const missing = tensors.missing();
  if (missing !== undefined) throw refuse(at, `holds no ${missing}`, "give the whole model");
}

const refuseLink = (path: string): ProblemError =>
  refuse(
    path,
    "is a link to a file outside of the checkpoint",
    "copy the checkpoint with its files, not links to them",
  );

/** Checks the files of a checkpoint: where they lie, their sizes, and that their headers are sound. */
async function assertCheckpointFiles(
  folder: Folder,
  files: readonly { readonly name: string; readonly bytes: number }[],
): Promise<void> {
  const { path: at, places, reading } = folder;
  // A checkpoint is written with its files in it. Where all files may be read, links would lead anywhere.
  const own = places.roots === null ? await whereItLeads(at) : undefined;
  const isOutside = (leads: string | undefined): boolean =>
    own !== undefined && (leads === undefined || dirname(leads) !== own);
  for (const { name } of own === undefined ? [] : files)
    if (isOutside(await whereItLeads(join(at, name)))) throw refuseLink(join(at, name));
  const sizes = await sizesOfFiles(
    folder,
    files.map(({ name }) => name),
  );
  for (const [index, { name, bytes }] of files.entries()) {
    const path = join(at, name);
    if (sizes[index] !== bytes)
      throw refuse(path, `has ${String(sizes[index])} bytes; the manifest says ${bytes}`, COPY_AGAIN);
    const { leads, forRanks } = await checkSafetensors(path, ANY_TENSORS, reading);
    if (isOutside(leads)) throw refuseLink(path);
    folder.files.set(name, forRanks);
  }
}

/**
 * Checks that weights can be begun with: that the folder exists, that it is a Hugging Face folder of a model
 * that is known or one checkpoint, whose model is the job's, and that its files are there. The headers of the files are read:
 * each tensor of a Hugging Face folder must be the model's. Data, checksums and slices are checked when they are loaded.
 * @param places what is elsewhere is refused, links followed, and nothing is said of it.
 * @returns what was read, and where the files lay that were judged and checked
 * @throws ProblemError `data-invalid`
 */
export async function assertInitialWeights(
  folder: string,
  model: Model,
  places: WeightsPlaces = { roots: null, own: undefined, ofJob: null },
  reading: Omit<Reading, "judge"> = {},
): Promise<CheckedWeights> {
  const judge: Judge = (files) => assertMayBeWeights(files, places);
  const found: Folder = {
    path: folder,
    places,
    reading: { ...reading, judge },
    documents: new Map(),
    files: new Map(),
  };
  await judge([{ path: folder, field: FIELD }]);
  await assertFolder(found, model);
  return found;
}

/** @throws ProblemError `data-invalid` for a folder without weights of the model */
async function assertFolder(whole: Folder, model: Model): Promise<void> {
  const { path: folder } = whole;
  const give = `give a Hugging Face folder of a ${SUPPORTED_MODELS} model (config.json and safetensors), or the directory of one checkpoint (step-<N>)`;
  const found = await stat(folder).catch((error: unknown) => {
    const code = (error as NodeJS.ErrnoException).code;
    throw refuse(
      folder,
      code === "ENOENT" || code === "ENOTDIR"
        ? "does not exist"
        : `cannot be read (${code ?? String(error)})`,
      give,
      error,
    );
  });
  if (!found.isDirectory()) throw refuse(folder, "is no directory", give);
  const config = await readDocument(
    whole,
    "config.json",
    ConfigSchema,
    MOST_CONFIG_BYTES,
    `give the config.json of a ${SUPPORTED_MODELS} model`,
  );
  if (config) return assertHuggingFace(whole, config, model);
  const name = "manifest.json";
  const manifest = await readDocument(
    whole,
    name,
    ManifestSchema,
    MOST_LIST_BYTES,
    "give another checkpoint",
  );
  if (!manifest) {
    const names = await readdir(folder).catch((error: unknown) => {
      throw refuse(
        folder,
        `cannot be read (${(error as NodeJS.ErrnoException).code ?? "unknown reason"})`,
        give,
        error,
      );
    });
    const steps = names.filter((name) => /^step-\d+$/.test(name));
    if (steps.length > 0)
      throw refuse(
        folder,
        "is the directory of a run's checkpoints",
        `give one of them, such as ${join(folder, steps.sort((a, b) => Number(b.slice(5)) - Number(a.slice(5)))[0] as string)}`,
      );
    throw refuse(folder, "has neither a config.json nor a manifest.json", give);
  }
  const { identity, files } = manifest.content;
  assertEqual(
    join(folder, name),
    [...SIZES, "ropeScaling" as const].map((here) => ({ there: here, found: identity.model[here], here })),
    model,
  );
  await assertCheckpointFiles(whole, files);
}
