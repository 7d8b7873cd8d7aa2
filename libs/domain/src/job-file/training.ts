import { dataFiles, MIXTURE_CYCLE_SEQUENCES, plainPaths, sharesOf, sourcesOf, type Data } from "../data.ts";
import {
  DEFAULT_KEEP_LAST,
  WATCHDOG_DEFAULTS,
  type Checkpointing,
  type Optimizer,
  type Timeline,
  type Validation,
  type Watchdog,
} from "../job.ts";
import type { Model } from "../model.ts";
import type { ProblemDetail } from "../problem.ts";
import { MOST_DETAILS } from "../validate.ts";
import { DEFAULT_VALIDATION_BATCHES, type JobFile } from "./schema.ts";

/** A tenth of steps, where a job does not say: how often something happens, or how long it lasts. */
const everyTenth = (steps: number): number => Math.max(1, Math.ceil(steps / 10));

/** What of an optimizer makes no sense with its schedule. */
function checkSchedule(
  { schedule, annealingSteps, decaySteps, warmupSteps, minLearningRate, peakLearningRate }: Optimizer,
  steps: number,
  details: ProblemDetail[],
): void {
  const refuse = (field: keyof Optimizer, value: unknown, message: string, remedy: string): void =>
    void details.push({ field: `optimizer.${field}`, value, message, remedy });
  if (schedule !== "wsd" && annealingSteps !== undefined)
    refuse(
      "annealingSteps",
      annealingSteps,
      `is of the schedule wsd, and the schedule is ${schedule ?? "cosine"}`,
      "leave it out, or use schedule: wsd",
    );
  if (schedule === "wsd" && warmupSteps <= decaySteps && warmupSteps + (annealingSteps ?? 0) > decaySteps)
    refuse(
      "annealingSteps",
      annealingSteps,
      `and warmupSteps ${warmupSteps} are more than decaySteps ${decaySteps}`,
      warmupSteps < decaySteps ? `give at most ${decaySteps - warmupSteps}` : "use less warmupSteps",
    );
  if (schedule !== "constant") return;
  if (minLearningRate < peakLearningRate)
    refuse(
      "minLearningRate",
      minLearningRate,
      "is never reached: the schedule is constant",
      "leave it out, or use another schedule",
    );
  if (decaySteps !== steps)
    refuse(
      "decaySteps",
      decaySteps,
      "says when decay ends, and the schedule is constant",
      "leave it out, or use another schedule",
    );
}

export function resolveOptimizer(
  written: Partial<Optimizer> | undefined,
  steps: number,
  details: ProblemDetail[],
): Optimizer {
  const { schedule: asked, ...rest } = written ?? {};
  // As without it where it says what is so without it.
  const schedule = asked === "cosine" ? undefined : asked;
  const peakLearningRate = rest.peakLearningRate ?? 3e-4;
  const decaySteps = rest.decaySteps ?? steps;
  const optimizer: Optimizer = {
    ...(schedule === undefined ? {} : { schedule }),
    ...(schedule === "wsd" ? { annealingSteps: everyTenth(decaySteps) } : {}),
    peakLearningRate,
    // Rounded: a tenth of 3e-4 is written 3e-5.
    minLearningRate:
      schedule === "constant" ? peakLearningRate : Number((peakLearningRate / 10).toPrecision(12)),
    warmupSteps: Math.min(2000, Math.ceil(steps / 20), decaySteps),
    decaySteps,
    weightDecay: 0.1,
    beta1: 0.9,
    beta2: 0.95,
    epsilon: 1e-8,
    clipGlobalNorm: 1,
    ...rest,
  };
  const { minLearningRate, warmupSteps } = optimizer;
  if (minLearningRate > peakLearningRate) {
    details.push({
      field: "optimizer.minLearningRate",
      value: minLearningRate,
      message: `is more than peakLearningRate ${peakLearningRate}`,
      remedy: `give at most ${peakLearningRate}`,
    });
  }
  if (warmupSteps > steps || warmupSteps > decaySteps) {
    const [what, most] = warmupSteps > steps ? ["the job's steps", steps] : ["decaySteps", decaySteps];
    details.push({
      field: "optimizer.warmupSteps",
      value: warmupSteps,
      message: `is more than ${what} ${most}: the peak would never be reached`,
      remedy: `give at most ${Math.min(steps, decaySteps)}`,
    });
  }
  checkSchedule(optimizer, steps, details);
  return optimizer;
}

type PlainPath = ReturnType<typeof plainPaths>;

/** Sources of a mixture that would give no sequence, and files that two of them read. */
function checkMixture(data: Data, plainPath: PlainPath, details: ProblemDetail[]): void {
  if (data.format !== "mixture") return;
  const weights = data.sources.map(({ weight }) => weight);
  const least = weights.reduce((sum, weight) => sum + weight, 0) / MIXTURE_CYCLE_SEQUENCES;
  for (const [index, share] of sharesOf(weights).entries())
    if (share === 0)
      details.push({
        field: `data.sources.${index}.weight`,
        value: weights[index],
        message: `is less than one sequence of ${MIXTURE_CYCLE_SEQUENCES}, beside the other weights`,
        remedy: `give at least ${Number(least.toPrecision(3))}, or leave the source out`,
      });
  const seen = new Map<string, string>();
  const twice: ProblemDetail[] = [];
  for (const { data: source, part } of sourcesOf(data))
    for (const path of new Set(dataFiles(source).map((file) => plainPath(file.path)))) {
      const before = seen.get(path);
      seen.set(path, part);
      if (before !== undefined)
        twice.push({
          field: part,
          value: path,
          message: `is read by ${before} too`,
          remedy: "name it in one source, with the sum of the weights",
        });
    }
  details.push(...twice.slice(0, MOST_DETAILS));
}

