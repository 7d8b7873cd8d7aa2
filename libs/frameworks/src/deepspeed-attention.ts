import { formatBytes, ProblemError, type Plan } from "@internevo/domain";
import type { Argument, Options } from "./command-line.ts";
import type { ExportedJob, FrameworkWarning, TakenAs } from "./framework.ts";
import { isPacked, type Unsaid } from "./job-fields.ts";
import { BLOCKWISE } from "./judgements.ts";

/*
 * Megatron-DeepSpeed's attention. With flash it keeps no scores, takes only 16-bit numbers and heeds no masks. Without
 * flash it keeps all scores, and turns no positions where ranks share the heads.
 */

/** What is written; the others switch flash attention on too. */
const FLASH = "--use-flash-attn-v2";
const FLASH_NAMES = [
  FLASH,
  "--use-flash-attn",
  "--use-flash-attn-v1",
  "--use-flash-attn-triton",
  "--use-flash-attn-builder",
] as const;
export const FLASH_OPTIONS = FLASH_NAMES.join(" ");

const ULYSSES = "--ds-sequence-parallel-size";
const UNTURNED = `with ${ULYSSES}, Megatron-DeepSpeed turns rotary positions only in flash attention`;

/** Whether ranks share the heads of a sequence, and are no tensor ranks. */
const sharesHeads = ({ tensorParallel, sequenceParallel }: Plan): boolean =>
  tensorParallel === 1 && sequenceParallel > 1;

/** Why packed documents are not kept apart; null where they are. */
function notPacked({ data, model }: ExportedJob, plan: Plan): string | null {
  if (plan.pipelineParallel > 1) return "with a pipeline, all sequences have one mask";
  if (sharesHeads(plan)) return `${UNTURNED}, which heeds no masks`;
  const last = model.vocabularySize - 1;
  return data?.endOfDocumentToken === last
    ? null
    : `its tokenizer without files ends documents with the last token alone: data.endOfDocumentToken ${last}`;
}

const keepsApart = (job: ExportedJob, plan: Plan): boolean => isPacked(job) && notPacked(job, plan) === null;

/** What attention without flash keeps beyond what is predicted. */
function keptScores(
  { model, sequenceLengthTokens, precision }: ExportedJob,
  { microBatchSize, tensorParallel }: Plan,
): string {
  const each = precision === "fp32" ? 4 : 2;
  const bytes = (microBatchSize * model.heads * sequenceLengthTokens ** 2 * each) / tensorParallel;
  return `attention without flash keeps its scores, at least ${formatBytes(bytes)} a layer on each GPU, which the memory stated here does not count`;
}

export const packedAttention: Unsaid = (job, plan) => {
  if (!isPacked(job)) return null;
  const said = { field: "data.packing", value: "documents" };
  const reason = notPacked(job, plan);
  if (reason !== null) return { ...said, nearest: "none", reason };
  const why = `flash attention heeds no masks, and ${keptScores(job, plan)}`;
  return { ...said, nearest: "documents", reason: why };
};

export const precisionOfAttention: Unsaid = (job, plan) =>
  job.precision === "fp32"
    ? {
        field: "precision",
        value: "fp32",
        nearest: "fp32",
        reason: `flash attention takes no float32, and ${keptScores(job, plan)}`,
      }
    : null;

/** Flash attention; or, for packed documents, masks that only kernels without fusion heed. */
export function attentionArguments(job: ExportedJob, plan: Plan): Argument[] {
  if (keepsApart(job, plan))
    return [
      ["--reset-position-ids"],
      ["--reset-attention-mask"],
      ["--eod-mask-loss"],
      ["--no-masked-softmax-fusion"],
    ];
  return job.precision === "fp32" ? [] : [[FLASH]];
}

/** @throws ProblemError `plan-invalid` where the plan's attention would train another model. */
export function assertAttention(plan: Plan, { precision }: ExportedJob): void {
  if (precision !== "fp32" || !sharesHeads(plan)) return;
  throw new ProblemError("plan-invalid", "DeepSpeed cannot express the plan", [
    {
      field: "plan.sequenceParallel",
      value: plan.sequenceParallel,
      message: `${UNTURNED}, which takes no float32`,
      remedy:
        "choose a plan whose sequence ranks are tensor ranks, precision bf16, or export to another framework",
    },
  ]);
}

export const hasFlash = (options: Options): boolean => FLASH_NAMES.some((name) => options.has(name));

/** What a script without flash attention is taken as, and what it would train. */
export function readAttention(options: Options, ulysses: number, takenAs: TakenAs[]): FrameworkWarning[] {
  if (hasFlash(options)) return [];
  takenAs.push({ option: FLASH, value: "missing", as: BLOCKWISE });
  if (ulysses === 1) return [];
  return [
    {
      field: FLASH,
      value: null,
      message: `is missing with ${ULYSSES} ${ulysses}: Megatron-DeepSpeed then turns no rotary positions, and trains another model`,
      remedy: `add ${FLASH}`,
    },
  ];
}
