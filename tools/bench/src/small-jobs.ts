import { resolveJob, type JobSpec } from "@internevo/domain";

/** Models small enough for CPU ranks: grouped heads, wide, larger, deep. */
export const SMALL_MODELS = {
  "llama-0.8m": {
    name: "llama-0.8m",
    hiddenSize: 128,
    layers: 4,
    heads: 8,
    kvHeads: 4,
    ffnHiddenSize: 384,
    vocabularySize: 256,
  },
  "llama-1.9m": {
    name: "llama-1.9m",
    hiddenSize: 256,
    layers: 2,
    heads: 8,
    kvHeads: 8,
    ffnHiddenSize: 768,
    vocabularySize: 256,
  },
  "llama-3.4m": {
    name: "llama-3.4m",
    hiddenSize: 256,
    layers: 4,
    heads: 8,
    kvHeads: 8,
    ffnHiddenSize: 768,
    vocabularySize: 256,
  },
  "llama-2.2m": {
    name: "llama-2.2m",
    hiddenSize: 160,
    layers: 8,
    heads: 4,
    kvHeads: 4,
    ffnHiddenSize: 384,
    vocabularySize: 256,
  },
} as const;
export type SmallModel = keyof typeof SMALL_MODELS;

const TEXTS = [
  "Apache-2.0",
  "Artistic",
  "BSD",
  "CC0-1.0",
  "GFDL-1.2",
  "GFDL-1.3",
  "GPL-1",
  "GPL-2",
  "GPL-3",
  "LGPL-2",
  "LGPL-2.1",
  "LGPL-3",
  "MPL-1.1",
  "MPL-2.0",
].map((name) => `/usr/share/common-licenses/${name}`);

export interface SmallJob {
  readonly model: SmallModel;
  readonly sequenceLengthTokens: number;
  readonly globalBatchTokens: number;
  /** Every line is a document, and sequences are packed of them. */
  readonly packed?: boolean;
  readonly cluster: {
    readonly name: string;
    readonly nodes: number;
    readonly gpusPerNode: number;
    readonly memoryPerGpu: string;
    readonly launcher: "local" | "ssh";
  };
}

/** A job of Debian's own licence texts, as bytes. */
export const smallJob = ({
  model,
  sequenceLengthTokens,
  globalBatchTokens,
  packed = false,
  cluster,
}: SmallJob): JobSpec =>
  resolveJob({
    name: `${model}-${sequenceLengthTokens}${packed ? "-packed" : ""}`,
    model: SMALL_MODELS[model],
    sequenceLengthTokens,
    globalBatchTokens,
    precision: "fp32",
    cluster,
    data: {
      format: "text",
      paths: TEXTS,
      ...(packed ? { packing: "documents", endOfDocumentToken: "\n".charCodeAt(0) } : {}),
    },
  });

export function modelsFrom(list: string): SmallModel[] {
  return list.split(",").map((name) => {
    if (!Object.hasOwn(SMALL_MODELS, name))
      throw new Error(
        `--models: ${name} is no model of this benchmark; use some of ${Object.keys(SMALL_MODELS).join(",")}`,
      );
    return name as SmallModel;
  });
}

export function numbersFrom(option: string, list: string): number[] {
  return list.split(",").map((text) => {
    const value = Number(text);
    if (!Number.isInteger(value) || value < 1)
      throw new Error(`${option}: ${text} is no whole number from 1`);
    return value;
  });
}

export const numberFrom = (option: string, text: string): number => numbersFrom(option, text)[0] as number;
