// Kills (SIGKILL) processes of the product at random moments: services, broker, database, ranks. Meanwhile
// several jobs are measured, planned, tried and trained. Then it checks that no job failed, that nothing was
// counted twice, and that losses are those of runs that nothing disturbed, bit by bit. The same seed kills the
// same in the same order. With --clusters NATS is a cluster of three and Postgres a primary with its standby, and the
// links between the services and their servers have faults too. With --site testbed ranks run on two nodes, whose links
// are cut; with --site slurm on a real Slurm, whose controller dies. With --plan-changes each job is asked once to go
// on under another plan.
// usage: npm run chaos -- random [--kills 300] [--jobs 3] [--seed 1] [--mean-seconds 4] [--clusters] [--plan-changes]
//   [--site testbed|slurm]
// prints JSON
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { constraintsOf, isAtRest, parsePlanLabel, planLabel, type Plan } from "@internevo/domain";
import { productServices, type ServerAddresses } from "@internevo/local-stack";
import { chaosJob, insist, rankPids, until, withStack, type TestedStack } from "./src/harness.ts";
import { brokenPromises, largestDifference, storedOf } from "./src/random/judge.ts";
import {
  CLUSTER_TARGETS,
  drawKills,
  isLink,
  LINK_TARGETS,
  TARGETS,
  type Kill,
  type LinkTarget,
} from "./src/random/kills.ts";
import { FAULTS, throughLinks, type Link } from "./src/random/links.ts";
import { PlanAsker } from "./src/random/plan-changes.ts";
import { PostgresPair } from "./src/random/postgres-pair.ts";
import { startSite } from "./src/random/sites.ts";
import { wholeNumber } from "./src/whole-number.ts";

const { values } = parseArgs({
  options: {
    kills: { type: "string", default: "300" },
    jobs: { type: "string", default: "3" },
    seed: { type: "string", default: "1" },
    "mean-seconds": { type: "string", default: "4" },
    clusters: { type: "boolean", default: false },
    site: { type: "string" },
    "plan-changes": { type: "boolean", default: false },
  },
});
const kills = wholeNumber("--kills", values.kills, 1);
const jobsAtOnce = wholeNumber("--jobs", values.jobs, 1);
const seed = wholeNumber("--seed", values.seed, 0);
const meanSeconds = Number(values["mean-seconds"]);
const siteKind = values.site;
if (siteKind !== undefined && siteKind !== "testbed" && siteKind !== "slurm")
  throw new Error(`--site ${siteKind}: is none; give testbed or slurm`);
if (!(meanSeconds > 0)) throw new Error(`--mean-seconds ${values["mean-seconds"]}: is not above 0`);

const STEPS = 1000;
const TRIALS = 2;
/** Jobs take turns with the names of so many clusters, each of which is measured by itself. */
const CLUSTERS = 3;
/** How long jobs may take to their end after the last death, each. */
const PATIENCE_SECONDS = 300;

const smallJob = async (name: string, cluster: number): Promise<Record<string, unknown>> => {
  const job = (await chaosJob(name)) as Record<string, Record<string, unknown>>;
  return {
    ...job,
    sequenceLengthTokens: 64,
    globalBatchTokens: 512,
    model: { hiddenSize: 64, layers: 2, heads: 4, kvHeads: 2, ffnHiddenSize: 128, vocabularySize: 256 },
    steps: STEPS,
    // A step takes a millisecond: deaths come in the middle of them too.
    checkpointing: { everySteps: 50, keepLast: 2 },
    trials: { count: TRIALS, warmupSteps: 1, steps: 2, repeats: 0 },
    cluster: { ...job["cluster"], name: `chaos-${cluster}`, ...site?.cluster },
    seed: 7,
  };
};

/** The figures of a profile are not what is tested. */
const QUICK = {
  INTERNEVO_PROBE_SAMPLES: "1",
  INTERNEVO_PROBE_POINT_SECONDS: "0.002",
  INTERNEVO_PROBE_SPREAD: "1",
  INTERNEVO_PROFILE_SLICE_ROUNDS: "1",
  INTERNEVO_PROFILE_AGAIN_SECONDS: "0",
};

