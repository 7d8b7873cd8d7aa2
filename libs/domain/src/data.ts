import sizes from "../../../native/src/executor_sizes/executor_sizes.json" with { type: "json" };
import { Type, type Static, type TProperties } from "typebox";
import { Line } from "./text.ts";

/** Documents of a sequence that there is room for where a job does not say. */
export const DEFAULT_DOCUMENTS_PER_SEQUENCE = sizes.documentsPerSequence;

const packing = {
  packing: Type.Optional(
    Type.Union([Type.Literal("none"), Type.Literal("documents")], {
      description:
        "documents: attention, positions and loss stay inside a document; none, the default: a sequence is one text",
    }),
  ),
  endOfDocumentToken: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: 2 ** 31 - 2,
      description:
        "with packing: ends a document, where the data's own borders are not to be used or there are none",
    }),
  ),
  maxDocumentsPerSequence: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: 2 ** 31 - 1,
      description: `with packing: documents of a sequence that memory is planned for; ${DEFAULT_DOCUMENTS_PER_SEQUENCE} where it is left out`,
    }),
  ),
};

/**
 * Paths that a job names at most, those of all sources and of held-out data together. Each is looked at whenever the
 * job is read, and kept with it.
 */
export const MAXIMUM_PATHS = 10_000;

/** Formats whose data is one path. */
type FileFormat = "tokens" | "megatron" | "internevo";

const textData = <More extends TProperties>(more: More) =>
  Type.Object(
    {
      format: Type.Literal("text"),
      paths: Type.Array(Line(4096), {
        minItems: 1,
        maxItems: MAXIMUM_PATHS,
        description: `a job names at most ${MAXIMUM_PATHS} paths, those of all sources and of held-out data together`,
      }),
      ...more,
    },
    { additionalProperties: false },
  );

const fileData = <Format extends FileFormat, More extends TProperties>(
  format: Format,
  more: More,
  description?: string,
) =>
  Type.Object(
    { format: Type.Literal(format), path: Line(4096), ...more },
    { additionalProperties: false, ...(description === undefined ? {} : { description }) },
  );

/** Data in each format, with further fields. */
const inEachFormat = <More extends TProperties>(more: More) =>
  [
    textData(more),
    fileData("tokens", more),
    fileData("megatron", more, "path: NAME.bin, NAME.idx or NAME"),
    fileData(
      "internevo",
      more,
      "path: NAME.bin, a JSON line for each document; NAME.bin.meta lies beside it",
    ),
  ] as const;

/** After so many sequences the order in which a mixture takes them from its sources repeats. */
export const MIXTURE_CYCLE_SEQUENCES = 10_000;
export const MAXIMUM_SOURCES = 100;

const mixtureData = Type.Object(
  {
    format: Type.Literal("mixture"),
    sources: Type.Array(
      Type.Union([
        ...inEachFormat({
          weight: Type.Number({
            exclusiveMinimum: 0,
            maximum: 1e12,
            description:
              "the source's share of the sequences, and so of the tokens, is its weight / the sum of all weights",
          }),
        }),
      ]),
      { minItems: 1, maxItems: MAXIMUM_SOURCES },
    ),
    ...packing,
  },
  {
    additionalProperties: false,
    description:
      "several sources by their weights; a source that is read to its end begins again in another order",
  },
);

/**
 * Training data: `text` files, each a document, read as byte tokens; a token file in the project's own format
 * (`tokens`); Megatron-LM's NAME.bin with NAME.idx; InternEvo's NAME.bin with NAME.bin.meta; or a `mixture` of such.
 */
export const DataSchema = Type.Union([...inEachFormat(packing), mixtureData]);
export type Data = Static<typeof DataSchema>;

/** Data that is read as one, and not a mixture. */
export type SingleData = Exclude<Data, { format: "mixture" }>;

/** Held-out data in a format of training data. How documents are packed is the training data's. */
export const HeldOutDataSchema = Type.Union([...inEachFormat({})], {
  description: "held-out data, in a format of data; its documents are packed as those are",
});

type HeldOutData = Static<typeof HeldOutDataSchema>;

/** Stands for held-out data where it is not looked at: ten thousand paths take a while. */
export const ANY_HELD_OUT_DATA: HeldOutData = { format: "tokens", path: "/" };

/** One of the sources of a job's data; the only one, where the data is no mixture. */
export interface DataSource {
  readonly data: SingleData;
  /** Beside the other sources' weights. */
  readonly weight: number;
  /** The field of a job that it stands in: `data`, or `data.sources.0`. */
  readonly part: string;
}

