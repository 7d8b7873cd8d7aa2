import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import {
  formatCounted,
  formatSpan,
  ProblemError,
  resolveJob,
  type Candidate,
  type JobSpec,
  type MeasuredTrace,
  type Profile,
} from "@internevo/domain";
import {
  assembleKit,
  measurementKit,
  readCheckResults,
  timelineMap,
  timelinesOf,
  type Kit,
} from "@internevo/profiles";
import { planJob } from "@internevo/search";
import type { Command } from "commander";
import { integerArgument, numberArgument } from "../arguments.ts";
import type { Context } from "../context.ts";
import { assertWritable, readText, writeWhole } from "../files.ts";
import { readJobFile } from "../job-input.ts";
import { jobProfile } from "../named-profile.ts";
import { readJson } from "../plan-argument.ts";

/** A node's results are some megabytes; timelines some hundred kilobytes each. */
const MAXIMUM_RESULTS_BYTES = 1 << 28;

interface PrepareOptions {
  readonly profile?: string;
  readonly plans: number;
  readonly threads: number;
  readonly samples: number;
  readonly pointSeconds: number;
  readonly sliceSeconds: number;
  readonly rounds: number;
  readonly probe?: string;
  readonly out: string;
}

const TARGET_RELATIVE_SPREAD = 0.03;
/** So many plans may be predicted alike: every policy of overlap in both passes. */
const MOST_ALIKE = 50;

async function digestOf(path: string): Promise<string> {
  try {
    return createHash("sha256")
      .update(await readFile(path))
      .digest("hex")
      .slice(0, 16);
  } catch (error) {
    throw new ProblemError(
      "bad-request",
      `--probe ${path} cannot be read`,
      [
        {
          field: "--probe",
          value: path,
          message: (error as Error).message,
          remedy: "give the internevo-probe that the node will run",
        },
      ],
      { cause: error },
    );
  }
}

/**
 * Of plans that are predicted alike in time and memory one is tried: on one rank they differ in what it does
 * not do.
 */
function bestPlans(
  job: JobSpec,
  profile: Profile,
  { plans: wanted, threads }: Pick<PrepareOptions, "plans" | "threads">,
): Candidate[] {
  if (wanted === 0) return [];
  const { plans = [] } = planJob(job, profile, { plans: MOST_ALIKE * wanted, threadsPerRank: threads });
  const different = new Map<string, Candidate>();
  for (const each of plans) {
    const { stepTimeSeconds, peakMemoryBytes } = each.predicted;
    const key = `${stepTimeSeconds} ${peakMemoryBytes}`;
    if (each.runnable && !different.has(key)) different.set(key, each);
  }
  if (different.size === 0)
    throw new ProblemError("bad-request", `no plan of ${job.name} can be tried`, [
      {
        field: "--plans",
        value: wanted,
        message: `none of its plans fits and runs, by profile ${profile.name}`,
        remedy: "give a job that has plans (`internevo plan` says why one is rejected), or --plans 0",
      },
    ]);
  return [...different.values()].slice(0, wanted);
}

async function prepare(jobFiles: readonly string[], options: PrepareOptions, context: Context): Promise<Kit> {
  const jobs = await Promise.all(jobFiles.map(async (file) => resolveJob(await readJobFile(file))));
  const [job] = jobs as [JobSpec, ...JobSpec[]];
  const profile = await jobProfile(job, options.profile, context);
  const plans = context.computing(() => bestPlans(job, profile, options));
  return measurementKit({
    jobs,
    threadsPerRank: options.threads,
    effort: {
      minimumSamples: options.samples,
      maximumSecondsPerPoint: options.pointSeconds,
      targetRelativeSpread: TARGET_RELATIVE_SPREAD,
    },
    device: profile.device,
    sliceSeconds: options.sliceSeconds,
    sliceRounds: options.rounds,
    probeDigest: options.probe === undefined ? null : await digestOf(options.probe),
    plans,
    profileName: profile.name,
    madeAt: new Date(),
  });
}

