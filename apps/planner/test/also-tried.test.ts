import { expect, it } from "vitest";
import { shippedProfile } from "@internevo/cost-model";
import { planLabel, ProblemError, resolveJob, type Candidate } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { alsoTried, type SearchOne } from "../src/also-tried.ts";

const profile = shippedProfile("a800-128");
const job = (also: readonly string[], over: object = {}) =>
  resolveJob({
    name: "job",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 64 * 4096,
    precision: "bf16-grad16",
    cluster: { nodes: 2, gpusPerNode: 8, memoryPerGpu: "80GB" },
    trials: { count: 3, also },
    ...over,
  });
const search: SearchOne = (asked, options) =>
  Promise.resolve(planJob(asked, profile, { top: 1, ...options }));

/** What is tried beside the three best. */
async function triedFor(also: readonly string[], over: object = {}) {
  const asked = job(also, over);
  const result = planJob(asked, profile, { top: 10 });
  const best = result.runnableCandidates.slice(0, asked.trials.count);
  return { result, best, ...(await alsoTried(asked, result, best, search)) };
}
const labels = (list: readonly Candidate[]): string[] => list.map(({ plan }) => planLabel(plan));
const bestOf = (part: string): string =>
  planLabel((planJob(job([], { plan: part }), profile, { top: 1 }).candidates[0] as Candidate).plan);

it("tries exactly the plan that is named, with a rank of its own", async () => {
  const { best } = await triedFor([]);
  const others = planJob(job([]), profile, { top: 1, plans: 40 }).plans ?? [];
  const isListed = new Set(labels(best));
  // Of the families of the best, but not the best of them: their places are those of other families.
  const named = others.map(({ plan }) => planLabel(plan)).filter((label) => !isListed.has(label));
  const { found, missing, result } = await triedFor(named.slice(0, 3));
  expect(missing).toEqual([]);
  expect(labels(found)).toEqual(named.slice(0, 3));
  const ranks = [...result.candidates, ...found].map(({ rank }) => rank);
  expect(new Set(ranks).size).toBe(ranks.length);
});

it("tries a plan of the list under the rank that it has there", async () => {
  const { result } = await triedFor([]);
  const fifth = result.runnableCandidates[4] as Candidate;
  expect((await triedFor([planLabel(fifth.plan)])).found).toEqual([fifth]);
});

it("tries the same plans in whatever order their parts are named", async () => {
  const parts = ["tp2", "pp2 tp2", "pp2", "pp4 v2"];
  const wanted = [...new Set(parts.map(bestOf))].sort();
  const tried = async (also: readonly string[]) => {
    const { best, found } = await triedFor(also);
    return wanted.filter((label) => [...labels(best), ...labels(found)].includes(label));
  };
  expect(await tried(parts)).toEqual(wanted);
  expect(await tried(parts.toReversed())).toEqual(wanted);
});

it("looks for parts among the plans that the job allows", async () => {
  const { found } = await triedFor(["pp2"], { plan: { microBatchSize: 2 } });
  expect(labels(found)).toEqual([bestOf("pp2 b2")]);
});

it("says for which parts nothing is tried, and loses nothing where their search is refused", async () => {
  const asked = job(["pp2", "tp4"]);
  const result = planJob(asked, profile, { top: 10 });
  const best = result.runnableCandidates.slice(0, 3);
  const refusing: SearchOne = (one, options) =>
    one.plan?.pipelineParallel === 2
      ? Promise.reject(new ProblemError("plan-invalid", "too many plans", []))
      : search(one, options);
  const { found, missing } = await alsoTried(asked, result, best, refusing);
  expect(missing).toEqual(["pp2 (too many plans)"]);
  expect(labels(found)).toEqual([bestOf("tp4")]);
});