/** Between the services and their servers; none without --clusters. */
const links: Record<LinkTarget, Link[]> = { "link to postgres": [], "link to nats": [] };
const LONGEST_FAULT_SECONDS = 6;
const directory = mkdtempSync(join(tmpdir(), "internevo-chaos-servers-"));
// Postgres runs as another user than root.
chmodSync(directory, 0o755);
const pair = values.clusters ? await PostgresPair.start(directory) : undefined;
const clusterNames = Array.from({ length: CLUSTERS }, (_, index) => `chaos-${index}`);
const site = siteKind && (await startSite(siteKind, join(directory, "clusters.json"), clusterNames));

async function linked({ databaseUrl, natsUrl }: ServerAddresses): Promise<ServerAddresses> {
  const [toDatabase, toNats] = [await throughLinks(databaseUrl), await throughLinks(natsUrl)];
  links["link to postgres"].push(...toDatabase.links);
  links["link to nats"].push(...toNats.links);
  return { databaseUrl: toDatabase.addresses, natsUrl: toNats.addresses };
}

/** Kills what there is of the target, or has a link fail; false where it does not run now. */
function kill({ stack, dataDirectory }: TestedStack, { target, afterSeconds }: Kill): boolean {
  const pidOf = (name: string): number | undefined => {
    if (name === "rank") return rankPids(dataDirectory).at(-1);
    if (pair && name === "postgres") return pair.pidOf("primary");
    return name === "postgres-standby" ? pair?.pidOf("standby") : stack.pidOf(name);
  };
  if (isLink(target)) {
    // Drawn already: the same for the same seed.
    const share = afterSeconds % 1;
    const fault = FAULTS[Math.floor(share * 1000) % FAULTS.length] as (typeof FAULTS)[number];
    for (const link of links[target]) link.fail(fault, share * LONGEST_FAULT_SECONDS);
    return true;
  }
  if (target === site?.target) {
    const share = afterSeconds % 1;
    site.fail(share, share * LONGEST_FAULT_SECONDS);
    return true;
  }
  const pid = pidOf(target);
  if (pid === undefined) return false;
  try {
    process.kill(pid, "SIGKILL");
    return true;
  } catch (error) {
    // It has ended since.
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
    throw error;
  }
}

/** Keeps so many jobs at work or waiting until it is told to end; then waits for them all. */
class Jobs {
  readonly #tested: TestedStack;
  readonly #plans: PlanAsker | undefined;
  readonly ids: string[] = [];
  /** How often somebody had to let a held job go on. */
  resumed = 0;

  /** @param plans asks them for another plan */
  constructor(tested: TestedStack, plans: PlanAsker | undefined) {
    this.#tested = tested;
    this.#plans = plans;
  }

  async #isOver(id: string): Promise<boolean> {
    const { client } = this.#tested;
    const { state } = await insist(() => client.getJob(id), PATIENCE_SECONDS);
    if (state === "held") {
      this.resumed += 1;
      await insist(() => client.resumeJob(id), PATIENCE_SECONDS).catch((error: unknown) => {
        // Somebody's kill came between question and answer: it goes on already.
        console.error(`  ${id} is not resumed: ${(error as Error).message}`);
      });
      return false;
    }
    return isAtRest(state);
  }

  async #atWork(): Promise<number> {
    let count = 0;
    for (const [number, id] of this.ids.entries()) {
      if (await this.#isOver(id)) continue;
      count += 1;
      await this.#plans?.ask(id, number);
    }
    return count;
  }

  async keep(atOnce: number): Promise<void> {
    const { client } = this.#tested;
    for (let missing = atOnce - (await this.#atWork()); missing > 0; missing -= 1) {
      const number = this.ids.length;
      const job = await smallJob(`chaos-job-${number}`, number % CLUSTERS);
      // The same key each time: an answer that was lost makes no second job.
      const options = { idempotencyKey: `chaos-${seed}-${number}` };
      const { id } = await insist(() => client.submitJob(job, options), PATIENCE_SECONDS);
      this.ids.push(id);
    }
  }

  async untilOver(): Promise<void> {
    for (const id of this.ids)
      await until(`the end of job ${id}`, () => this.#isOver(id), PATIENCE_SECONDS).catch((error: unknown) =>
        console.error(`  ${(error as Error).message}`),
      );
  }
}