/** Text that one source names twice: it would be copied as often. @param within that names the data in a job */
function checkNamedOnce(data: Data, within: string, plainPath: PlainPath, details: ProblemDetail[]): void {
  const twice: ProblemDetail[] = [];
  for (const source of sourcesOf(data)) {
    if (source.data.format !== "text") continue;
    const seen = new Map<string, number>();
    for (const [index, path] of source.data.paths.entries()) {
      const plain = plainPath(path);
      const before = seen.get(plain);
      if (before === undefined) seen.set(plain, index);
      else
        twice.push({
          field: `${within}${source.part}.paths.${index}`,
          value: path,
          message: `is named already, by paths.${before}`,
          remedy: "name each file once; to read text more often, give it more weight in a mixture",
        });
    }
  }
  details.push(...twice.slice(0, MOST_DETAILS));
}

/** What data has to do with the rest of a job. */
export function checkData(
  data: Data,
  model: Model | undefined,
  details: ProblemDetail[],
  plainPath = plainPaths(),
): void {
  checkMixture(data, plainPath, details);
  checkNamedOnce(data, "", plainPath, details);
  const { packing, endOfDocumentToken, maxDocumentsPerSequence } = data;
  if (packing !== "documents") {
    for (const [field, value] of Object.entries({ endOfDocumentToken, maxDocumentsPerSequence })) {
      if (value !== undefined)
        details.push({
          field: `data.${field}`,
          value,
          message: "says something of packed documents, and documents are not packed",
          remedy: "add packing: documents, or leave it out",
        });
    }
  }
  if (model === undefined) return;
  const readsText = sourcesOf(data).some((source) => source.data.format === "text");
  if (readsText && model.vocabularySize < 256) {
    details.push({
      field: "model.vocabularySize",
      value: model.vocabularySize,
      message: "is too small for text, which is read as bytes",
      remedy: "use 256 or more",
    });
  }
  const tokens = readsText ? 256 : model.vocabularySize;
  if (endOfDocumentToken !== undefined && endOfDocumentToken >= tokens) {
    details.push({
      field: "data.endOfDocumentToken",
      value: endOfDocumentToken,
      message: `is no token: they are 0 to ${tokens - 1}`,
      remedy: "give the token that ends a document",
    });
  }
}

export function resolveValidation(
  written: JobFile["validation"],
  data: Data | undefined,
  steps: number,
  details: ProblemDetail[],
  plainPath = plainPaths(),
): Validation | undefined {
  if (written === undefined) return undefined;
  checkNamedOnce(written.data, "validation.", plainPath, details);
  const trained = new Set(data ? dataFiles(data).map(({ path }) => plainPath(path)) : []);
  const shared = dataFiles(written.data).find(({ path }) => trained.has(plainPath(path)));
  if (shared !== undefined)
    details.push({
      field: `validation.${shared.field}`,
      value: shared.path,
      message: "is trained on: it is in data too",
      remedy: "hold a file out of data, and name it here only",
    });
  return { everySteps: everyTenth(steps), batches: DEFAULT_VALIDATION_BATCHES, ...written };
}

export const resolveCheckpointing = (written: JobFile["checkpointing"], steps: number): Checkpointing => ({
  everySteps: everyTenth(steps),
  keepLast: DEFAULT_KEEP_LAST,
  ...written,
});

export function resolveTimeline(
  written: JobFile["timeline"],
  steps: number,
  details: ProblemDetail[],
): Timeline | undefined {
  if (written === undefined || written === false) return undefined;
  const given = written === true ? {} : written;
  const timeline = { firstStep: Math.min(2, steps), steps: 2, ...given };
  if (timeline.firstStep > steps)
    details.push({
      field: "timeline.firstStep",
      value: timeline.firstStep,
      message: `is behind the last of the job's steps ${steps}`,
      remedy: `give at most ${steps}`,
    });
  return timeline;
}

export function checkWatchdog(watchdog: Watchdog | false | undefined, details: ProblemDetail[]): void {
  if (watchdog === undefined || watchdog === false) return;
  const { beatSeconds, silenceSeconds } = { ...WATCHDOG_DEFAULTS, ...watchdog };
  if (silenceSeconds < 3 * beatSeconds) {
    details.push({
      field: "watchdog.silenceSeconds",
      value: silenceSeconds,
      message: `is less than three beats of ${beatSeconds} s`,
      remedy: `give at least ${3 * beatSeconds}, or a shorter beatSeconds`,
    });
  }
}

/** A run that replans by itself measures its cluster. */
export function checkReplanning(
  { replanning }: Pick<JobFile, "replanning">,
  { profile = null }: { readonly profile?: string | null },
  details: ProblemDetail[],
): void {
  if (replanning === undefined || profile === null) return;
  details.push({
    field: "replanning",
    value: replanning,
    message: `measures the cluster, and cluster.profile says to go by ${profile}`,
    remedy: "leave out cluster.profile or replanning",
  });
}
