import { CostModel } from "@internevo/cost-model";
import { planLabel, type Prediction, type Profile } from "@internevo/domain";
import { choiceOf, exposedAndWhole, shardingSeconds, type Case, type RowResult } from "./evaluate.ts";
import {
  CLOSE,
  isGood,
  publishedJob,
  publishedPrediction,
  TOP,
  USABLE_BYTES,
  type Judgements,
  type Place,
} from "./judgements.ts";
import type { ScalabilityResult } from "./longest.ts";
import { MODELS, paperJob, STEP_TOKENS, SYSTEM_NAMES } from "./paper.ts";

/**
 * Something that must hold. `exceptions` do not, and numbers say why; `missed` do not, and no number explains
 * it.
 */
export interface Bar {
  readonly name: string;
  readonly checked: number;
  readonly exceptions: readonly string[];
  readonly missed: readonly string[];
}

const percent = (value: number): string => `${(value * 100).toFixed(1)}%`;
const where = ({ model, lengthK }: { readonly model: string; readonly lengthK: number }): string =>
  `${model} ${lengthK}k`;

function bar<Item>(
  name: string,
  items: readonly Item[],
  check: (item: Item) => { readonly missed?: string; readonly exception?: string } | null,
): Bar {
  const found = items.map(check);
  return {
    name,
    checked: items.length,
    exceptions: found.flatMap((each) => each?.exception ?? []),
    missed: found.flatMap((each) => each?.missed ?? []),
  };
}

/** Every row of the paper's tables must fit. */
const allFit = (rows: readonly RowResult[]): Bar =>
  bar("every row of the paper's tables fits in 80 GB", rows, (row) =>
    row.feasible ? null : { missed: `${where(row)}, ${SYSTEM_NAMES[row.system]}: ${row.reason ?? ""}` },
  );

/** "parameterCommunication" as "parameter communication". */
export const wordsOf = (name: string): string =>
  name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);

/** The parts in which two plans differ by more than a hundredth of a step. */
export function termsBetween(a: Prediction, b: Prediction): string {
  const terms = (Object.keys({ ...a.time, ...b.time }) as (keyof Prediction["time"])[]).map(
    (name) => [wordsOf(name.replace(/Seconds$/, "")), (a.time[name] ?? 0) - (b.time[name] ?? 0)] as const,
  );
  return terms
    .filter(([, seconds]) => Math.abs(seconds) > 0.005 * b.stepTimeSeconds)
    .sort((x, y) => Math.abs(y[1]) - Math.abs(x[1]))
    .map(([name, seconds]) => `${name} ${seconds > 0 ? "+" : "−"}${Math.abs(seconds).toFixed(2)} s`)
    .join(", ");
}

const gibibytes = (bytes: number): string => `${(bytes / 2 ** 30).toFixed(1)} GiB`;
const placeText = ({ rank, behind }: Pick<Place, "rank" | "behind">): string =>
  rank === null || behind === null ? "does not fit" : `rank ${rank}, ${percent(behind)} behind`;

/** Why the published planner would not choose our best plan; null where it finds it faster than the row. */
export function againstOurs(row: RowResult): string | null {
  const { judgements, best } = row;
  if (judgements?.predicted == null) return null;
  const { ours, predicted } = judgements;
  const needs = `The published planner counts ${gibibytes(ours.bytes)} for our best`;
  if (ours.bytes > USABLE_BYTES) return `${needs}, so it does not fit there.`;
  if (!ours.isOfItsSpace)
    return best.plan.gradientSharding > 1
      ? `${needs}, and has no s_gs.`
      : `${needs}, and has no fewer micro-batches than stages.`;
  if (ours.predicted === null) return `${needs}, and has no attention of its size.`;
  const slower = ours.predicted.stepTimeSeconds / predicted.stepTimeSeconds - 1;
  if (slower < -CLOSE) return null;
  const way = slower < 0 ? `${percent(-slower)} faster` : `${percent(slower)} slower`;
  return `${needs}. By its times our best is ${way} than the row.`;
}

/**
 * Why a row of InternEvo's is neither near our best nor among the ten best: what the published planner, which
 * chose it, makes of both plans. Not accounted for where that planner would rather have our plan too.
 */
