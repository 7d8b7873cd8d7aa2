import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { planLabel } from "@internevo/domain";
import type { Trainer } from "@internevo/launcher";
import { planFault } from "@internevo/plan";
import fc from "fast-check";
import { anyCase, dryRun } from "../any-case.ts";
import { keep, type Entry, type Section } from "./records.ts";

const PLANS = 2000;
const SEED = 20_261_123;
/** Few draws divide their job. */
const DRAWS = 150_000;

/**
 * The trainer's own plan of memory, of every stage, for random plans on processors and on GPUs: bytes of
 * every line.
 */
export async function recordMemory(trainer: Trainer): Promise<Section> {
  const directory = await mkdtemp(join(tmpdir(), "internevo-record-"));
  try {
    const cases = fc
      .sample(anyCase, { numRuns: DRAWS, seed: SEED })
      .filter(({ job, plan }) => planFault(plan, job) === null);
    if (cases.length < PLANS)
      throw new Error(`${DRAWS} draws gave ${cases.length} plans that divide their job; ${PLANS} are wanted`);
    const entries: Entry[] = [];
    for (const [index, one] of cases.slice(0, PLANS).entries()) {
      const { model, precision, sequenceLengthTokens, cluster } = one.job;
      const key =
        `${index} ${cluster.device ?? "cpu"} ${precision} ` +
        `S${sequenceLengthTokens} ${planLabel(one.plan)} ${JSON.stringify(model)}`;
      entries.push({ key, answer: await dryRun(one, { trainer, directory }) });
    }
    return keep(entries);
  } finally {
    await rm(directory, { recursive: true });
  }
}
