// InternEvo's plans against the best of Megatron's and DeepSpeed-Ulysses' kind, run on a testbed of its own; JSON on stdout.
// usage: npm run --silent bench -- systems [--write docs/benchmarks] [--from RESULT.json]   more options below
import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { bandwidthOf, formatBandwidth } from "@internevo/testbed/options";
import { compareSystems } from "./src/compare-systems.ts";
import { Stopped, withScratch } from "./src/measure.ts";
import { interruptible, onTestbed } from "./src/on-testbed.ts";
import { observeCircumstances } from "./src/report.ts";
import { modelsFrom, numberFrom, numbersFrom, smallJob } from "./src/small-jobs.ts";
import { writeSystemsPage, type SystemsResult } from "./src/systems-page.ts";

const { values } = parseArgs({
  options: {
    models: { type: "string", default: "llama-0.8m,llama-1.9m,llama-2.2m" },
    sequences: { type: "string", default: "256,512,1024,2048" },
    tokens: { type: "string", default: "2048" },
    memory: { type: "string", default: "512MiB" },
    nodes: { type: "string", default: "2" },
    "ranks-per-node": { type: "string", default: "2" },
    bandwidth: { type: "string", default: "250mbit" },
    candidates: { type: "string", default: "10" },
    "baseline-candidates": { type: "string", default: "3" },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "1" },
    write: { type: "string" },
    from: { type: "string" },
  },
});

const NAME = "bench-systems";

async function measured(signal: AbortSignal): Promise<SystemsResult> {
  const settings = {
    nodes: numberFrom("--nodes", values.nodes),
    ranksPerNode: numberFrom("--ranks-per-node", values["ranks-per-node"]),
    bandwidthBitsPerSecond: bandwidthOf(values.bandwidth),
    latencySeconds: 0,
  };
  const globalBatchTokens = numberFrom("--tokens", values.tokens);
  const cluster = {
    name: NAME,
    nodes: settings.nodes,
    gpusPerNode: settings.ranksPerNode,
    memoryPerGpu: values.memory,
    launcher: "ssh" as const,
  };
  const specs = modelsFrom(values.models).flatMap((model) =>
    numbersFrom("--sequences", values.sequences).map((sequenceLengthTokens) =>
      smallJob({ model, sequenceLengthTokens, globalBatchTokens, cluster }),
    ),
  );
  const circumstances = observeCircumstances(
    `npm run --silent bench -- systems ${process.argv.slice(2).join(" ")}`.trim(),
  );
  const { profile, rows } = await onTestbed(NAME, settings, signal, (place) =>
    withScratch((directory) =>
      compareSystems(specs, {
        ...place,
        directory,
        candidates: numberFrom("--candidates", values.candidates),
        baselineCandidates: numberFrom("--baseline-candidates", values["baseline-candidates"]),
        rounds: numberFrom("--rounds", values.rounds),
        secondsPerRun: Number(values.seconds),
      }),
    ),
  );
  const testbed =
    `${settings.nodes} nodes of ${settings.ranksPerNode} rank${settings.ranksPerNode === 1 ? "" : "s"}, ` +
    `links of ${formatBandwidth(settings.bandwidthBitsPerSecond)} each way`;
  return {
    benchmark: "systems",
    testbed,
    globalBatchTokens,
    memoryPerRank: values.memory,
    device: profile.device.name,
    circumstances: circumstances(),
    rows,
  };
}

try {
  const result =
    values.from === undefined
      ? await interruptible(measured)
      : (JSON.parse(await readFile(values.from, "utf8")) as SystemsResult);
  if (values.write !== undefined) await writeSystemsPage(values.write, result);
  console.log(JSON.stringify(result, null, 2));
} catch (error) {
  if (!(error instanceof Stopped)) throw error;
  process.exitCode = 130;
}