/** Losses of a run under a plan that nothing disturbs. */
async function undisturbedLosses({ client, stack }: TestedStack, plan: Plan): Promise<number[]> {
  const job = await smallJob(`undisturbed ${planLabel(plan)}`, 0);
  const options = { idempotencyKey: `chaos-${seed}-${planLabel(plan).replaceAll(" ", "-")}` };
  const { id } = await insist(() => client.submitJob({ ...job, plan: constraintsOf(plan) }, options));
  const isOver = async () => isAtRest((await insist(() => client.getJob(id))).state);
  await until("the undisturbed run", isOver, PATIENCE_SECONDS);
  const { state, steps } = await storedOf(stack.info().databaseUrl, id);
  if (state !== "succeeded") throw new Error(`the undisturbed run ended as ${state}`);
  return steps.map(({ loss }) => loss);
}

const targets = [
  ...TARGETS,
  ...(values.clusters ? [...CLUSTER_TARGETS, ...LINK_TARGETS] : []),
  ...(site ? [site.target] : []),
];
const drawn = drawKills(kills, seed, meanSeconds, targets);
const report = await withStack(
  async (tested) => {
    const { client, stack, dataDirectory } = tested;
    const plans = values["plan-changes"] ? new PlanAsker(client, seed) : undefined;
    const jobs = new Jobs(tested, plans);
    const begin = performance.now();
    const seconds = () => (performance.now() - begin) / 1000;
    const killed: Record<string, number> = {};
    let missed = 0;
    let isKilling = true;
    const feeding = (async () => {
      while (isKilling) {
        await jobs.keep(jobsAtOnce);
        await sleep(200);
      }
    })();
    const died = async (drawnKill: Kill): Promise<void> => {
      const { afterSeconds, target } = drawnKill;
      await sleep(afterSeconds * 1000);
      if (kill(tested, drawnKill)) killed[target] = (killed[target] ?? 0) + 1;
      else missed += 1;
    };
    for (const each of drawn) await Promise.race([died(each), feeding]);
    isKilling = false;
    for (const link of Object.values(links).flat()) link.mend();
    await site?.mend();
    await feeding;
    const secondsOfKills = seconds();
    console.error(`${kills} kills in ${secondsOfKills.toFixed(0)} s, ${jobs.ids.length} jobs so far`);
    await jobs.untilOver();
    const secondsInAll = seconds();
    const losses = new Map<string, readonly number[]>();
    const results = [];
    for (const id of jobs.ids) {
      const { chosen, name } = await insist(() => client.getJob(id));
      const label = chosen === null ? "none" : planLabel(chosen.plan);
      const stored = await storedOf(stack.info().databaseUrl, id);
      const change = stored.plans.changes.find(({ appliedAtStep }) => appliedAtStep !== null);
      for (const plan of [chosen?.plan, change && parsePlanLabel(change.to)])
        if (plan !== undefined && !losses.has(planLabel(plan)))
          losses.set(planLabel(plan), await undisturbedLosses(tested, plan));
      const promises = {
        trials: TRIALS,
        steps: STEPS,
        losses: losses.get(label) ?? [],
        otherLosses: losses.get(change?.to ?? "") ?? [],
      };
      const broken = brokenPromises(stored, promises);
      console.error(
        `  ${broken.length === 0 ? "✓" : "✗"} ${name}, ${label}, ${stored.attempts} attempts${broken.map((each) => `; ${each}`).join("")}`,
      );
      results.push({
        job: name,
        plan: label,
        state: stored.state,
        attempts: stored.attempts,
        planChange: stored.plans.changes[0]?.state ?? null,
        largestDifference: largestDifference(stored, losses.get(label) ?? []),
        broken,
      });
    }
    for (const link of Object.values(links).flat()) link.close();
    return {
      killed,
      notThereToBeKilled: missed,
      secondsOfKills,
      secondsInAll,
      resumed: jobs.resumed,
      ...(pair ? { failovers: pair.failovers } : {}),
      ...(plans ? { askedForAnotherPlan: plans.count, notAskedBecause: plans.refusals } : {}),
      ranksLeft: rankPids(dataDirectory).length,
      results,
    };
  },
  productServices(),
  { ...QUICK, ...site?.environment },
  pair ? { natsServers: 3, addressesOf: linked, databaseUrl: pair.url } : {},
).finally(async () => {
  await pair?.stop();
  await site?.stop();
  rmSync(directory, { recursive: true, force: true });
});
const { clusters, "plan-changes": planChanges } = values;
const asked = { kills, jobsAtOnce, seed, meanSeconds, clusters, site: siteKind ?? null, planChanges };
console.log(JSON.stringify({ chaos: "random", ...asked, ...report }, null, 2));
process.exitCode =
  report.ranksLeft === 0 && report.results.every(({ broken }) => broken.length === 0) ? 0 : 1;
