import { expect, it } from "vitest";
import { createHealth, writtenSeldom } from "./health.ts";

/** Writes the number of its call; the clock goes on by so much meanwhile. */
function counted(milliseconds: number) {
  let calls = 0;
  let clock = 0;
  const ask = writtenSeldom(
    async () => {
      const text = String(++calls);
      await Promise.resolve();
      clock += milliseconds;
      return text;
    },
    () => clock,
  );
  return { ask, pass: (time: number) => void (clock += time) };
}

it("writes metrics once for all who ask meanwhile, and for a tenth of the time at most", async () => {
  const { ask, pass } = counted(20);
  expect(await Promise.all([ask(), ask(), ask()])).toEqual(["1", "1", "1"]);
  pass(179);
  expect(await ask()).toBe("1");
  pass(1);
  expect(await ask()).toBe("2");
});

it("keeps none for longer than a second", async () => {
  const { ask, pass } = counted(3000);
  expect(await ask()).toBe("1");
  pass(999);
  expect(await ask()).toBe("1");
  pass(1);
  expect(await ask()).toBe("2");
});

it("writes again where one is not written in seconds, and the late one says nothing of the next", async () => {
  let clock = 0;
  const ends: ((text: string) => void)[] = [];
  const ask = writtenSeldom(
    () => new Promise((resolve) => ends.push(resolve)),
    () => clock,
  );
  const first = ask();
  clock = 5000;
  const second = ask();
  expect(ends).toHaveLength(2);
  ends[0]?.("late");
  expect(await first).toBe("late");
  void ask();
  expect(ends, "the second is still shared").toHaveLength(2);
  ends[1]?.("there");
  expect(await second).toBe("there");
});

it("writes again after a failure", async () => {
  let calls = 0;
  const ask = writtenSeldom(() => (++calls === 1 ? Promise.reject(new Error("no")) : Promise.resolve("yes")));
  await expect(ask()).rejects.toThrow("no");
  expect(await ask()).toBe("yes");
});

it("has figures of the process", async () => {
  expect(await createHealth("tested").metrics()).toContain('service="tested"');
});
