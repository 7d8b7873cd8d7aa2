import { findShippedProfile } from "@internevo/cost-model";
import { resolveJob, type JobSpec } from "@internevo/domain";
import { FairTurns } from "@internevo/service-kit";
import { setImmediate as settle } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { inNameOf } from "../src/work/caller.ts";
import { createWorkers, type Workers } from "../src/work/workers.ts";

describe("turns", () => {
  const never = new AbortController().signal;

  it("go round the owners, not the requests", async () => {
    const turns = new FairTurns({ atOnce: 1, atOnceOfOne: 1, mostOfOne: 10, mostWaiting: 10 });
    const order: string[] = [];
    const send = (owner: string, name: string) => turns.run(owner, never, async () => void order.push(name));
    await Promise.all([
      send("a", "a1"),
      send("a", "a2"),
      send("a", "a3"),
      send("b", "b1"),
      send("c", "c1"),
      send("b", "b2"),
    ]);
    expect(order).toEqual(["a1", "a2", "b1", "c1", "a3", "b2"]);
  });

  it("leave room for others, refuse what is too much of one, and forget what nobody waits for", async () => {
    const turns = new FairTurns({ atOnce: 2, atOnceOfOne: 1, mostOfOne: 3, mostWaiting: 3 });
    const gates = new Map<string, PromiseWithResolvers<void>>();
    const running = new Set<string>();
    const send = (owner: string, name: string, signal = never) => {
      const gate = Promise.withResolvers<void>();
      gates.set(name, gate);
      return turns.run(owner, signal, async () => {
        running.add(name);
        await gate.promise;
        running.delete(name);
      });
    };
    const left = new AbortController();
    const works = [send("a", "a1"), send("a", "a2", left.signal), send("a", "a3")];
    await expect(send("a", "a4")).rejects.toMatchObject({ code: "rate-limited" });
    expect([...running]).toEqual(["a1"]);
    works.push(send("b", "b1"));
    expect([...running]).toEqual(["a1", "b1"]);
    works.push(send("b", "b2"));
    // Whoever has nothing is let in all the same, up to twice as many.
    works.push(send("c", "c1"));
    await expect(send("c", "c2")).rejects.toMatchObject({ code: "unavailable" });
    left.abort(new Error("gone"));
    await expect(works[1]).rejects.toThrow("gone");
    for (const name of ["a1", "b1"]) gates.get(name)?.resolve();
    await settle();
    expect([...running].sort()).toEqual(["a3", "b2"]);
    for (const { resolve } of gates.values()) resolve();
    await Promise.allSettled(works);
    expect(running.size).toBe(0);
  });
});

describe("turns of a group", () => {
  const never = new AbortController().signal;

  it("leave room for others, and are bounded, however many owners it has", async () => {
    const turns = new FairTurns({ atOnce: 3, atOnceOfOne: 2, mostOfOne: 3, mostWaiting: 100 });
    const gate = Promise.withResolvers<void>();
    const running: string[] = [];
    const send = (owner: string, group: string) =>
      turns.run(owner, never, () => (running.push(owner), gate.promise), group);
    const works = ["a1", "a2", "a3", "a4", "a5", "a6"].map((owner) => send(owner, "a"));
    // Its other tokens do not lock one out that has less than may run at once.
    works.push(send("a7", "a"), send("a7", "a"));
    await expect(send("a7", "a")).rejects.toMatchObject({
      code: "rate-limited",
      message: expect.stringContaining("the tokens of this project have 6 requests"),
    });
    expect(running).toEqual(["a1", "a2"]);
    works.push(send("b1", "b"));
    expect(running).toEqual(["a1", "a2", "b1"]);
    gate.resolve();
    await Promise.all(works);
    expect(running).toEqual(["a1", "a2", "b1", "a3", "a4", "a5", "a6", "a7", "a7"]);
    await send("a7", "a");
  });
});

