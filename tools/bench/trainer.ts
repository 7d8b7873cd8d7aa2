// Trainer on CPU: tokens/s of one rank on one thread and the share of speed of light (every kernel at the profiled peak).
// usage: npm run bench -- trainer [JOB.yaml …]   prints JSON
import { join } from "node:path";
import { CostModel } from "@internevo/cost-model";
import { planOfJob } from "@internevo/plan";
import { planJob } from "@internevo/search";
import { datasetOf, profileFor, readJob, repository, runPlan, withScratch } from "./src/measure.ts";

const WARMUP_STEPS = 2;
const MEASURED_STEPS = 7;
const given = process.argv.slice(2);
const jobs =
  given.length > 0
    ? given
    : ["model-a-fp32.yaml", "model-a-bf16.yaml", "model-b-fp32.yaml"].map((name) =>
        join(repository, "tools/bench/jobs", name),
      );

const rows = [];
for (const path of jobs) {
  const spec = await readJob(path);
  rows.push(
    await withScratch(async (directory) => {
      const profile = await profileFor(spec, directory);
      const dataset = await datasetOf(spec, directory);
      const best = planJob(spec, profile).runnableCandidates[0];
      if (!best) throw new Error(`no plan of ${spec.name} runs here`);
      const measured = await runPlan({
        spec,
        plan: best.plan,
        dataset,
        directory,
        warmupSteps: WARMUP_STEPS,
        measuredSteps: MEASURED_STEPS,
      });
      if ("code" in measured) throw new Error(`${spec.name}: ${measured.message}`);
      const predicted = new CostModel(spec, profile).predict(planOfJob(best.plan, spec));
      const ratio = predicted.stepTimeSeconds / measured.stepTimeSeconds;
      return {
        job: spec.name,
        precision: spec.precision,
        plan: best.plan,
        tokensPerSecond: measured.tokensPerGpuPerSecond * spec.cluster.nodes * spec.cluster.gpusPerNode,
        stepTimeSeconds: {
          median: measured.stepTimeSeconds,
          p10: measured.stepTimeSecondsP10,
          p90: measured.stepTimeSecondsP90,
        },
        speedOfLight: predicted.speedOfLight * ratio,
        mfu: predicted.mfu * ratio,
        peakFlopsPerSecond:
          spec.precision === "fp32"
            ? profile.device.peakFlopsPerSecondFp32
            : profile.device.peakFlopsPerSecondBf16,
        peakMemoryBytes: measured.peakMemoryBytes,
        residentPeakBytes: measured.residentPeakBytes,
        device: profile.device.name,
      };
    }),
  );
}
console.log(
  JSON.stringify(
    { benchmark: "trainer", warmupSteps: WARMUP_STEPS, measuredSteps: MEASURED_STEPS, rows },
    null,
    2,
  ),
);