export function accountFor(row: RowResult): { readonly text: string; readonly accounted: boolean } {
  const { predicted, behind, best, judgements } = row;
  if (predicted === null || behind === null || judgements === null)
    return { text: `${where(row)}: does not fit`, accounted: false };
  const { published } = judgements;
  const against = againstOurs(row);
  const parts = [
    `${where(row)}: \`${planLabel(row.plan)}\` is ${placeText(row)} our best \`${planLabel(best.plan)}\`.`,
    `The difference is ${termsBetween(predicted, best.predicted)}.`,
    `By the published planner the row is ${placeText(published)}.`,
    against ?? "The published planner finds our best faster too.",
  ];
  const accounted = isGood(published) ? against !== null : published.behind !== null;
  return { text: parts.join(" "), accounted };
}

const oursIsGood = (rows: readonly RowResult[]): Bar =>
  bar(
    `every row of InternEvo's own is among our ${TOP} best or ` +
      `within ${percent(CLOSE)} of the best, in its ten dimensions`,
    rows.filter(({ system }) => system === "internevo"),
    (row) => {
      if (isGood(row)) return null;
      const { text, accounted } = accountFor(row);
      return accounted ? { exception: text } : { missed: text };
    },
  );

/** So many rows at least, of the 28, and all seven of 7B. */
const LEAST_GOOD = 22;

/** Why the published planner itself would choose another plan than a row. */
function publishedReason({ model, lengthK, plan, judgements }: RowResult): string {
  const { published, nominal, text, predicted } = judgements as Judgements;
  const { best } = published;
  const parts = [
    `${where({ model, lengthK })}: \`${planLabel(plan)}\` is ${placeText(published)} \`${planLabel(best.plan)}\`.`,
  ];
  if (predicted !== null) {
    parts.push(
      `The difference is ${termsBetween(predicted, best.predicted)}.`,
      `It needs ${gibibytes(predicted.peakMemoryBytes)}, the best ${gibibytes(best.predicted.peakMemoryBytes)}.`,
    );
  }
  parts.push(
    `With all 80 GiB it is ${placeText(nominal)}.`,
    isGood(text)
      ? `The paper's text has it near its best: ${placeText(text)}.`
      : `By the paper's text it is ${placeText(text)}. No arithmetic here chooses it: its authors may have chosen it by measurement.`,
  );
  return parts.join(" ");
}

/** Does the published planner choose the paper's plans? */
const publishedIsGood = (rows: readonly RowResult[]): Bar => {
  const judged = rows.filter(({ judgements }) => judgements !== null);
  const isWell = ({ judgements }: RowResult): boolean => isGood((judgements as Judgements).published);
  const good = judged.filter(isWell).length;
  const least = Math.min(LEAST_GOOD, Math.ceil((judged.length * LEAST_GOOD) / 28));
  const seven = judged.filter(({ model }) => model === "llama-7b");
  const { exceptions, ...rest } = bar(
    `with ${gibibytes(USABLE_BYTES)} usable, the published planner has at least ${LEAST_GOOD} of 28 of InternEvo's rows, and all of 7B, among its ${TOP} best or within ${percent(CLOSE)} of its best`,
    judged,
    (row) => (isWell(row) ? null : { exception: publishedReason(row) }),
  );
  const missed = [
    ...(good < least ? [`only ${good} of ${judged.length} rows`] : []),
    ...seven.filter((row) => !isWell(row)).map((row) => `${where(row)} is of 7B`),
  ];
  return { ...rest, exceptions, missed };
};

const oursWins = (cases: readonly Case[]): Bar =>
  bar(
    "InternEvo's best plan is no slower than the others' best, in every case",
    cases.flatMap((row) => (["megatron", "ulysses"] as const).map((system) => ({ row, system }))),
    ({ row, system }) => {
      const other = row[system];
      const ours = choiceOf(row, "internevo");
      if (other === null || ours === null) return null;
      return ours.predicted.stepTimeSeconds <= other.predicted.stepTimeSeconds * (1 + 1e-9)
        ? null
        : {
            missed:
              `${where(row)}: ${SYSTEM_NAMES[system]}'s \`${planLabel(other.plan)}\` takes ` +
              `${other.predicted.stepTimeSeconds.toFixed(2)} s, ours ${ours.predicted.stepTimeSeconds.toFixed(2)} s`,
          };
    },
  );

/** Speeds so close are comparable. */
const COMPARABLE = 0.01;

/**
 * In the paper's tables too: its plan against the plans it chose for the others; the paper says "outperforms
 * … or comparable".
 */
