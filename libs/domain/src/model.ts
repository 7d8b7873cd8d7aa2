import { Type, type Static } from "typebox";
import { MAXIMUM_LAYERS } from "./bounds.ts";
import { commonProgram, dimensionSize, programElements } from "./layer-program.ts";
import { plainRopeScaling, RopeScalingSchema } from "./rope-scaling.ts";
import { Line } from "./text.ts";

/** Elements that a head may have where its size is given: an even number. */
export const HEAD_SIZES = { least: 2, most: 512 } as const;

/** A LLaMA-style decoder, every size resolved. H, L, D and V of the paper are named here. */
export const ModelSchema = Type.Object(
  {
    name: Line(100),
    hiddenSize: Type.Integer({ minimum: 1, maximum: 2 ** 20, description: "H, elements" }),
    layers: Type.Integer({ minimum: 1, maximum: MAXIMUM_LAYERS, description: "L" }),
    heads: Type.Integer({ minimum: 1, maximum: 65_536, description: "D, query heads" }),
    kvHeads: Type.Integer({
      minimum: 1,
      maximum: 65_536,
      description: "key and value heads (grouped-query attention)",
    }),
    ffnHiddenSize: Type.Integer({
      minimum: 1,
      maximum: 2 ** 22,
      description: "inner width of the gated MLP",
    }),
    vocabularySize: Type.Integer({ minimum: 2, maximum: 2 ** 31 - 1, description: "V, tokens" }),
    tiedEmbeddings: Type.Boolean({ description: "the head shares the embedding's weights" }),
    ropeTheta: Type.Number({
      minimum: 1,
      maximum: 1e12,
      description: "base of the rotary positions' wavelengths",
    }),
    normEpsilon: Type.Number({ minimum: 1e-12, maximum: 1 }),
    initStandardDeviation: Type.Number({ minimum: 1e-9, maximum: 10 }),
    headSize: Type.Optional(
      Type.Integer({
        minimum: HEAD_SIZES.least,
        maximum: HEAD_SIZES.most,
        description: "elements of a head, an even number; hiddenSize / heads where it is left out",
      }),
    ),
    queryKeyNorm: Type.Optional(
      Type.Boolean({ description: "RMS norm of each head of q and k before rotary positions (Qwen3)" }),
    ),
    queryKeyValueBias: Type.Optional(
      Type.Boolean({ description: "biases of the projections to q, k and v (Qwen2)" }),
    ),
    slidingWindowTokens: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 2 ** 31 - 1,
        description: "keys that a query sees at most, its own among them, in all layers (Mistral)",
      }),
    ),
    ropeScaling: Type.Optional(RopeScalingSchema),
  },
  { additionalProperties: false },
);
export type Model = Static<typeof ModelSchema>;

/** 8/3 of the hidden size, rounded up to a multiple of 256: LLaMA's gated MLP. */
export function defaultFfnHiddenSize(hiddenSize: number): number {
  return Math.ceil((8 * hiddenSize) / 3 / 256) * 256;
}

/**
 * The one way of writing a model: without fields that say what is so without them.
 */
export function plainModel(model: Model): Model {
  const { headSize, queryKeyNorm, queryKeyValueBias, ropeScaling, ...rest } = model;
  return {
    ...rest,
    ...(headSize === undefined || headSize * model.heads === model.hiddenSize ? {} : { headSize }),
    ...(queryKeyNorm === true ? { queryKeyNorm } : {}),
    ...(queryKeyValueBias === true ? { queryKeyValueBias } : {}),
    ...(ropeScaling === undefined ? {} : { ropeScaling: plainRopeScaling(ropeScaling) }),
  };
}

/** What a model has unless it says otherwise. */
export const MODEL_DEFAULTS = {
  tiedEmbeddings: false,
  ropeTheta: 10_000,
  normEpsilon: 1e-5,
  initStandardDeviation: 0.02,
} as const;

/** V of the paper's models: its tokenizer's, not that of LLaMA. */
export const PAPER_VOCABULARY_SIZE = 100_000;

const paperModel = (name: string, hiddenSize: number, layers: number, heads: number): Model => ({
  name,
  hiddenSize,
  layers,
  heads,
  kvHeads: heads,
  ffnHiddenSize: defaultFfnHiddenSize(hiddenSize),
  vocabularySize: PAPER_VOCABULARY_SIZE,
  ...MODEL_DEFAULTS,
});

/** The four models of the paper (its table "Model configurations and memory footprints"); V is its 100k. */
export const NAMED_MODELS: Readonly<Record<string, Model>> = {
  "llama-7b": paperModel("llama-7b", 4096, 32, 32),
  "llama-13b": paperModel("llama-13b", 5120, 40, 40),
  "llama-30b": paperModel("llama-30b", 6144, 60, 48),
  "llama-65b": paperModel("llama-65b", 8192, 80, 64),
};

/** Elements of the key or value projection's output. */
export const kvWidth = (model: Model): number => dimensionSize(commonProgram(model), model, "key");

/**
 * Of the keys that causal attention over a sequence sees, the share that is left by a model's window; 1
 * without one.
 */
export function seenKeysShare(
  { slidingWindowTokens: window }: Pick<Model, "slidingWindowTokens">,
  sequenceLengthTokens: number,
): number {
  if (window === undefined || window >= sequenceLengthTokens) return 1;
  const seen = (window * (window + 1)) / 2 + (sequenceLengthTokens - window) * window;
  return seen / ((sequenceLengthTokens * (sequenceLengthTokens + 1)) / 2);
}

/** Ψ: parameters of one layer. */
export function layerParameters(model: Model): number {
  return programElements(commonProgram(model), model).units.reduce((sum, elements) => sum + elements, 0);
}

/** All parameters: layers, embedding, final norm and, when it is not tied, the head. */
export function totalParameters(model: Model): number {
  const { ends } = programElements(commonProgram(model), model);
  return layerParameters(model) * model.layers + Object.values(ends).reduce((sum, end) => sum + end, 0);
}
