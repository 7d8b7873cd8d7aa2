import { createHash } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { planLabel, worldSize } from "@internevo/domain";
import { encodeHeader } from "@internevo/data";
import { launchRanks, trainerConfig, type Trainer } from "@internevo/launcher";
import { buildMesh, planFault } from "@internevo/plan";
import fc from "fast-check";
import { anyCase, type Case } from "../any-case.ts";
import { keep, type Entry, type Section } from "./records.ts";

const SEED = 20_261_124;
const DRAWS = 40_000;
const STEPS = 3;
/** Runs of each number of ranks. */
const RUNS = { 1: 12, 2: 36, 4: 48 } as const;

/**
 * The trainer runs them here, so those for GPUs are left out; so are those whose limit of documents the
 * tokens below would break.
 */
const runsHere = ({ job, plan }: Case): boolean =>
  job.cluster.device !== "cuda" &&
  planFault(plan, job) === null &&
  !(
    job.data !== null &&
    "maxDocumentsPerSequence" in job.data &&
    (job.data.maxDocumentsPerSequence ?? Infinity) < job.sequenceLengthTokens
  );

/** Plans of 1, 2 and 4 ranks. */
function sample(): Case[] {
  const cases = fc.sample(anyCase, { numRuns: DRAWS, seed: SEED }).filter(runsHere);
  return Object.entries(RUNS).flatMap(([ranks, runs]) => {
    const chosen = cases.filter(({ plan }) => worldSize(plan) === Number(ranks)).slice(0, runs);
    if (chosen.length < runs)
      throw new Error(`${DRAWS} draws gave ${chosen.length} plans of ${ranks} ranks; ${runs} are wanted`);
    return chosen;
  });
}

async function train({ job, plan }: Case, trainer: Trainer, directory: string): Promise<unknown> {
  const tokenCount = STEPS * job.globalBatchTokens + 1;
  const { vocabularySize } = job.model;
  const tokens = Buffer.alloc(2 * tokenCount);
  for (let index = 0; index < tokenCount; index += 1)
    tokens.writeUInt16LE((index * 7 + (index >> 3)) % vocabularySize, 2 * index);
  const path = join(directory, "record.tokens");
  await writeFile(
    path,
    Buffer.concat([encodeHeader({ bytesPerToken: 2, tokenCount, vocabularySize }), tokens]),
  );
  const gradientDumpPath = join(directory, "gradients.safetensors");
  const config = {
    ...trainerConfig({
      spec: job,
      plan,
      mesh: buildMesh(plan),
      dataset: { path },
      steps: STEPS,
      checkpoint: null,
      threadsPerRank: 1,
    }),
    gradientDumpPath,
  };
  const steps: { loss: number; gradientNorm: number }[] = [];
  const outcome = await launchRanks({
    program: trainer,
    config,
    ranks: worldSize(plan),
    threadsPerRank: 1,
    launcher: "local",
    runDirectory: join(directory, "run"),
    onEvent: (event) => {
      if (event.event === "step") steps.push({ loss: event.loss, gradientNorm: event.gradientNorm });
    },
  });
  if (outcome.status !== "completed")
    return { failed: outcome.status === "failed" ? outcome.failure.code : outcome.status };
  return {
    steps,
    gradients: createHash("sha256")
      .update(await readFile(gradientDumpPath))
      .digest("hex"),
  };
}

/**
 * Losses, gradient norms and the digest of the first step's gradients, of random plans that the trainer runs.
 * Bits depend on the processor and on the compiler, so both records must be of one machine.
 */
export async function recordTraining(trainer: Trainer): Promise<Section> {
  const entries: Entry[] = [];
  for (const [index, one] of sample().entries()) {
    const directory = await mkdtemp(join(tmpdir(), "internevo-record-"));
    try {
      const { model, precision, sequenceLengthTokens, data } = one.job;
      const packing = data !== null && data.packing === "documents" ? " packed" : "";
      const key =
        `${index} ${worldSize(one.plan)} ranks ${precision} ` +
        `S${sequenceLengthTokens}${packing} ${planLabel(one.plan)} ${JSON.stringify(model)}`;
      entries.push({ key, answer: await train(one, trainer, directory) });
    } finally {
      await rm(directory, { recursive: true });
    }
  }
  return keep(entries);
}
