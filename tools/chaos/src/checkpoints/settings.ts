import type { TrainerConfig } from "@internevo/contracts";
import { PLAIN_PLAN } from "@internevo/domain";

/** Optimizer steps of every run, and sequences of a step: every plan below draws the same. */
export const STEPS = 12;
export const SEQUENCES = 4;
export const SEQUENCE_LENGTH_TOKENS = 32;

export interface Setting {
  readonly name: string;
  readonly model: TrainerConfig["model"];
  readonly precision: TrainerConfig["precision"];
  readonly packed: boolean;
}

const model: TrainerConfig["model"] = {
  hiddenSize: 32,
  layers: 4,
  heads: 4,
  kvHeads: 2,
  ffnHiddenSize: 64,
  vocabularySize: 256,
  tiedEmbeddings: false,
  ropeTheta: 10_000,
  normEpsilon: 1e-5,
  initStandardDeviation: 0.02,
};

export const SETTINGS: readonly Setting[] = [
  { name: "plain", model, precision: "fp32", packed: false },
  { name: "packed", model, precision: "fp32", packed: true },
  { name: "tied", model: { ...model, layers: 3, tiedEmbeddings: true }, precision: "fp32", packed: false },
  { name: "bf16", model, precision: "bf16", packed: false },
];

type TrainerPlan = TrainerConfig["plan"];

const plan = (over: Partial<TrainerPlan>): TrainerPlan => {
  const { forwardOverlap: _forward, backwardOverlap: _backward, ...plain } = PLAIN_PLAN;
  return { ...plain, microBatches: SEQUENCES / (over.dataParallel ?? 1), ...over };
};
const overlapped = { forwardOverlap: "inter-layer", backwardOverlap: "intra-layer" } as const;

/** A plan of each dimension and of several together, on one, two and four ranks. */
export const PLANS: Readonly<Record<string, TrainerPlan>> = {
  one: plan({}),
  dp2: plan({ dataParallel: 2 }),
  "dp2 ps2 overlapped": plan({ dataParallel: 2, parameterSharding: 2, ...overlapped }),
  "dp2 gs2 oss2": plan({ dataParallel: 2, gradientSharding: 2, optimizerStateSharding: 2 }),
  "tp2 recomputed": plan({ tensorParallel: 2, sequenceParallel: 2, recompute: true }),
  "sp2 ps2": plan({ sequenceParallel: 2, parameterSharding: 2, microBatchSize: 2, microBatches: 2 }),
  "context2 oss2": plan({ sequenceParallel: 2, contextParallel: 2, optimizerStateSharding: 2 }),
  pp2: plan({ pipelineParallel: 2 }),
  "pp2 chunks2": plan({ pipelineParallel: 2, pipelineChunks: 2, recomputeLayers: 1 }),
  "dp4 ps4 overlapped": plan({ dataParallel: 4, parameterSharding: 4, ...overlapped }),
  "dp2 sp2 ps2 gs2 oss2": plan({
    dataParallel: 2,
    sequenceParallel: 2,
    parameterSharding: 2,
    gradientSharding: 2,
    optimizerStateSharding: 2,
  }),
  "dp2 tp2 ps2": plan({ dataParallel: 2, tensorParallel: 2, sequenceParallel: 2, parameterSharding: 2 }),
  "pp2 tp2": plan({ pipelineParallel: 2, tensorParallel: 2, sequenceParallel: 2 }),
  "pp2 dp2 oss2": plan({ pipelineParallel: 2, dataParallel: 2, optimizerStateSharding: 2 }),
  "sp4 context2 ps4 overlapped": plan({
    sequenceParallel: 4,
    contextParallel: 2,
    parameterSharding: 4,
    ...overlapped,
  }),
  "pp2 sp2 context2 ps2": plan({
    pipelineParallel: 2,
    sequenceParallel: 2,
    contextParallel: 2,
    parameterSharding: 2,
  }),
};

/** Plans that the setting's model can run: each chunk of a stage has a layer. */
export const plansOf = ({ model: { layers } }: Setting): string[] =>
  Object.entries(PLANS).flatMap(([name, { pipelineParallel, pipelineChunks = 1 }]) =>
    pipelineParallel * pipelineChunks <= layers ? [name] : [],
  );

export const ranksOf = ({ pipelineParallel, dataParallel, sequenceParallel }: TrainerPlan): number =>
  pipelineParallel * dataParallel * sequenceParallel;