const oursWinsTables = (rows: readonly RowResult[], profile: Profile): Bar =>
  bar(
    "in the paper's tables, InternEvo's row is faster than the " +
      `others' rows, or comparable (within ${percent(COMPARABLE)})`,
    rows.filter(({ system }) => system !== "internevo"),
    (row) => {
      const ours = rows.find(
        ({ model, lengthK, system }) =>
          model === row.model && lengthK === row.lengthK && system === "internevo",
      );
      if (!ours?.predicted || !row.predicted)
        return { missed: `${where(row)}: ${SYSTEM_NAMES[row.system]}'s row is not predicted` };
      const [a, b] = [ours.predicted.tokensPerGpuPerSecond, row.predicted.tokensPerGpuPerSecond];
      if (a >= b * (1 - COMPARABLE)) return null;
      const [own, other] = [ofStep(ours.predicted, ours), ofStep(row.predicted, row)];
      const text = `${where(row)}: InternEvo's row \`${planLabel(ours.plan)}\` makes ${a.toFixed(0)} tokens/GPU/s. ${SYSTEM_NAMES[row.system]}'s \`${planLabel(row.plan)}\` makes ${b.toFixed(0)}, ${percent(b / a - 1)} more. The difference is ${termsBetween(own, other)}.`;
      const account = accountForOther(ours, row, own, other, profile);
      return account === null ? { missed: text } : { exception: `${text} ${account}` };
    },
  );

/** Seconds for 4M tokens, also of the rows that have more of them in a step. */
function ofStep(predicted: Prediction, { batchTokens }: RowResult): Prediction {
  const scale = STEP_TOKENS / batchTokens;
  const time = Object.fromEntries(
    Object.entries(predicted.time).map(([name, seconds]) => [name, seconds * scale]),
  ) as Prediction["time"];
  return { ...predicted, time, stepTimeSeconds: predicted.stepTimeSeconds * scale };
}

/** Why another system's row is faster than InternEvo's; null where neither number says it. */
function accountForOther(
  ours: RowResult,
  other: RowResult,
  a: Prediction,
  b: Prediction,
  profile: Profile,
): string | null {
  // What it loses by is the measured communication of its larger groups.
  const communication = (one: Prediction): number =>
    one.time.sequenceCommunicationSeconds + shardingSeconds(one);
  const difference = communication(a) - communication(b);
  if (difference >= a.stepTimeSeconds - b.stepTimeSeconds)
    return `The measured communication of its groups takes ${difference.toFixed(2)} s more.`;
  // Or by its stages: head and loss make the last stage the slowest, and the published planner has neither.
  const [alone, against] = [ours, other].map((row) =>
    publishedPrediction(publishedJob(row), row.plan, profile),
  );
  const head = headSeconds(ours, profile) - headSeconds(other, profile);
  if (!alone || !against || alone.tokensPerGpuPerSecond < against.tokensPerGpuPerSecond * (1 - COMPARABLE))
    return null;
  return head >= 0.5 * (a.stepTimeSeconds - b.stepTimeSeconds)
    ? `Head and loss of its last stage take ${head.toFixed(2)} s more, since it has more micro-batches. The published planner counts neither. There the row makes ${alone.tokensPerGpuPerSecond.toFixed(0)}, the other ${against.tokensPerGpuPerSecond.toFixed(0)}.`
    : null;
}

/** Seconds of a step that the head and the loss take on their stage. */
function headSeconds({ model, lengthK, batchTokens, plan }: RowResult, profile: Profile): number {
  const job = paperJob(model, lengthK, { batchTokens });
  return plan.microBatches * new CostModel(job, profile).sliceTime(plan.microBatchSize, plan).headSeconds;
}

/**
 * Seconds of a step that grow by jumps: recomputation, which MFU does not count, and all-to-alls over more
 * nodes.
 */
const jumping = ({ time }: Prediction): number => time.recomputeSeconds + time.sequenceCommunicationSeconds;

