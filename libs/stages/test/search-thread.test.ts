import { shippedProfile } from "@internevo/cost-model";
import { resolveJob, type JobSpec } from "@internevo/domain";
import { planJob } from "@internevo/search";
import { describe, expect, it } from "vitest";
import { searchPlans } from "../src/search-thread.ts";

const profile = shippedProfile("a800-128");
const job = (over: Record<string, unknown> = {}): JobSpec =>
  resolveJob({
    name: "job",
    model: "llama-7b",
    sequenceLengthTokens: 4096,
    globalBatchTokens: 4 * 1024 * 1024,
    precision: "bf16",
    cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
    ...over,
  });
const large = job({
  globalBatchTokens: 4096 * 100_000,
  model: "llama-65b",
  cluster: { nodes: 12_500, gpusPerNode: 8, memoryPerGpu: "80GB" },
});
const forever = () => new AbortController().signal;

describe("a search in a thread", () => {
  it("answers what the search answers, one after the other and side by side", async () => {
    const expected = planJob(job(), profile, { top: 3 });
    expect(await searchPlans(job(), profile, { top: 3 }, forever())).toEqual(expected);
    const many = await Promise.all([1, 2, 3].map(() => searchPlans(job(), profile, { top: 3 }, forever())));
    for (const result of many) expect(result).toEqual(expected);
  });

  it("says what is wrong as the search does, and is there for the next", async () => {
    await expect(searchPlans(job(), profile, { top: 3, maximumSteps: 10 }, forever())).rejects.toMatchObject({
      name: "ProblemError",
      code: "job-invalid",
      details: [{ field: "plan" }],
    });
    expect((await searchPlans(job(), profile, { top: 1 }, forever())).candidates).toHaveLength(1);
  });

  it("of one project, however long, keeps no other project's waiting", async () => {
    const controller = new AbortController();
    let ended = 0;
    const greedy = [1, 2, 3, 4].map((seed) =>
      searchPlans(
        { ...large, seed, project: "greedy" },
        profile,
        { exhaustive: true },
        controller.signal,
      ).catch(() => void (ended += 1)),
    );
    const modest = await searchPlans({ ...job(), project: "modest" }, profile, { top: 1 }, forever());
    expect(modest.candidates).toHaveLength(1);
    expect(ended).toBe(0);
    controller.abort(new Error("not wanted any more"));
    await Promise.all(greedy);
    expect(ended).toBe(4);
  });

  it("that takes long waits for no long one of another project", async () => {
    const controller = new AbortController();
    const ended: string[] = [];
    /** Resolves when a search begins anew, among those that take longer. */
    const begunAnew = (project: string): Promise<void> =>
      new Promise((resolve) => {
        let last = 0;
        const onProgress = (done: number): void => {
          if (done < last) resolve();
          last = done;
        };
        const spec = { ...large, project };
        void searchPlans(spec, profile, { exhaustive: true }, controller.signal, onProgress)
          .catch(() => undefined)
          .finally(() => ended.push(project));
      });
    await begunAnew("greedy");
    await begunAnew("modest");
    expect(ended).toEqual([]);
    controller.abort(new Error("not wanted any more"));
    await expect.poll(() => ended.length).toBe(2);
  });

  it("ends when it is cancelled, in the middle of its work, and is there for the next", async () => {
    const controller = new AbortController();
    const seen: number[] = [];
    const search = searchPlans(large, profile, { exhaustive: true }, controller.signal, (done, total) => {
      seen.push(done / total);
      if (seen.length === 3) controller.abort(new Error("not wanted any more"));
    });
    await expect(search).rejects.toThrow("not wanted any more");
    for (const share of seen) expect(share).toBeLessThanOrEqual(1);
    expect((await searchPlans(job(), profile, { top: 1 }, forever())).candidates).toHaveLength(1);
  });
});
