import { ProblemError, worldSize, type JobFile, type Plan } from "@internevo/domain";
import { expressDeepSpeed, writeDeepSpeed } from "./deepspeed.ts";
import { importDeepSpeed } from "./deepspeed-import.ts";
import { FRAMEWORK_VERSIONS, inexpressibleFields, normalPlan, type ExportedConfiguration, type ExportedJob, type Expression, type Framework, type FrameworkFile, type ImportedConfiguration, type Launch } from "./framework.ts";
import { expressInternEvo, writeInternEvo } from "./internevo.ts";
import { importInternEvo } from "./internevo-import.ts";
import { expressMegatron, writeMegatron } from "./megatron.ts";
import { importMegatron } from "./megatron-import.ts";
import { expressTorchtitan, writeTorchtitan } from "./torchtitan.ts";
import { importTorchtitan } from "./torchtitan-import.ts";

interface Dialect {
  readonly express: (plan: Plan, job: ExportedJob) => Expression;
  readonly write: (job: ExportedJob, plan: Plan) => FrameworkFile[];
  readonly read: (files: readonly FrameworkFile[], asked: Launch | null) => ImportedConfiguration;
}

const DIALECTS: Readonly<Record<Framework, Dialect>> = {
  internevo: { express: expressInternEvo, write: writeInternEvo, read: importInternEvo },
  megatron: { express: expressMegatron, write: writeMegatron, read: importMegatron },
  deepspeed: { express: expressDeepSpeed, write: writeDeepSpeed, read: importDeepSpeed },
  torchtitan: { express: expressTorchtitan, write: writeTorchtitan, read: importTorchtitan },
};

/**
 * A plan as working configuration of another framework: the plan itself, or the nearest that it can say, with every field named
 * that it cannot.
 * @throws ProblemError `plan-invalid` when nothing near can be said, or the plan is for another number of ranks.
 */
export function exportConfiguration(framework: Framework, job: ExportedJob, plan: Plan): ExportedConfiguration {
  const ranks = job.cluster.nodes * job.cluster.gpusPerNode;
  if (worldSize(plan) !== ranks) {
    throw new ProblemError("plan-invalid", "the plan is for another cluster", [{ field: "plan", value: worldSize(plan), message: `is for ${worldSize(plan)} ranks, the job's cluster has ${ranks}`, remedy: "give a plan of this job" }]);
  }
  const { express, write } = DIALECTS[framework];
  const asked = normalPlan(plan, job.model);
  const expression = express(asked, job);
  const expressed = normalPlan(expression.plan, job.model);
  return { framework, version: FRAMEWORK_VERSIONS[framework], files: write(job, expressed), plan: expressed, inexpressible: inexpressibleFields(asked, { ...expression, plan: expressed }) };
}

/**
 * Reads a configuration of another framework as model, workload and plan.
 * @param files the configuration, then files that it names.
 * @param launch the ranks; null: as the configuration says.
 * @throws ProblemError `bad-request`: options that are unknown, contradict one another or stand for no plan, each with a remedy.
 */
export function importConfiguration(framework: Framework, files: readonly [FrameworkFile, ...FrameworkFile[]], launch: Launch | null = null): ImportedConfiguration {
  const [{ name, text }] = files;
  if (text.trim() === "") throw new ProblemError("bad-request", `${name} is empty`, [{ field: "(file)", value: name, message: "is empty", remedy: "give a configuration" }]);
  return DIALECTS[framework].read(files, launch);
}

/** An imported configuration as a job on a cluster. */
export function importedJob(imported: ImportedConfiguration, name: string, memoryPerGpu: string | number, profile?: string): JobFile {
  const { model, sequenceLengthTokens, globalBatchTokens, precision, optimizer, steps, seed, launch } = imported;
  const runs = steps ?? 100;
  const { warmupSteps, decaySteps, ...rest } = optimizer;
  // A schedule may be written for another number of steps than the run's; a job's ends with it.
  const warmup = warmupSteps === undefined ? undefined : Math.min(warmupSteps, runs, decaySteps ?? runs);
  return {
    name,
    model: { ...model },
    sequenceLengthTokens,
    globalBatchTokens,
    precision,
    optimizer: { ...rest, ...(warmup === undefined ? {} : { warmupSteps: warmup }), ...(decaySteps === undefined ? {} : { decaySteps }) },
    steps: runs,
    ...(seed === undefined ? {} : { seed }),
    cluster: { ...launch, memoryPerGpu, ...(profile === undefined ? {} : { profile }) },
  };
}