async function assemble(files: readonly string[]): Promise<Profile> {
  const texts = await Promise.all(
    files.map(async (name) => ({
      name,
      text: await readText(name, {
        code: "profile-invalid",
        field: "files",
        what: "what gpu-check wrote with --out",
        maximumBytes: MAXIMUM_RESULTS_BYTES,
        filled: true,
      }),
    })),
  );
  const results = checkResults(texts);
  const traces = await Promise.all(
    timelinesOf(results).map(async (each) => {
      // A name out of a file: only what stands beside the results is read.
      const path = join(`${each.file}.d`, basename(each.name));
      const trace = (await readJson(
        path,
        "files",
        { missing: "profile-invalid", invalid: "profile-invalid" },
        `a timeline that gpu-check wrote beside ${each.file}: bring the folder ${each.file}.d with it`,
      )) as MeasuredTrace;
      return { ...each, trace };
    }),
  );
  return assembleKit(results, timelineMap(traces));
}

function checkResults(texts: readonly { readonly name: string; readonly text: string }[]) {
  try {
    return readCheckResults(texts);
  } catch (error) {
    throw new ProblemError(
      "profile-invalid",
      (error as Error).message,
      [
        {
          field: "files",
          value: texts.map(({ name }) => name).join(", "),
          message: (error as Error).message,
          remedy: "give the files of results that gpu-check wrote on one GPU",
        },
      ],
      { cause: error },
    );
  }
}

export function addProfileKit(profile: Command, context: Context): void {
  profile
    .command("prepare")
    .description(
      "write a kit for a node without services: what its probe and " +
        "trainer must measure for these jobs, and plans to try; offline",
    )
    .argument("<jobs...>", "job files of one cluster of one node; plans are those of the first")
    .option("--profile <name or file>", "what plans are predicted with until then; default: the job's")
    .option("--plans <k>", "how many of the best plans are tried", integerArgument(0, 100), 8)
    .option("--threads <n>", "threads a rank computes with", integerArgument(1, 1024), 1)
    .option("--samples <n>", "samples of a point at least", integerArgument(1, 10_000), 5)
    .option("--point-seconds <s>", "bound on the time for one point", numberArgument(0.001, 600), 0.25)
    .option(
      "--slice-seconds <s>",
      "about so long a micro-batch runs in the trainer, in each round",
      numberArgument(0.001, 600),
      1,
    )
    .option("--rounds <n>", "how often each of these runs", integerArgument(1, 10), 2)
    .option("--probe <file>", "the probe that the node will run, whose identity the profile then has")
    .requiredOption("--out <file>", "write the kit there")
    .action(async (jobs: readonly string[], options: PrepareOptions) => {
      await assertWritable(options.out, "--out");
      const kit = await prepare(jobs, options, context);
      await writeWhole(options.out, `${JSON.stringify(kit)}\n`, "--out");
      const planned = kit.pieces.reduce((sum, { plannedSeconds }) => sum + plannedSeconds, 0);
      const plans = kit.pieces.filter(({ kind }) => kind === "plan").length;
      const output = context.output();
      if (output.json) output.document({ ...kit.about, plans, plannedSeconds: planned });
      else
        output.data(
          `${formatCounted(kit.about.points, "point")} and ${formatCounted(plans, "plan")}, about ${formatSpan(1000 * planned)} on the node; the kit is in ${resolve(options.out)}, which \`gpu-check --kit\` runs`,
        );
    });
  profile
    .command("assemble")
    .description("make a profile of what gpu-check measured with a kit, offline")
    .argument("<files...>", "files of results; the folder FILE.d of each stands beside it")
    .option(
      "--name <name>",
      "name of the profile; default: the cluster, when it was measured, and `assembled`",
    )
    .option("--out <file>", "write the profile there; default: standard output")
    .action(async (files: readonly string[], { name, out }: { name?: string; out?: string }) => {
      if (out !== undefined) await assertWritable(out, "--out");
      const made = await assemble(files);
      const whole = name === undefined ? made : { ...made, name };
      const output = context.output();
      const document = JSON.stringify(whole, null, 2);
      if (out === undefined) return output.data(document);
      await writeWhole(out, `${document}\n`, "--out");
      for (const note of whole.provenance.notes.filter((each) => /without an answer|no room/.test(each)))
        output.note(`note: ${note}`);
      output.note(
        `${formatCounted(whole.modules.length, "module")}, ${formatCounted(whole.collectives.length, "curve")}, ${formatCounted((whole.slices ?? []).length, "slice")}; the profile is in ${resolve(out)}, which \`plan --profile\` and job files take`,
      );
    });
}
