// Predicted against measured: profiles this machine and testbeds of its own, plans small jobs, runs plans of
// each in random order, and compares. With --timeline PLAN (once or more often): runs plans of one job, says
// where prediction and measurement differ by kind of segment, and writes both as one trace; with --no-local
// on a testbed of the first of --bandwidths and --testbed-workloads. JSON on stdout. usage: npm run --silent
// bench -- accuracy [--write docs/benchmarks] [--from RESULT.json] more options below
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { parseProfile } from "@internevo/cost-model";
import { parsePlanLabel, type JobSpec } from "@internevo/domain";
import { planFault } from "@internevo/plan";
import { planJob } from "@internevo/search";
import { bandwidthOf, formatBandwidth } from "@internevo/testbed/options";
import { overallOf, undisturbedOf, writeAccuracyPage, type AccuracyResult } from "./src/accuracy-page.ts";
import { measureAccuracy, type AccuracyRow } from "./src/measure-accuracy.ts";
import { profileFor, readJob, repository, Stopped, withDocuments, withScratch } from "./src/measure.ts";
import { interruptible, onTestbed } from "./src/on-testbed.ts";
import { observeCircumstances } from "./src/report.ts";
import { compareTimeline, type TimelineComparison } from "./src/segments.ts";
import { modelsFrom, numberFrom, numbersFrom, smallJob } from "./src/small-jobs.ts";

const { values } = parseArgs({
  options: {
    /** A job file instead of the small jobs; on this machine only. */
    job: { type: "string" },
    workloads: {
      type: "string",
      default:
        "llama-0.8m:256,llama-0.8m:1024,llama-1.9m:256,llama-1.9m:1024,llama-3.4m:512,llama-2.2m:512,llama-0.8m:1024:packed",
    },
    "testbed-workloads": { type: "string", default: "llama-0.8m:512,llama-1.9m:512,llama-2.2m:512" },
    bandwidths: { type: "string", default: "1gbit,250mbit" },
    tokens: { type: "string", default: "2048" },
    ranks: { type: "string", default: "2" },
    plans: { type: "string", default: "16" },
    "testbed-plans": { type: "string", default: "12" },
    repeat: { type: "string", default: "2" },
    steps: { type: "string", default: "5" },
    seed: { type: "string", default: "1" },
    "no-local": { type: "boolean", default: false },
    /** Also writes the profiles into a folder, so that other predictions can be made of them. */
    "save-profiles": { type: "string" },
    /** The label of a plan, as tables print it; with `best` the one that is predicted first. */
    timeline: { type: "string", multiple: true },
    /** A profile for --timeline; default: the machine is measured. */
    profile: { type: "string" },
    output: { type: "string", default: "timeline-with-prediction.json" },
    write: { type: "string" },
    /** Results to write the page of, several of which become one: what was measured in parts. */
    from: { type: "string", multiple: true },
  },
});

const NAME = "bench-accuracy";

/** MODEL:SEQUENCE, of the small models; MODEL:SEQUENCE:packed packs documents. */
async function jobsFrom(
  option: string,
  list: string,
  cluster: Parameters<typeof smallJob>[0]["cluster"],
): Promise<JobSpec[]> {
  const texts = list.split(",").filter((text) => text !== "");
  return Promise.all(
    texts.map((text) => {
      const [name = "", sequence = "", packing] = text.split(":");
      const [model] = modelsFrom(name);
      if (!model) throw new Error(`${option}: ${text} has no model`);
      if (packing !== undefined && packing !== "packed")
        throw new Error(`${option}: ${text} ends in ${packing}; write packed, or leave it out`);
      return withDocuments(
        smallJob({
          model,
          sequenceLengthTokens: numbersFrom(option, sequence)[0] as number,
          globalBatchTokens: numberFrom("--tokens", values.tokens),
          packed: packing === "packed",
          cluster,
        }),
      );
    }),
  );
}

type Measured = Awaited<ReturnType<typeof measureAccuracy>>;

function settingsOfRun() {
  return {
    plans: numberFrom("--plans", values.plans),
    repeat: numberFrom("--repeat", values.repeat),
    steps: numberFrom("--steps", values.steps),
    seed: numberFrom("--seed", values.seed),
  };
}

async function measuredHere(ranks: number, signal: AbortSignal): Promise<Measured> {
  const specs =
    values.job === undefined
      ? await jobsFrom("--workloads", values.workloads, {
          name: "this-machine",
          nodes: 1,
          gpusPerNode: ranks,
          memoryPerGpu: "1GiB",
          launcher: "local",
        })
      : [await readJob(values.job)];
  return withScratch((directory) =>
    measureAccuracy(specs, { ...settingsOfRun(), directory, place: "this machine", signal }),
  );
}

async function measuredOnTestbed(
  ranks: number,
  { place, bandwidthBitsPerSecond }: { readonly place: string; readonly bandwidthBitsPerSecond: number },
  signal: AbortSignal,
): Promise<Measured> {
  const specs = await jobsFrom("--testbed-workloads", values["testbed-workloads"], {
    name: NAME,
    nodes: ranks,
    gpusPerNode: 1,
    memoryPerGpu: "1GiB",
    launcher: "ssh",
  });
  const plans = numberFrom("--testbed-plans", values["testbed-plans"]);
  return onTestbed(
    NAME,
    { nodes: ranks, ranksPerNode: 1, bandwidthBitsPerSecond, latencySeconds: 0 },
    signal,
    (where) =>
      withScratch((directory) =>
        measureAccuracy(specs, { ...settingsOfRun(), ...where, plans, directory, place }),
      ),
  );
}

