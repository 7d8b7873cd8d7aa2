// Ranks that wait for each other on too few cores: step times alone and beside other work, of several builds in turns.
// usage: npm run --silent bench -- waiting [--native DIR …] [--ranks 2,4] [--busy 2]
// Prints JSON; ratios are to the first build.
import { spawn } from "node:child_process";
import { parseArgs } from "node:util";
import { planLabel, quantile } from "@internevo/domain";
import { YIELDS_VARIABLE } from "@internevo/launcher";
import { datasetOf, native, observePlan, withScratch } from "./src/measure.ts";
import { SHARDED } from "./src/measure-overlap.ts";
import { numberFrom, numbersFrom, smallJob } from "./src/small-jobs.ts";

const { values } = parseArgs({
  options: {
    native: { type: "string", multiple: true, default: [native] },
    ranks: { type: "string", default: "2,4" },
    busy: { type: "string", default: "2" },
    steps: { type: "string", default: "12" },
    rounds: { type: "string", default: "3" },
    sharding: { type: "string", default: "" },
  },
});
const SEQUENCES = 8;
const WARMUP_STEPS = 2;
const steps = numberFrom("--steps", values.steps);
const busyLoops = numberFrom("--busy", values.busy);
const rounds = numberFrom("--rounds", values.rounds);
process.env[YIELDS_VARIABLE] = "1";

/** What else runs on the machine: nothing, programs that never wait, or a second run of the same plan. */
const BESIDE = ["nothing", "busy loops", "another run"] as const;
type Beside = (typeof BESIDE)[number];

/** Runs `work` beside it; the second run's steps count as the first's do. */
async function beside(what: Beside, work: () => Promise<number[]>): Promise<number[]> {
  if (what === "another run") return (await Promise.all([work(), work()])).flat();
  const others = Array.from({ length: what === "nothing" ? 0 : busyLoops }, () =>
    spawn(process.execPath, ["--eval", "for(;;);"], { stdio: "ignore" }),
  );
  try {
    return await work();
  } finally {
    for (const other of others) other.kill("SIGKILL");
  }
}

const median = (list: readonly number[]): number => quantile(list, 0.5);

const rows = [];
for (const ranks of numbersFrom("--ranks", values.ranks)) {
  const spec = smallJob({
    model: "llama-0.8m",
    sequenceLengthTokens: 256,
    globalBatchTokens: SEQUENCES * 256,
    cluster: { name: "waiting", nodes: 1, gpusPerNode: ranks, memoryPerGpu: "1GiB", launcher: "local" },
  });
  for (const { name, plan: planOf } of SHARDED) {
    if (!name.includes(values.sharding)) continue;
    const plan = { ...planOf(ranks, SEQUENCES), forwardOverlap: "none", backwardOverlap: "none" } as const;
    for (const what of BESIDE) {
      const stepSeconds: number[][] = values.native.map(() => []);
      for (let round = 0; round < rounds; round++) {
        for (const [build, directory] of values.native.entries()) {
          const seconds = await beside(what, async () =>
            withScratch(async (scratch) => {
              const observed = await observePlan({
                spec,
                plan,
                dataset: await datasetOf(spec, scratch),
                directory: scratch,
                steps: WARMUP_STEPS + steps,
                native: directory,
              });
              if ("code" in observed) throw new Error(`${name} on ${ranks} ranks: ${observed.message}`);
              return observed.steps.slice(WARMUP_STEPS).map((step) => step.stepTimeSeconds);
            }),
          );
          stepSeconds[build]?.push(median(seconds));
        }
        console.error(`${ranks} ranks, ${name}, beside ${what}: round ${round + 1} of ${rounds}`);
      }
      const [first = [], ...others] = stepSeconds;
      rows.push({
        sharding: name,
        plan: planLabel(plan),
        ranks,
        beside: what,
        stepSeconds,
        ratios: others.map((list) => median(first) / median(list)),
        noise: stepSeconds.map((list) => (Math.max(...list) - Math.min(...list)) / median(list)),
      });
    }
  }
}
console.log(JSON.stringify({ benchmark: "waiting", builds: values.native, steps, rounds, rows }, null, 2));
