import {
  BEYOND_PAPER,
  chunksOf,
  keepsGateUpOnHost,
  makesGateUpAgain,
  contextOf,
  DIMENSIONS,
  formatCounted,
  OVERLAP_WORDS,
  PLAN_FIELDS,
  planValue,
  type Dimension,
  type Plan,
  type PlanExtension,
  type PlanField,
} from "@internevo/domain";

// What has the same name at the command line is named in @internevo/domain; here is what only pages say.
export {
  ATTEMPT_STATE_WORDS,
  BEYOND_PAPER,
  DIMENSIONS,
  FAILURE_WORDS,
  fieldWords,
  JOB_STATE_WORDS,
  linesBySize,
  memoryLineLook,
  memoryLineName as lineName,
  OVERLAP_WORDS,
  planFieldName as fieldName,
  planFieldValue as fieldValue,
  positionWords,
  QUEUED_WORD,
  askedToGiveWayWords,
  queueWords,
  REJECTION_WORDS,
  STAGES,
  startWords,
  TIME_WORDS,
  TRIAL_STATE_WORDS,
  UTILISATION_WORDS,
  type Dimension,
} from "@internevo/domain";

const isChosen = (plan: Plan, key: PlanField): boolean =>
  planValue(plan, key) !== PLAN_FIELDS[key as PlanExtension].default;

/** The dimensions of the paper, and those beyond it that a plan makes use of. */
export const dimensionsOf = (plans: readonly Plan[]): readonly Dimension[] => [
  ...DIMENSIONS,
  ...BEYOND_PAPER.filter(({ key }) => plans.some((plan) => isChosen(plan, key))),
];

export function dimensionValue(plan: Plan, key: PlanField): string {
  const value = planValue(plan, key);
  return typeof value === "string" ? value : String(Number(value));
}

/** What both passes hide of the communication. */
export const overlapWords = ({
  forwardOverlap,
  backwardOverlap,
}: Pick<Plan, "forwardOverlap" | "backwardOverlap">): string =>
  forwardOverlap === backwardOverlap
    ? OVERLAP_WORDS[forwardOverlap]
    : `forward ${OVERLAP_WORDS[forwardOverlap]}, backward ${OVERLAP_WORDS[backwardOverlap]}`;

/** What is at work while something else is computed. */
const GRAINS: Readonly<Record<Exclude<Plan["forwardOverlap"], "none">, string>> = {
  block: "block (attention or MLP)",
  "inter-layer": "layer",
  "intra-layer": "module of the layer",
};

function overlapSentences({ forwardOverlap, backwardOverlap }: Plan): string[] {
  return [
    ...(forwardOverlap === "none"
      ? []
      : [
          `In the forward pass the parameters of the next ${GRAINS[forwardOverlap]} are gathered while one is computed.`,
        ]),
    ...(backwardOverlap === "none"
      ? []
      : [
          `In the backward pass parameters are gathered, and gradients reduced, of one ${GRAINS[backwardOverlap]} while another is computed.`,
        ]),
  ];
}

const ranks = (count: number): string => formatCounted(count, "rank");

function shardingSentence(what: string, factor: number): string {
  return factor === 1 ? `${what} are held whole` : `${what} are spread over ${ranks(factor)}`;
}

/** How ranks that share a sequence, but no matrix, attend to all of it. */
function sharingOf(plan: Plan): string {
  const ring = contextOf(plan);
  if (ring === 1) return "Ulysses";
  const heads = plan.sequenceParallel / ring;
  return heads === 1 ? "a ring" : `Ulysses over ${heads}, ${ring} such groups in a ring`;
}

/** A plan in sentences. */
export function explainPlan(plan: Plan): string[] {
  const { pipelineParallel: pp, dataParallel: dp, sequenceParallel: sp, tensorParallel: tp } = plan;
  const world = pp * dp * sp;
  const sentences: string[] = [];
  const split: string[] = [];
  if (dp > 1) split.push(`${dp} groups work on different sequences`);
  if (sp > 1)
    split.push(
      tp > 1
        ? `${sp} ranks share every sequence and every matrix (Megatron)`
        : `${sp} ranks share every sequence (${sharingOf(plan)})`,
    );
  if (pp > 1)
    split.push(
      `the layers are split into ${pp} pipeline stages${chunksOf(plan) > 1 ? `, each with ${chunksOf(plan)} parts of the model in turns` : ""}`,
    );
  sentences.push(
    split.length === 0
      ? `${ranks(world)}, which ${world === 1 ? "does" : "do"} all the work.`
      : `${ranks(world)}: ${split.join("; ")}.`,
  );
  sentences.push(
    `A step is ${plan.microBatches === 1 ? "one micro-batch" : `${plan.microBatches} micro-batches`} of ${plan.microBatchSize === 1 ? "one sequence" : `${plan.microBatchSize} sequences`} ${dp > 1 ? "a group" : ""}`.trimEnd() +
      `; activations inside a layer are ${plan.recompute ? "computed again in the backward pass" : "kept for the backward pass"}${plan.recomputeLayers ? `, but for ${plan.recomputeLayers === 1 ? "one layer" : `${plan.recomputeLayers} layers`} of each stage, where they are computed again` : ""}${makesGateUpAgain(plan) ? ", and for the products of gate and up, which are computed again" : ""}${keepsGateUpOnHost(plan) ? ", and for the products of gate and up, which wait in the host’s memory" : ""}.`,
  );
  const whole =
    plan.parameterSharding === 1 && plan.gradientSharding === 1 && plan.optimizerStateSharding === 1;
  sentences.push(
    whole
      ? "Parameters, gradients and optimizer state are held whole by every rank."
      : `${shardingSentence("Parameters", plan.parameterSharding)}, ${shardingSentence("gradients", plan.parameterSharding * plan.gradientSharding)}, ${shardingSentence("optimizer states", plan.parameterSharding * plan.optimizerStateSharding)}.`,
  );
  sentences.push(...overlapSentences(plan));
  return sentences;
}
