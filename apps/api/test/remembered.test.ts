import { describe, expect, it } from "vitest";
import { Remembered } from "../src/work/remembered.ts";

const deferred = <T>() => Promise.withResolvers<T>();

describe("answers of pure work", () => {
  it("are worked out once for all who ask meanwhile, and for those who ask later", async () => {
    const answers = new Remembered<string>(2);
    const { promise, resolve } = deferred<string>();
    let begun = 0;
    const work = (): Promise<string> => ((begun += 1), promise);
    const both = Promise.all([
      answers.get("a", work, undefined),
      answers.get("a", work, new AbortController().signal),
    ]);
    resolve("one");
    expect(await both).toEqual(["one", "one"]);
    expect(await answers.get("a", work, undefined)).toBe("one");
    expect(begun).toBe(1);
  });

  it("of which the one that was asked for longest ago is forgotten first", async () => {
    const answers = new Remembered<string>(2);
    const begun: string[] = [];
    const ask = (key: string): Promise<string> =>
      answers.get(key, async () => (begun.push(key), key), undefined);
    for (const key of ["a", "b", "a", "c", "a", "b"]) expect(await ask(key)).toBe(key);
    expect(begun).toEqual(["a", "b", "c", "b"]);
  });

  it("go on for the others when one goes away, and end when nobody waits", async () => {
    const answers = new Remembered<string>(2);
    const { promise, resolve } = deferred<string>();
    const signals: AbortSignal[] = [];
    const work = (signal: AbortSignal): Promise<string> => (signals.push(signal), promise);
    const [first, second] = [new AbortController(), new AbortController()];
    const one = answers.get("a", work, first.signal);
    const two = answers.get("a", work, second.signal);
    first.abort(new Error("gone"));
    await expect(one).rejects.toThrow("gone");
    expect(signals[0]?.aborted).toBe(false);
    second.abort(new Error("gone too"));
    await expect(two).rejects.toThrow("gone too");
    expect(signals[0]?.aborted).toBe(true);
    // Whoever asks after that does not wait for work that was ended.
    const three = answers.get("a", work, undefined);
    expect(signals).toHaveLength(2);
    resolve("late");
    expect(await three).toBe("late");
  });

  it("are not kept when the work failed", async () => {
    const answers = new Remembered<string>(2);
    await expect(answers.get("a", () => Promise.reject(new Error("no room")), undefined)).rejects.toThrow(
      "no room",
    );
    expect(await answers.get("a", async () => "fine", undefined)).toBe("fine");
  });
});
