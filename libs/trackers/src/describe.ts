import { PLAN_ROWS, planLabel, planValue, type Plan } from "@internevo/domain";
import type { TrackedJob } from "./metrics.ts";

/** A job's main figures, by name. */
export function jobFacts({ spec }: TrackedJob): Record<string, string> {
  const { model, optimizer, cluster } = spec;
  return {
    model: model.name,
    sequence_length_tokens: String(spec.sequenceLengthTokens),
    global_batch_tokens: String(spec.globalBatchTokens),
    precision: spec.precision,
    steps: String(spec.steps),
    seed: String(spec.seed),
    peak_learning_rate: String(optimizer.peakLearningRate),
    warmup_steps: String(optimizer.warmupSteps),
    cluster: cluster.name,
    nodes: String(cluster.nodes),
    gpus_per_node: String(cluster.gpusPerNode),
  };
}

/** A plan's label, and each of its fields. */
export const planFacts = (plan: Plan): Record<string, string> => ({
  plan: planLabel(plan),
  ...Object.fromEntries(PLAN_ROWS.map(([field]) => [`plan.${field}`, String(planValue(plan, field))])),
});