/** The paper's section 5.2 in words, over MFU with attention counted whole, as the paper counts it. */
function rises(name: string, cases: readonly Case[], system: "internevo" | "ulysses", fromK: number): Bar {
  const lists = MODELS.map((model) => cases.filter((row) => row.model === model && row.lengthK >= fromK));
  const steps = lists.flatMap((list) =>
    list.slice(1).map((to, index) => ({ from: list[index] as Case, to })),
  );
  return bar(name, steps, ({ from, to }) => {
    const [a, b] = [choiceOf(from, system)?.predicted, choiceOf(to, system)?.predicted];
    if (!a || !b) return { missed: `${where(to)}: nothing fits` };
    if (b.mfuFullAttention >= a.mfuFullAttention - 0.001) return null;
    const text =
      `${from.model} from ${from.lengthK}k to ${to.lengthK}k: ` +
      `${percent(a.mfuFullAttention)} to ${percent(b.mfuFullAttention)}.`;
    // What it would be if these took the same share of the step as before.
    const share = jumping(a) / a.stepTimeSeconds;
    const held = b.mfuFullAttention * ((b.stepTimeSeconds / (b.stepTimeSeconds - jumping(b))) * (1 - share));
    const seconds =
      `Recomputation and all-to-all take ${jumping(b).toFixed(1)} of ${b.stepTimeSeconds.toFixed(1)} s. ` +
      `Before, they took ${jumping(a).toFixed(1)} of ${a.stepTimeSeconds.toFixed(1)} s.`;
    return held >= a.mfuFullAttention - 0.001
      ? {
          exception: `${text} ${seconds} At the same share of the step, MFU would be ${percent(held)}. No more ranks can share a sequence than the model has heads, and all layers are recomputed or none. Over the complete space, MFU is ${percent(from.complete.predicted.mfuFullAttention)}, then ${percent(to.complete.predicted.mfuFullAttention)}.`,
        }
      : { missed: `${text} ${seconds}` };
  });
}

/**
 * MFU of the paper's own DeepSpeed rows falls up to 32k, as it measured; the predictions are held to it with
 * and without overlap.
 */
const ulyssesFalls = (rows: readonly RowResult[], profile: Profile): Bar => {
  const list = rows.filter(({ system, lengthK }) => system === "ulysses" && lengthK <= 32);
  const steps = list
    .slice(1)
    .map((to, index) => ({ from: list[index] as RowResult, to }))
    .filter(({ from, to }) => from.model === to.model);
  const told = (row: RowResult): { text: string; whole: number; tokens: number; shown: number } => {
    const { whole } = exposedAndWhole(
      paperJob(row.model, row.lengthK, { batchTokens: row.batchTokens }),
      row.plan,
      profile,
    );
    const { time, stepTimeSeconds } = whole;
    const steps_ = row.batchTokens / STEP_TOKENS;
    return {
      text:
        `${((time.parameterCommunicationSeconds + time.sequenceCommunicationSeconds) / steps_).toFixed(2)} ` +
        `s of communication in ${(stepTimeSeconds / steps_).toFixed(2)} s for 4M tokens`,
      whole: whole.mfuFullAttention,
      tokens: (row.plan.microBatchSize * row.lengthK) / row.plan.sequenceParallel,
      shown: row.predicted?.mfuFullAttention ?? 0,
    };
  };
  return bar(
    "DeepSpeed-Ulysses: MFU of the paper's rows falls with the sequence length up to 32k",
    steps,
    ({ from, to }) => {
      const [a, b] = [told(from), told(to)];
      if (b.shown <= a.shown) return null;
      return {
        exception: `${from.model} from ${from.lengthK}k to ${to.lengthK}k: ${percent(a.shown)} to ${percent(b.shown)}. If nothing were hidden, it would be ${percent(a.whole)}, with ${a.text}. Then it would be ${percent(b.whole)}, with ${b.text}. A GPU has ${a.tokens}k, then ${b.tokens}k tokens of a micro-batch. So what is sent for a token hardly changes, and attention's share of the work grows.`,
      };
    },
  );
};

const lengths = (results: readonly ScalabilityResult[]): Bar =>
  bar("the paper's largest lengths fit with b = n = 1", results, ({ atPaper, model, lengthK }) =>
    atPaper.internevo === null ? { missed: `${model} ${lengthK}k does not fit` } : null,
  );

export const barsOf = (
  cases: readonly Case[],
  rows: readonly RowResult[],
  results: readonly ScalabilityResult[],
  profile: Profile,
): Bar[] => [
  allFit(rows),
  oursIsGood(rows),
  publishedIsGood(rows),
  oursWins(cases),
  oursWinsTables(rows, profile),
  rises("InternEvo's MFU rises with the sequence length, for all four models", cases, "internevo", 0),
  rises("DeepSpeed-Ulysses: MFU rises with the sequence length from 32k on", cases, "ulysses", 32),
  ulyssesFalls(rows, profile),
  lengths(results),
];
