import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { TrainerConfig, TrainerEvent } from "@internevo/contracts";
import {
  launchRanks,
  processesOfRun,
  readRunRecord,
  trainerIn,
  type LaunchOutcome,
  type NativeError,
  type Trainer,
} from "@internevo/launcher";
import type { Plan } from "@internevo/domain";
import { buildMesh } from "@internevo/plan";
import { PLANS, ranksOf, SEQUENCE_LENGTH_TOKENS, STEPS, type Setting } from "./settings.ts";

export const NATIVE_DIRECTORY =
  process.env["INTERNEVO_NATIVE_DIRECTORY"] ?? join(import.meta.dirname, "../../../../native/dist");

/** No attempt lasts longer: what does hangs. */
export const DEADLINE_SECONDS = 90;

export type StepEvent = Extract<TrainerEvent, { event: "step" }>;

export interface Attempt {
  readonly outcome: LaunchOutcome;
  /** The step that it went on from; null when it did not come so far. */
  readonly resumedFromStep: number | null;
  readonly steps: readonly StepEvent[];
  /** Steps whose checkpoint was said to be in place. */
  readonly saved: readonly number[];
  readonly errors: readonly NativeError[];
  /** From `started` to the end, and of the whole launch. */
  readonly trainingSeconds: number;
  readonly launchSeconds: number;
  /** Ranks that were still there when the launch was over. */
  readonly ranksLeft: number;
}

/** The ranks of a launch that runs, by rank. */
export interface Ranks {
  pids(): ReadonlyMap<number, number>;
}

export interface AttemptOptions {
  readonly setting: Setting;
  readonly plan: string;
  readonly dataPath: string;
  /** Holds the configuration and the record of the launch. */
  readonly runDirectory: string;
  readonly checkpoint: NonNullable<TrainerConfig["checkpoint"]>;
  /** Called when the ranks have been asked to start, and when they begin to train. */
  readonly onLaunch?: (ranks: Ranks) => void;
  readonly onStarted?: (ranks: Ranks, resumedFromStep: number) => void;
  readonly onStep?: (step: StepEvent) => void;
}

/** Newline: with it a text is a file of documents. */
const END_OF_DOCUMENT = 10;

export function configOf({
  setting,
  plan: name,
  dataPath,
  checkpoint,
}: Pick<AttemptOptions, "setting" | "plan" | "dataPath" | "checkpoint">): TrainerConfig {
  const plan = PLANS[name];
  if (!plan) throw new TypeError(`there is no plan ${name}`);
  // Overlap places no rank.
  const complete: Plan = { ...plan, forwardOverlap: "none", backwardOverlap: "none" };
  return {
    protocol: 1,
    model: setting.model,
    sequenceLengthTokens: SEQUENCE_LENGTH_TOKENS,
    precision: setting.precision,
    plan,
    mesh: buildMesh(complete),
    optimizer: {
      peakLearningRate: 0.003,
      minLearningRate: 0.0003,
      warmupSteps: 2,
      decaySteps: STEPS,
      weightDecay: 0.1,
      beta1: 0.9,
      beta2: 0.95,
      epsilon: 1e-8,
      clipGlobalNorm: 1,
    },
    data: {
      path: dataPath,
      format: "own",
      ...(setting.packed ? { packing: "documents", endOfDocumentToken: END_OF_DOCUMENT } : {}),
    },
    seed: 7,
    steps: STEPS,
    checkpoint,
    memoryLimitBytes: null,
    threadsPerRank: 1,
    deterministic: true,
    gradientDumpPath: null,
  };
}

function rankOf(pid: number): number | undefined {
  try {
    const rank = /(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)/.exec(
      readFileSync(`/proc/${pid}/environ`, "latin1"),
    )?.[1];
    return rank === undefined ? undefined : Number(rank);
  } catch {
    return undefined; // it has ended
  }
}

/** Launches the trainer as the product does, once. */
export async function attempt(options: AttemptOptions): Promise<Attempt> {
  const config = configOf(options);
  const begin = performance.now();
  let started = begin;
  let resumedFromStep: number | null = null;
  let ended = begin;
  const steps: StepEvent[] = [];
  const saved: number[] = [];
  const errors: NativeError[] = [];
  let marker: string | undefined;
  const ranks: Ranks = {
    pids: () => {
      marker ??= readRunRecord(options.runDirectory)?.marker;
      // The kernel cuts names of commands after 15 characters.
      const trainers =
        marker === undefined
          ? []
          : processesOfRun(marker).filter(({ command }) => command === "internevo-train");
      return new Map(
        trainers.flatMap(({ pid }) => {
          const rank = rankOf(pid);
          return rank === undefined ? [] : [[rank, pid] as const];
        }),
      );
    },
  };
  const running = launchRanks<Trainer>({
    program: trainerIn(NATIVE_DIRECTORY),
    config,
    ranks: ranksOf(config.plan),
    threadsPerRank: 1,
    launcher: "local",
    runDirectory: options.runDirectory,
    timeoutSeconds: DEADLINE_SECONDS,
    onEvent: (event) => {
      ended = performance.now();
      if (event.event === "started") {
        started = ended;
        resumedFromStep = event.resumedFromStep;
        options.onStarted?.(ranks, event.resumedFromStep);
      } else if (event.event === "step") {
        steps.push(event);
        options.onStep?.(event);
      } else if (event.event === "checkpoint") saved.push(event.step);
      else if (event.event === "error") errors.push(event);
    },
  });
  options.onLaunch?.(ranks);
  const outcome = await running;
  const seconds = (performance.now() - begin) / 1000;
  return {
    outcome,
    resumedFromStep,
    steps,
    saved,
    errors,
    launchSeconds: seconds,
    trainingSeconds: resumedFromStep === null ? 0 : (ended - started) / 1000,
    ranksLeft: marker === undefined ? 0 : processesOfRun(marker).length,
  };
}