/** The sources of data, packed as the data says. */
export function sourcesOf(data: Data): readonly DataSource[] {
  if (data.format !== "mixture") return [{ data, weight: 1, part: "data" }];
  const { format: _, sources, ...packed } = data;
  return sources.map(({ weight, ...source }, index) => ({
    data: { ...source, ...packed },
    weight,
    part: `data.sources.${index}`,
  }));
}

/**
 * The sequences that each source gives to a cycle of a mixture, in proportion to the weights: rounded down, and what is
 * then left goes to those that lost most.
 * @returns whole numbers that add up to {@link MIXTURE_CYCLE_SEQUENCES}; 0 for a weight that is too small beside the
 * others
 */
export function sharesOf(weights: readonly number[]): readonly number[] {
  const sum = weights.reduce((total, weight) => total + weight, 0);
  const exact = weights.map((weight) => (weight / sum) * MIXTURE_CYCLE_SEQUENCES);
  const shares = exact.map(Math.floor);
  const byLoss = [...exact.keys()].sort(
    (a, b) => (exact[b] as number) - (shares[b] as number) - ((exact[a] as number) - (shares[a] as number)),
  );
  const left = MIXTURE_CYCLE_SEQUENCES - shares.reduce((total, share) => total + share, 0);
  for (const index of byLoss.slice(0, left)) shares[index] = (shares[index] as number) + 1;
  return shares;
}

/** The held-out data as data that is read: packed as the training data is. */
export function heldOutData({
  data,
  validation,
}: {
  readonly data: Data | null;
  readonly validation?: { readonly data: HeldOutData };
}): SingleData | null {
  if (validation === undefined) return null;
  const { packing, endOfDocumentToken, maxDocumentsPerSequence } = data ?? {};
  return {
    ...validation.data,
    ...(packing === undefined ? {} : { packing }),
    ...(endOfDocumentToken === undefined ? {} : { endOfDocumentToken }),
    ...(maxDocumentsPerSequence === undefined ? {} : { maxDocumentsPerSequence }),
  };
}

/** NAME of Megatron-LM's NAME.bin, NAME.idx or NAME. */
export const megatronStem = (path: string): string => path.replace(/\.(bin|idx)$/, "");

/** Parts of a path that lead nowhere, or back: `//`, `/./`, `/../`, and a slash at the end. */
const NOT_PLAIN = /\/\.{0,2}(?:\/|$)|^\.{1,2}(?:\/|$)/;

/** A path without what leads nowhere, so that two ways to write it are the same text. Links are not followed. */
export function plainPath(path: string): string {
  if (!NOT_PLAIN.test(path)) return path;
  const parts: string[] = [];
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    const before = parts.at(-1);
    if (part !== ".." || before === "..") parts.push(part);
    else if (before !== undefined) parts.pop();
    else if (!path.startsWith("/")) parts.push(part);
  }
  return `${path.startsWith("/") ? "/" : ""}${parts.join("/")}`;
}

/** {@link plainPath} that knows the paths that it has seen: a job's are looked at several times. */
export function plainPaths(): (path: string) => string {
  const known = new Map<string, string>();
  return (path) => {
    if (!NOT_PLAIN.test(path)) return path;
    const plain = known.get(path) ?? plainPath(path);
    known.set(path, plain);
    return plain;
  };
}

interface NamedFile {
  readonly path: string;
  /** That names it in a job. */
  readonly field: string;
}

function filesOf({ data, part }: DataSource): readonly NamedFile[] {
  const ofPath = (...paths: string[]) => paths.map((path) => ({ path, field: `${part}.path` }));
  switch (data.format) {
    case "text":
      return data.paths.map((path, index) => ({ path, field: `${part}.paths.${index}` }));
    case "tokens":
      return ofPath(data.path);
    case "megatron":
      return ofPath(`${megatronStem(data.path)}.bin`, `${megatronStem(data.path)}.idx`);
    case "internevo":
      return ofPath(data.path, `${data.path}.meta`);
  }
}

/** The files of data, whether they exist or not, each with the field that names it in a job's `data`. */
export const dataFiles = (data: Data): readonly NamedFile[] => sourcesOf(data).flatMap(filesOf);

/** The paths of data as a job names them, each with its field. */
export const dataPaths = (data: Data): readonly NamedFile[] =>
  sourcesOf(data).flatMap((source) =>
    source.data.format === "text"
      ? filesOf(source)
      : [{ path: source.data.path, field: `${source.part}.path` }],
  );

/** Documents of a sequence that memory is planned for; null where documents are not packed. */
export const documentsOf = (data: Data | null): number | null =>
  data?.packing === "documents" ? (data.maxDocumentsPerSequence ?? DEFAULT_DOCUMENTS_PER_SEQUENCE) : null;
