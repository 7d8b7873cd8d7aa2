import { openSync, writeSync } from "node:fs";
import { shippedProfile } from "@internevo/cost-model";
import { planLabel, ProblemError, resolveJob, type JobSpec, type Plan } from "@internevo/domain";
import {
  exportConfiguration,
  FRAMEWORKS,
  importConfiguration,
  importedJob,
  type Framework,
} from "@internevo/frameworks";
import { planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import { Coverage } from "./coverage.ts";
import { Drawer, type Input } from "./inputs.ts";
import { FAMILIES } from "./scaling.ts";

export interface Violation {
  readonly input: number;
  readonly framework: Framework;
  readonly violation: string;
  readonly files: Input;
}
export interface WorkerReport {
  readonly read: number;
  readonly refused: number;
  readonly jobs: number;
  readonly roundTrips: number;
  readonly blocks: number;
  readonly corpus: number;
  readonly slowestSeconds: number;
  readonly violations: readonly Violation[];
  readonly violationCount: number;
}

const MOST_SECONDS = 1;
const MOST_TOLD = 20;
/** Lines or words of a text that grows: where each looked at all before it, they would take many seconds. */
const GROWN = 8000;
/** Coverage is looked at once for so many inputs: looking takes longer than reading. */
const BATCH = 100;
const MOST_CORPUS = 400;

const jobOf = (more: Record<string, unknown>): JobSpec =>
  resolveJob({
    name: "seven",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 2 ** 20,
    steps: 100,
    cluster: { nodes: 2, gpusPerNode: 8, memoryPerGpu: "80GB" },
    ...more,
  });

/** Plans that the search finds, of jobs of several kinds. */
function plansAndJobs(): { readonly job: JobSpec; readonly plan: Plan }[] {
  const profile = shippedProfile("a800-128");
  const jobs = [
    jobOf({}),
    jobOf({ sequenceLengthTokens: 65_536, precision: "fp32" }),
    jobOf({ precision: "bf16-grad16", globalBatchTokens: 2 ** 18 }),
  ];
  return jobs.flatMap((job) =>
    planJob(job, profile, { top: 40 }).candidates.map(({ plan }) => ({ job, plan })),
  );
}

/** A machine that gives its processor to others is not what is looked for. */
function processorSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

const isText = (value: unknown): boolean => typeof value === "string" && value.length > 0;

/** Reads the input; says what is wrong with how that went. */
function judged(
  framework: Framework,
  files: Input,
  asked: boolean,
): { readonly violation: string | null; readonly isJob: boolean } {
  try {
    const imported = importConfiguration(framework, files, asked ? { nodes: 2, gpusPerNode: 8 } : null);
    resolveJob(importedJob(imported, "imported", "80GB"));
    JSON.stringify(imported);
    return { violation: null, isJob: true };
  } catch (error) {
    if (!(error instanceof ProblemError))
      return { violation: (error as Error).stack ?? String(error), isJob: false };
    const isTold =
      error.details.length > 0 &&
      error.details.every(({ field, message, remedy }) => isText(field) && isText(message) && isText(remedy));
    if (!isTold)
      return { violation: `a problem without field, message and remedy: ${error.message}`, isJob: false };
    return {
      violation: JSON.stringify(error.details).length > 100_000 ? "a problem that is too long" : null,
      isJob: false,
    };
  }
}

/** What is written is read back as the same plan. */
function roundTrip(
  framework: Framework,
  { job, plan }: { readonly job: JobSpec; readonly plan: Plan },
): { readonly files: Input; readonly violation: string | null } {
  const written = exportConfiguration(framework, job, planOfJob(plan, job));
  const files = written.files as unknown as Input;
  const back = importConfiguration(framework, files);
  const [is, was] = [planLabel(back.plan), planLabel(written.plan)];
  return { files, violation: is === was ? null : `reads ${is}, and wrote ${was}` };
}

/** Texts that grow, and are read too slowly. */
function slowFamilies(): Violation[] {
  return FAMILIES.flatMap(({ name, framework, files: made }) => {
    const files = made(GROWN);
    const begin = processorSeconds();
    const { violation } = judged(framework, files, true);
    const seconds = processorSeconds() - begin;
    const slow = seconds > MOST_SECONDS ? `${name}: took ${seconds.toFixed(1)} s of the processor` : null;
    const found = violation ?? slow;
    return found === null ? [] : [{ input: -1, framework, violation: found, files }];
  });
}

/**
 * @param current a file whose first line is the input that is being read, for whoever ends a process that
 * hangs.
 */
function run(inputs: number, seed: number, current: string): WorkerReport {
  const drawer = new Drawer(seed);
  const violations: Violation[] = [];
  let [read, refused, jobs, roundTrips, violationCount, slowestSeconds] = [0, 0, 0, 0, 0, 0];
  const tell = (violation: Violation): void => {
    violationCount += 1;
    if (violations.length < MOST_TOLD) violations.push(violation);
  };
  for (const violation of slowFamilies()) tell(violation);
  const known = plansAndJobs();
  // The search is not what is looked at, and runs slower under it.
  const coverage = new Coverage();
  const corpora = Object.fromEntries(FRAMEWORKS.map((framework) => [framework, [] as Input[]])) as Record<
    Framework,
    Input[]
  >;
  for (const framework of FRAMEWORKS) {
    for (const each of known) {
      roundTrips += 1;
      try {
        const { files, violation } = roundTrip(framework, each);
        if (roundTrips % 15 === 1) corpora[framework].push(files);
        if (violation !== null) tell({ input: -1, framework, violation, files });
      } catch (error) {
        if (!(error instanceof ProblemError))
          tell({
            input: -1,
            framework,
            violation: (error as Error).stack ?? String(error),
            files: [{ name: "plan", text: planLabel(each.plan) }],
          });
      }
    }
  }
  coverage.newBlocks();
  let batch: { readonly framework: Framework; readonly files: Input; readonly asked: boolean }[] = [];
  // Kept open, and written over: to make a file anew for each input takes longer than most are read in.
  const told = openSync(current, "w");
  /** Most of a batch is nothing new: only inputs that reach new code by themselves are changed further. */
  const keepIfNew = ({ framework, files, asked }: (typeof batch)[number]): void => {
    judged(framework, files, asked);
    if (coverage.newBlocksAlone() === 0) return;
    const corpus = corpora[framework];
    if (corpus.length < MOST_CORPUS) corpus.push(files);
    else corpus[drawer.below(MOST_CORPUS)] = files;
  };
  for (let number = 0; number < inputs; number += 1) {
    const framework = FRAMEWORKS[number % FRAMEWORKS.length] as Framework;
    const files = drawer.input(framework, corpora[framework]);
    const asked = drawer.below(3) > 0;
    writeSync(told, `${JSON.stringify({ input: number, framework, files })}\n`, 0);
    const begin = processorSeconds();
    const { violation, isJob } = judged(framework, files, asked);
    const seconds = processorSeconds() - begin;
    if (seconds > MOST_SECONDS)
      tell({ input: number, framework, violation: `took ${seconds.toFixed(1)} s of the processor`, files });
    slowestSeconds = Math.max(slowestSeconds, seconds);
    read += 1;
    if (isJob) jobs += 1;
    else refused += 1;
    if (violation !== null) tell({ input: number, framework, violation, files });
    batch.push({ framework, files, asked });
    if (batch.length < BATCH) continue;
    if (coverage.newBlocks() > 0) for (const each of batch) keepIfNew(each);
    batch = [];
  }
  return {
    read,
    refused,
    jobs,
    roundTrips,
    blocks: coverage.blocks,
    corpus: Object.values(corpora).reduce((sum, each) => sum + each.length, 0),
    slowestSeconds,
    violations,
    violationCount,
  };
}

const [, , inputs = "", seed = "", current = ""] = process.argv;
process.send?.(run(Number(inputs), Number(seed), current));
