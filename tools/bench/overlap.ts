// Selective overlap against other granularities on a testbed of its own, and how much of what could be hidden is; JSON on stdout.
// usage: npm run --silent bench -- overlap [--write docs/benchmarks] [--from RESULT.json] [--sharding PART-OF-A-NAME]   more options below
import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { bandwidthOf, formatBandwidth } from "@internevo/testbed/options";
import { Stopped, withScratch } from "./src/measure.ts";
import { measureOverlap, SHARDED, type OverlapRow } from "./src/measure-overlap.ts";
import { interruptible, onTestbed } from "./src/on-testbed.ts";
import { writeOverlapPage, type OverlapResult } from "./src/overlap-page.ts";
import { observeCircumstances } from "./src/report.ts";
import { modelsFrom, numberFrom, numbersFrom, smallJob } from "./src/small-jobs.ts";

const { values } = parseArgs({
  options: {
    model: { type: "string", default: "llama-3.4m" },
    sequences: { type: "string", default: "256,512,1024,2048" },
    nodes: { type: "string", default: "2" },
    "ranks-per-node": { type: "string", default: "1" },
    bandwidth: { type: "string", default: "500mbit" },
    rounds: { type: "string", default: "3" },
    steps: { type: "string", default: "3" },
    sharding: { type: "string", default: "" },
    write: { type: "string" },
    from: { type: "string" },
  },
});

const NAME = "bench-overlap";
const MICRO_BATCHES = 2;

async function measured(signal: AbortSignal): Promise<OverlapResult> {
  const settings = {
    nodes: numberFrom("--nodes", values.nodes),
    ranksPerNode: numberFrom("--ranks-per-node", values["ranks-per-node"]),
    bandwidthBitsPerSecond: bandwidthOf(values.bandwidth),
    latencySeconds: 0,
  };
  const cluster = {
    name: NAME,
    nodes: settings.nodes,
    gpusPerNode: settings.ranksPerNode,
    memoryPerGpu: "1GiB",
    launcher: "ssh" as const,
  };
  const [model] = modelsFrom(values.model);
  if (!model) throw new Error("--model: give one");
  const circumstances = observeCircumstances(
    `npm run --silent bench -- overlap ${process.argv.slice(2).join(" ")}`.trim(),
  );
  const rows = await onTestbed(NAME, settings, signal, (place) =>
    withScratch(async (directory) => {
      const list: OverlapRow[] = [];
      const wanted = SHARDED.filter(({ name }) => name.includes(values.sharding));
      if (wanted.length === 0)
        throw new Error(
          `--sharding: ${values.sharding} is part of no row's name: ${SHARDED.map(({ name }) => name).join(", ")}`,
        );
      for (const sharded of wanted) {
        for (const sequenceLengthTokens of numbersFrom("--sequences", values.sequences)) {
          const spec = smallJob({
            model,
            sequenceLengthTokens,
            globalBatchTokens: sequenceLengthTokens * settings.nodes * settings.ranksPerNode * MICRO_BATCHES,
            cluster,
          });
          list.push(
            await measureOverlap(spec, sharded, {
              ...place,
              directory,
              rounds: numberFrom("--rounds", values.rounds),
              steps: numberFrom("--steps", values.steps),
            }),
          );
        }
      }
      return list;
    }),
  );
  const testbed =
    `${settings.nodes} nodes of ${settings.ranksPerNode} rank${settings.ranksPerNode === 1 ? "" : "s"}, ` +
    `links of ${formatBandwidth(settings.bandwidthBitsPerSecond)} each way`;
  return {
    benchmark: "overlap",
    testbed,
    model,
    microBatches: MICRO_BATCHES,
    circumstances: circumstances(),
    rows,
  };
}

try {
  const result =
    values.from === undefined
      ? await interruptible(measured)
      : (JSON.parse(await readFile(values.from, "utf8")) as OverlapResult);
  if (values.write !== undefined) await writeOverlapPage(values.write, result);
  console.log(JSON.stringify(result, null, 2));
} catch (error) {
  if (!(error instanceof Stopped)) throw error;
  process.exitCode = 130;
}