async function saveProfile(place: string, { profile }: Measured): Promise<void> {
  const directory = values["save-profiles"];
  if (directory === undefined) return;
  const name = `${place.replaceAll(/[^A-Za-z0-9]+/g, "-")}.json`;
  await writeFile(join(directory, name), JSON.stringify(profile, null, 1));
}

async function measured(signal: AbortSignal): Promise<AccuracyResult> {
  const settings = settingsOfRun();
  const circumstances = observeCircumstances(
    `npm run --silent bench -- accuracy ${process.argv.slice(2).join(" ")}`.trim(),
  );
  if (values["save-profiles"] !== undefined) await mkdir(values["save-profiles"], { recursive: true });
  const rows: AccuracyRow[] = [];
  const profiles: { place: string; notes: readonly string[] }[] = [];
  let device = "";
  const add = async (place: string, result: Measured): Promise<void> => {
    rows.push(...result.rows);
    profiles.push({ place, notes: result.profile.provenance.notes });
    device = result.profile.device.name;
    await saveProfile(place, result);
  };
  const ranks = numberFrom("--ranks", values.ranks);
  if (!values["no-local"]) await add("this machine", await measuredHere(ranks, signal));
  const bandwidths = values.job === undefined ? values.bandwidths.split(",") : [];
  for (const text of bandwidths.filter((each) => each !== "")) {
    const bandwidthBitsPerSecond = bandwidthOf(text);
    const place = `${ranks} nodes, ${formatBandwidth(bandwidthBitsPerSecond)}`;
    await add(place, await measuredOnTestbed(ranks, { place, bandwidthBitsPerSecond }, signal));
  }
  return {
    benchmark: "accuracy",
    device,
    settings,
    circumstances: circumstances(),
    profiles,
    overall: overallOf(rows),
    undisturbed: undisturbedOf(rows),
    rows,
  };
}

/** Results of several commands as one. */
function joined([first, ...others]: readonly AccuracyResult[]): AccuracyResult {
  if (!first) throw new Error("--from: give a result");
  const all = [first, ...others];
  const rows = all.flatMap((result) => result.rows);
  const circumstances = {
    ...first.circumstances,
    command: all.map((result) => result.circumstances.command).join(" and "),
    loadAfter: (all.at(-1) as AccuracyResult).circumstances.loadAfter,
    seconds: all.reduce((sum, result) => sum + result.circumstances.seconds, 0),
  };
  return {
    ...first,
    circumstances,
    profiles: all.flatMap((result) => result.profiles),
    overall: overallOf(rows),
    undisturbed: undisturbedOf(rows),
    rows,
  };
}

/** Plans of one job, profiled once, on this machine or on a testbed. */
async function timelines(labels: readonly string[], signal: AbortSignal): Promise<TimelineComparison[]> {
  const compare = async (
    spec: JobSpec,
    place: { readonly clustersFile?: string },
  ): Promise<TimelineComparison[]> =>
    withScratch(async (directory) => {
      const profile =
        values.profile === undefined
          ? await profileFor(spec, directory, { ...place, signal })
          : parseProfile(JSON.parse(await readFile(values.profile, "utf8")), values.profile);
      const best = planJob(spec, profile, { top: 1 }).runnableCandidates[0]?.plan;
      const results: TimelineComparison[] = [];
      for (const [index, label] of labels.entries()) {
        const plan = label === "best" ? best : parsePlanLabel(label);
        if (!plan) throw new Error(`--timeline: ${spec.name} has no plan that can run`);
        const fault = planFault(plan, spec);
        if (fault !== null)
          throw new Error(`--timeline: ${label} is no plan of ${spec.name}: ${fault.message}`);
        const output =
          labels.length === 1 ? values.output : values.output.replace(/(\.json)?$/, `-${index + 1}.json`);
        results.push(
          await compareTimeline(spec, plan, profile, {
            ...place,
            directory,
            steps: numberFrom("--steps", values.steps),
            output,
            signal,
          }),
        );
      }
      return results;
    });
  if (!values["no-local"])
    return compare(await readJob(values.job ?? join(repository, "examples/quickstart.yaml")), {});
  const ranks = numberFrom("--ranks", values.ranks);
  const [spec] = await jobsFrom("--testbed-workloads", values["testbed-workloads"], {
    name: NAME,
    nodes: ranks,
    gpusPerNode: 1,
    memoryPerGpu: "1GiB",
    launcher: "ssh",
  });
  if (!spec) throw new Error("--testbed-workloads: give a job");
  const bandwidthBitsPerSecond = bandwidthOf(values.bandwidths.split(",")[0] ?? "");
  return onTestbed(
    NAME,
    { nodes: ranks, ranksPerNode: 1, bandwidthBitsPerSecond, latencySeconds: 0 },
    signal,
    (where) => compare(spec, where),
  );
}

try {
  if (values.timeline !== undefined) {
    const labels = values.timeline;
    console.log(JSON.stringify(await interruptible((signal) => timelines(labels, signal)), null, 2));
    process.exit();
  }
  const result =
    values.from === undefined
      ? await interruptible(measured)
      : joined(
          await Promise.all(
            values.from.map(async (path) => JSON.parse(await readFile(path, "utf8")) as AccuracyResult),
          ),
        );
  if (values.write !== undefined) await writeAccuracyPage(values.write, result);
  console.log(JSON.stringify(result, null, 2));
} catch (error) {
  if (!(error instanceof Stopped)) throw error;
  process.exitCode = 130;
}
