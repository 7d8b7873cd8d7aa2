import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { trainerConfig, type MemoryMap, type TrainerEvent } from "@internevo/contracts";
import { ProblemError, type JobSpec } from "@internevo/domain";
import { buildMesh, type PlanOfJob } from "@internevo/plan";
import { doesNotFit } from "./does-not-fit.ts";

type PlanEvent = Extract<TrainerEvent, { event: "plan" }>;
export type PlannedMemory = PlanEvent & { readonly memoryMap: MemoryMap };

const OWN_NATIVE_DIRECTORY = fileURLToPath(new URL("../../../../native/dist", import.meta.url));
/** A map of a large model is some megabytes. */
const MAXIMUM_OUTPUT_BYTES = 1 << 30;

export const trainerProgram = (env: NodeJS.ProcessEnv): string =>
  resolve(join(env["INTERNEVO_NATIVE_DIRECTORY"] ?? OWN_NATIVE_DIRECTORY, "bin", "internevo-trainer"));

export interface PlanMemoryOptions {
  readonly spec: JobSpec;
  readonly plan: PlanOfJob;
  /** Null: the fullest stage. */
  readonly stage: number | null;
  /** What the trainer must do with, bytes; null: it says what it needs, however much. Default: a GPU's memory. */
  readonly memoryLimitBytes?: number | null;
  /** false: checkpoints are written in the step loop, from where the state lies. Default: from their staging. */
  readonly hasCheckpointStaging?: boolean;
  readonly program: string;
  readonly signal: AbortSignal;
}

/**
 * The trainer's own plan of memory, before step 0: nothing is run, and no data is read.
 * @throws ProblemError what the trainer refuses, with its field, value and remedy; `unavailable` when it is
 * not installed.
 */
export async function planMemory({
  spec,
  plan,
  stage,
  memoryLimitBytes = spec.cluster.memoryPerGpuBytes,
  hasCheckpointStaging = true,
  program,
  signal,
}: PlanMemoryOptions): Promise<PlannedMemory> {
  if (!existsSync(program)) {
    throw new ProblemError("unavailable", `internevo-trainer cannot be started: ${program} does not exist`, [
      {
        field: "INTERNEVO_NATIVE_DIRECTORY",
        value: program,
        message: "holds no such program",
        remedy:
          "build the native programs with `npm run setup`, or point " +
          "INTERNEVO_NATIVE_DIRECTORY to where they are installed",
      },
    ]);
  }
  const config = trainerConfig({
    spec,
    plan,
    mesh: buildMesh(plan),
    dataset: { path: "(not read)" },
    steps: spec.steps,
    threadsPerRank: 1,
    ...(spec.timeline === undefined ? {} : { timeline: { path: "(not written)", ...spec.timeline } }),
    checkpoint:
      spec.checkpointing === null
        ? null
        : {
            directory: "(not written)",
            ...spec.checkpointing,
            ...(hasCheckpointStaging ? {} : { writing: "synchronous" as const }),
            resume: "latest",
          },
  });
  const directory = await mkdtemp(join(tmpdir(), "internevo-memory-"));
  try {
    const path = join(directory, "config.json");
    await writeFile(path, JSON.stringify({ ...config, memoryLimitBytes }));
    const output = await run(
      program,
      [
        "--config",
        path,
        "--dry-run",
        "--without-data",
        "--memory-map",
        ...(stage === null ? [] : ["--stage", String(stage)]),
      ],
      signal,
    );
    const event = JSON.parse(output.trim().split("\n").at(-1) ?? "") as TrainerEvent;
    if (event.event === "error") throw refusalOf(event, spec);
    if (event.event !== "plan" || event.memoryMap === undefined)
      throw new ProblemError("internal", `${program} wrote no memory map`);
    return { ...event, memoryMap: event.memoryMap };
  } finally {
    await rm(directory, { recursive: true });
  }
}

/** What the trainer refuses, in the words of jobs. */
function refusalOf(event: Extract<TrainerEvent, { event: "error" }>, spec: JobSpec): ProblemError {
  const tooMuch = event.code === "out_of_memory" ? doesNotFit(event.message, spec) : undefined;
  if (tooMuch !== undefined) return tooMuch;
  const { message, field, value, remedy } = event;
  const isOfPlan = event.code === "plan_unsupported" || field?.startsWith("plan.") === true;
  const other = isOfPlan ? "plan-invalid" : "internal";
  const code = event.code === "out_of_memory" ? "no-feasible-plan" : other;
  return new ProblemError(
    code,
    message,
    field === undefined
      ? []
      : [{ field, ...(value === undefined ? {} : { value }), message, remedy: remedy ?? "see the message" }],
  );
}

/** What a program writes, whatever its status: an error is an event too. */
function run(program: string, args: readonly string[], signal: AbortSignal): Promise<string> {
  return new Promise((settle, fail) => {
    execFile(program, [...args], { signal, maxBuffer: MAXIMUM_OUTPUT_BYTES }, (error, stdout, stderr) => {
      if (stdout !== "") settle(stdout);
      else
        fail(
          signal.aborted
            ? (signal.reason as Error)
            : new ProblemError("internal", `${program} ended without a word: ${error?.message ?? stderr}`),
        );
    });
  });
}
