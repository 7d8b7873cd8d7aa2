import {
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  statfsSync,
  truncateSync,
  watch,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { attempt, type Attempt, type AttemptOptions, type Ranks, type StepEvent } from "./attempt.ts";
import { checkpointSteps, leftovers, limitFileSize, makeRoom, mountSmall, unmount, verify } from "./disk.ts";
import type { Damage, Kill, Scenario } from "./draw.ts";
import { Judge } from "./judge.ts";
import type { Reference, References } from "./reference.ts";
import { STEPS } from "./settings.ts";

/** mpirun, the launcher and the watchdog of the ranks have so long to end a run whose rank is gone. */
const END_SECONDS = 10;

export interface RunResult {
  readonly scenario: Scenario;
  /** What happened, in the order in which it did. */
  readonly story: readonly string[];
  readonly ended: "bitwise equal" | "equal to 1e-6";
  /** Refusals on the way, which named the remedy that was then applied. */
  readonly refusals: number;
  /** Ranks that were killed. */
  readonly kills: number;
  /** From a kill to the end of the launch, longest. */
  readonly longestEndSeconds: number | null;
  readonly largestDifference: number | null;
  readonly seconds: number;
  readonly violations: readonly string[];
}

interface Stage {
  readonly scenario: Scenario;
  readonly reference: Reference;
  readonly references: References;
  readonly directory: string;
  readonly checkpoints: string;
  readonly judge: Judge;
  readonly story: string[];
  readonly endSeconds: number[];
  refusals: number;
}

async function start(
  { scenario, directory, checkpoints, references, judge }: Stage,
  over: { readonly final: boolean } & Partial<AttemptOptions>,
): Promise<Attempt> {
  const { final, ...hooks } = over;
  const plan = final ? scenario.restartPlan : scenario.plan;
  const newestBefore = checkpointSteps(checkpoints).at(-1) ?? 0;
  const { everySteps, keepLast, writing, onFailure } = scenario;
  const made = await attempt({
    setting: scenario.setting,
    plan,
    dataPath: await references.dataPath(),
    runDirectory: join(directory, "run"),
    checkpoint: { directory: checkpoints, everySteps, keepLast, resume: "latest", writing, onFailure },
    ...hooks,
  });
  judge.attempt(made, newestBefore, plan === scenario.plan);
  return made;
}

/** The last attempt, which nothing disturbs; the one before it when that is done already. */
async function finish(stage: Stage, before: Attempt | undefined): Promise<void> {
  const { scenario, judge, story } = stage;
  const exact = scenario.restartPlan === scenario.plan;
  if (before?.outcome.status === "completed" && exact) return judge.end(before, scenario.keepLast, exact);
  const last = await start(stage, { final: true });
  story.push(
    `restarted${exact ? "" : ` as ${scenario.restartPlan}`} from step ${last.resumedFromStep}: ${last.outcome.status}`,
  );
  await judge.end(last, scenario.keepLast, exact);
}

// ---- a rank is killed
// ----------------------------------------------------------------------------------------------

const NAMES = {
  writing: /^step-\d+\.tmp$/,
  publishing: /^step-\d+$/,
  removing: /^step-\d+\.removed\.tmp$/,
} as const;

type Hooks = Pick<AttemptOptions, "onLaunch" | "onStarted" | "onStep">;

/** Calls back within the step that lies at a fraction of those that are left. */
function within(
  fraction: number,
  stepSeconds: number,
  timers: NodeJS.Timeout[],
  act: () => void,
): { begin: (resumedFromStep: number) => void; onStep: (step: StepEvent) => void } {
  let after = 0;
  let rest = 0;
  const wait = (): void => void timers.push(setTimeout(act, rest * stepSeconds * 1000));
  return {
    begin: (resumedFromStep) => {
      const place = fraction * (STEPS - resumedFromStep);
      after = resumedFromStep + Math.floor(place);
      rest = place - Math.floor(place);
      if (after === resumedFromStep) wait();
    },
    onStep: ({ step }) => {
      if (step === after) wait();
    },
  };
}

interface Armed {
  readonly hooks: Hooks;
  /** When the rank was killed; undefined when it was not. */
  killedAt(): number | undefined;
  disarm(): void;
}

/** Kills the rank at its moment. */
function arm({ moment, rank }: Kill, { steps, launchSeconds }: Reference, checkpoints: string): Armed {
  let killed: number | undefined;
  let over = false;
  let pid: number | undefined;
  let ranksSeen: Ranks | undefined;
  const timers: NodeJS.Timeout[] = [];
  const kill = (): void => {
    if (killed !== undefined || over) return;
    const target = pid ?? ranksSeen?.pids().get(rank);
    if (target === undefined) {
      // Not there yet: the moment is the first at which it is.
      timers.push(setTimeout(kill, 5));
      return;
    }
    try {
      process.kill(target, "SIGKILL");
      killed = performance.now();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
    }
  };
  const stepSeconds =
    steps.map(({ stepTimeSeconds }) => stepTimeSeconds).sort((a, b) => a - b)[Math.floor(steps.length / 2)] ??
    0;
  const training =
    "fraction" in moment && moment.at === "training"
      ? within(moment.fraction, stepSeconds, timers, kill)
      : undefined;
  const file = "occurrence" in moment ? moment : undefined;
  const seen = new Set<string>();
  const watcher =
    file &&
    watch(checkpoints, (_event, name) => {
      if (name === null || pid === undefined || seen.has(name) || !NAMES[file.at].test(name)) return;
      seen.add(name);
      if (seen.size === file.occurrence) timers.push(setTimeout(kill, file.milliseconds));
    });
  return {
    hooks: {
      onLaunch: (ranks) => {
        ranksSeen = ranks;
        if ("fraction" in moment && moment.at === "launch")
          timers.push(setTimeout(kill, moment.fraction * launchSeconds * 1000));
      },
      onStarted: (ranks, resumedFromStep) => {
        pid = ranks.pids().get(rank);
        training?.begin(resumedFromStep);
      },
      ...(training ? { onStep: training.onStep } : {}),
    },
    killedAt: () => killed,
    disarm: () => {
      over = true;
      watcher?.close();
      for (const timer of timers) clearTimeout(timer);
    },
  };
}

async function killed(stage: Stage): Promise<void> {
  const { scenario, reference, checkpoints, judge, story } = stage;
  const saved: number[] = [];
  let last: Attempt | undefined;
  for (const kill of scenario.kills) {
    const armed = arm(kill, reference, checkpoints);
    const made = await start(stage, { final: false, ...armed.hooks });
    armed.disarm();
    last = made;
    const at = armed.killedAt();
    saved.push(...made.saved);
    await judge.disk(saved);
    if (at === undefined || made.outcome.status === "completed") {
      story.push(`rank ${kill.rank} had ended before it was to be killed (${kill.moment.at})`);
      judge.expect(
        made.outcome.status === "completed",
        `an attempt that was not disturbed ended as ${JSON.stringify(made.outcome)}`,
      );
      break;
    }
    const where =
      made.resumedFromStep === null
        ? "before training"
        : `after step ${made.steps.at(-1)?.step ?? made.resumedFromStep}`;
    const half = leftovers(checkpoints);
    const seconds = (performance.now() - at) / 1000;
    stage.endSeconds.push(seconds);
    story.push(
      `rank ${kill.rank} killed ${where} (${kill.moment.at})${half.length > 0 ? `, ${half.join(" and ")} half made` : ""}`,
    );
    judge.expect(seconds <= END_SECONDS, `the run ended ${seconds.toFixed(1)} s after the kill`);
    judge.expect(
      made.outcome.status === "failed",
      `a run whose rank was killed ended as ${made.outcome.status}`,
    );
    if (made.outcome.status === "failed")
      judge.expect(
        ["rank-lost", "communication"].includes(made.outcome.failure.code),
        `a killed rank was reported as ${made.outcome.failure.code}: ${made.outcome.failure.message}`,
      );
  }
  await finish(stage, last);
}

// ---- the disk is full
// ----------------------------------------------------------------------------------------------

const NO_ROOM = /No space left on device|File too large|Disk quota exceeded/;

/** Writes until nothing more goes in, but for so many bytes. */
function fillDisk(directory: string, leftBytes: number): void {
  const { bavail, bsize } = statfsSync(directory);
  const bytes = Math.max(0, bavail * bsize - leftBytes);
  try {
    writeFileSync(join(directory, "filler"), Buffer.alloc(bytes));
  } catch (error) {
    // A checkpoint was written meanwhile: the disk is full, which is what was wanted.
    if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
  }
}

async function full(stage: Stage): Promise<void> {
  const { scenario, reference, checkpoints, judge, story } = stage;
  const { fullness } = scenario;
  if (!fullness) throw new TypeError("this kind of run needs a disk to be full");
  const pages = (bytes: number): number => Math.ceil(bytes / 4096) * 4096;
  const ample = pages(reference.checkpointBytes * (scenario.keepLast + 2) + (1 << 20));
  mountSmall(
    checkpoints,
    fullness.how === "small" ? pages(fullness.checkpoints * reference.checkpointBytes) : ample,
    fullness.how === "inodes" ? fullness.files : null,
  );
  try {
    const timers: NodeJS.Timeout[] = [];
    const filling =
      fullness.how === "filled"
        ? within(fullness.fraction, 0, timers, () => fillDisk(checkpoints, fullness.leftBytes))
        : undefined;
    const made = await start(stage, {
      final: false,
      ...(filling ? { onStep: filling.onStep } : {}),
      onStarted: (ranks, resumedFromStep) => {
        filling?.begin(resumedFromStep);
        const pid = fullness.how === "limit" ? ranks.pids().get(fullness.rank) : undefined;
        if (fullness.how === "limit" && pid !== undefined)
          limitFileSize(pid, Math.floor(fullness.shards * reference.shardBytes));
      },
    });
    for (const timer of timers) clearTimeout(timer);
    await judge.disk(made.saved);
    for (const error of made.errors) judge.refusal(error, NO_ROOM);
    stage.refusals += made.errors.length;
    story.push(
      `disk full (${JSON.stringify(fullness)}): ${made.errors.length} checkpoints refused, run ` +
        `${made.outcome.status}, newest checkpoint of step ${checkpointSteps(checkpoints).at(-1) ?? 0}`,
    );
    judge.expect(
      leftovers(checkpoints).length === 0,
      `left over after a refusal: ${leftovers(checkpoints).join(", ")}`,
    );
    if (made.outcome.status === "completed")
      judge.expect(made.steps.at(-1)?.step === STEPS, "a run that was completed made fewer steps");
    else {
      judge.expect(
        made.outcome.status === "failed" &&
          made.outcome.failure.code === "checkpoint-invalid" &&
          made.outcome.exitCode === 5,
        `a full disk ended the run as ${JSON.stringify(made.outcome)}`,
      );
      judge.expect(
        made.errors.at(-1)?.continues !== true,
        "the error that ended the run says that it continues",
      );
    }
    rmSync(join(checkpoints, "filler"), { force: true });
    makeRoom(checkpoints);
    await finish(stage, made);
  } finally {
    unmount(checkpoints);
  }
}

// ---- a file is damaged
// ---------------------------------------------------------------------------------------------

/** @returns what was done, and what a refusal may say of it. */
function damageFile(
  path: string,
  { how, place, bit }: Damage,
): { readonly done: string; readonly wrong: RegExp } {
  if (how === "removed") {
    rmSync(path);
    return { done: "removed", wrong: /cannot be opened: No such file or directory/ };
  }
  const bytes = readFileSync(path);
  const at = Math.floor(place * bytes.length);
  if (how === "truncated") {
    truncateSync(path, at);
    return { done: `truncated to ${at} of ${bytes.length} bytes`, wrong: /is truncated|is damaged/ };
  }
  bytes[at] = (bytes[at] as number) ^ (1 << bit);
  writeFileSync(path, bytes);
  return {
    done: `bit ${bit} of byte ${at} of ${bytes.length} flipped`,
    wrong: /is damaged|is truncated|is of version|is of another format/,
  };
}

async function damaged(stage: Stage): Promise<void> {
  const { scenario, reference, checkpoints, judge, story } = stage;
  const { damage, damagedAtStep, everySteps, keepLast } = scenario;
  if (!damage) throw new TypeError("this kind of run needs a file to be damaged");
  // What the undisturbed run would have on disk by then, had it saved and kept as this one does.
  const steps = Array.from({ length: damagedAtStep / everySteps }, (_, i) => (i + 1) * everySteps).slice(
    -keepLast,
  );
  for (const step of steps)
    cpSync(join(reference.checkpoints, `step-${step}`), join(checkpoints, `step-${step}`), {
      recursive: true,
    });
  const older = damage.age === 1 && steps.length > 1;
  const victim = join(checkpoints, `step-${steps.at(older ? -2 : -1)}`);
  const shards = readdirSync(victim)
    .filter((name) => name.endsWith(".safetensors"))
    .sort();
  const path = join(
    victim,
    damage.file === "manifest" ? "manifest.json" : (shards[damage.file % shards.length] as string),
  );
  const { done, wrong } = damageFile(path, damage);
  story.push(`${path.slice(checkpoints.length + 1)} ${done}, ${steps.length} checkpoints there`);

  const verified = await verify(victim);
  judge.expect(verified !== undefined, "internevo-checkpoint verify finds nothing");
  // Without its manifest a directory is no checkpoint to the tool.
  if (verified !== undefined)
    judge.expect(
      (verified.includes(path) && wrong.test(verified)) || verified.includes(`${victim} holds no checkpoint`),
      `internevo-checkpoint verify says only: ${verified}`,
    );
  if (!older) {
    const refused = await start(stage, { final: true });
    judge.expect(
      refused.outcome.status === "failed" &&
        refused.outcome.failure.code === "checkpoint-invalid" &&
        refused.outcome.exitCode === 5,
      `a damaged checkpoint ended as ${JSON.stringify(refused.outcome)}`,
    );
    judge.expect(
      refused.steps.length === 0 && refused.resumedFromStep === null,
      "training began with a damaged checkpoint",
    );
    judge.expect(refused.errors.length === 1, `${refused.errors.length} errors were written instead of one`);
    for (const error of refused.errors) judge.refusal(error, wrong, path);
    judge.expect(
      existsSync(victim) && checkpointSteps(checkpoints).length === steps.length,
      "the refused start changed what was on disk",
    );
    const remedy = refused.errors[0]?.remedy ?? "";
    judge.expect(remedy.includes(`remove ${victim}`), `the remedy does not say what to remove: ${remedy}`);
    stage.refusals += 1;
    story.push("refused, and removed as the remedy says");
    rmSync(victim, { recursive: true });
  }
  await finish(stage, undefined);
}

const KIND = { killed, full, truncated: damaged, flipped: damaged } as const;

/** One run, in a directory of its own. */
export async function runScenario(
  scenario: Scenario,
  references: References,
  directory: string,
): Promise<RunResult> {
  const begin = performance.now();
  const reference = await references.of(scenario.setting, scenario.plan);
  const own = join(directory, `run-${scenario.number}`);
  const checkpoints = join(own, "checkpoints");
  rmSync(own, { recursive: true, force: true });
  mkdirSync(checkpoints, { recursive: true });
  const judge = new Judge(reference, checkpoints);
  const stage: Stage = {
    scenario,
    reference,
    references,
    directory: own,
    checkpoints,
    judge,
    story: [],
    endSeconds: [],
    refusals: 0,
  };
  const began = performance.now();
  await KIND[scenario.kind](stage);
  if (judge.violations.length === 0) rmSync(own, { recursive: true });
  return {
    scenario,
    story: stage.story,
    ended: scenario.restartPlan === scenario.plan ? "bitwise equal" : "equal to 1e-6",
    refusals: stage.refusals,
    kills: stage.endSeconds.length,
    longestEndSeconds: stage.endSeconds.length === 0 ? null : Math.max(...stage.endSeconds),
    largestDifference: scenario.restartPlan === scenario.plan ? null : judge.largestDifference,
    seconds: (performance.now() - Math.max(begin, began)) / 1000,
    violations: judge.violations,
  };
}