describe("searches", () => {
  const as = <T>(token: string, work: () => Promise<T>): Promise<T> =>
    new Promise((resolve, reject) => inNameOf(token, () => void work().then(resolve, reject)));
  let workers: Workers | undefined;
  afterEach(() => workers?.close());

  it("of one token that take long keep no other token's waiting, and are bounded", async () => {
    const profile = findShippedProfile("a800-128");
    if (!profile) throw new Error("the profile ships with the project");
    workers = createWorkers({ planThreads: 2, searchesOfOneToken: 3 });
    const pool = workers;
    const job = (name: string, nodes: number, sequences: number) =>
      resolveJob({
        name,
        model: "llama-65b",
        sequenceLengthTokens: 4096,
        globalBatchTokens: sequences * 4096,
        cluster: { nodes, gpusPerNode: 8, memoryPerGpu: "80GB" },
      });
    const gone = new AbortController();
    const why = (name: string) =>
      as("greedy", () =>
        pool.advise<"pareto">(
          { kind: "pareto", spec: job(name, 12_500, 100_000), profile, points: 200 },
          gone.signal,
        ),
      );
    const long = [why("one"), why("two"), why("three")].map((work) =>
      work.then(
        () => "answered",
        (error: unknown) => error,
      ),
    );
    await expect(why("four")).rejects.toMatchObject({ code: "rate-limited" });
    const answer = await as("modest", () =>
      pool.advise<"sweep">({
        kind: "sweep",
        spec: job("small", 16, 1024),
        profile,
        axis: "sequence",
        value: 4096,
      }),
    );
    expect(answer.value).toBe(4096);
    gone.abort(new Error("gone"));
    // None of them had ended: what was answered did not wait for them.
    for (const outcome of await Promise.all(long)) expect(outcome).toBeInstanceOf(Error);
  });

  it("of one project never have all threads, and listing what many jobs need goes on elsewhere", async () => {
    const profile = findShippedProfile("a800-128");
    if (!profile) throw new Error("the profile ships with the project");
    workers = createWorkers({ planThreads: 2 });
    const pool = workers;
    const job = (sequences: number) =>
      resolveJob({
        name: "many divisors",
        model: { hiddenSize: 64, layers: 2, heads: 8, kvHeads: 8, vocabularySize: 256 },
        sequenceLengthTokens: 16,
        globalBatchTokens: 16 * sequences,
        cluster: { nodes: 1, gpusPerNode: 8, memoryPerGpu: "1GB" },
      });
    const remedy = { measuredBy: "internevo profile measure", planWith: null };
    const ask = (token: string, planned: JobSpec[], signal?: AbortSignal) =>
      as(token, () =>
        pool.advise<"estimates">({ kind: "estimates", spec: job(16), profile, planned, remedy }, signal),
      );
    const gone = new AbortController();
    const many = Array.from({ length: 1000 }, (_, at) => job(65_214_507_758_400 - 4_838_400 * at));
    let answered = 0;
    const long = [0, 1, 2].map(() =>
      ask("greedy", many, gone.signal).then(
        () => (answered += 1),
        (error: unknown) => error,
      ),
    );
    expect((await ask("modest", [job(16)]))?.needed).toBeGreaterThan(0);
    expect(answered).toBe(0);
    gone.abort(new Error("gone"));
    for (const outcome of await Promise.all(long)) expect(outcome).toBeInstanceOf(Error);
  });

  it("that turn out to be long keep no quick question waiting, nor a submission", async () => {
    const profile = findShippedProfile("a800-128");
    if (!profile) throw new Error("the profile ships with the project");
    workers = createWorkers({ planThreads: 2 });
    const pool = workers;
    const gone = new AbortController();
    const deep = (name: string) =>
      resolveJob({
        name,
        model: { hiddenSize: 1024, heads: 16, layers: 2000, vocabularySize: 256 },
        sequenceLengthTokens: 1024,
        globalBatchTokens: 720_720 * 1024,
        cluster: { nodes: 9009, gpusPerNode: 8, memoryPerGpu: "80TB" },
      });
    const small = resolveJob({
      name: "small",
      model: "llama-7b",
      sequenceLengthTokens: 4096,
      globalBatchTokens: 1024 * 4096,
      cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
    });
    const exports = ["one", "two", "three", "four"].map((name) =>
      as("greedy", () =>
        pool.advise<"export">(
          { kind: "export", spec: deep(name), profile, plan: null, framework: "megatron" },
          gone.signal,
        ),
      ).then(
        () => "answered",
        (error: unknown) => error,
      ),
    );
    const fits = ["five", "six", "seven"].map((name) =>
      as("greedy", () => pool.quickPlan({ spec: deep(name), profile, top: 1 })),
    );
    const modest = await as("modest", () =>
      pool.advise<"export">({ kind: "export", spec: small, profile, plan: null, framework: "megatron" }),
    );
    expect(modest.files.length).toBeGreaterThan(0);
    const fit = await as("modest", () => pool.quickPlan({ spec: small, profile, top: 1 }));
    expect(fit?.candidates).toHaveLength(1);
    expect(await Promise.all(fits), "they are not soon known").toEqual([null, null, null]);
    gone.abort(new Error("gone"));
    for (const outcome of await Promise.all(exports)) expect(outcome).toBeInstanceOf(Error);
  });
});
