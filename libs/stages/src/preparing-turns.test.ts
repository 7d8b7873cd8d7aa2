import { setImmediate as nextLoop } from "node:timers/promises";
import { expect, it } from "vitest";
import { PreparingTurns } from "./preparing-turns.ts";

it("lets each project go on between the parts of what another one reads", async () => {
  const turns = new PreparingTurns(0);
  const stop = new AbortController();
  let [parts, most, active] = [0, 0, 0];
  const endless = (project: string): Promise<void> =>
    turns.run(project, stop.signal, async (pause) => {
      for (;;) {
        active += 1;
        most = Math.max(most, active);
        await nextLoop();
        active -= 1;
        parts += 1;
        await pause();
      }
    });
  const greedy = ["a", "a", "a", "b", "b", "b"].map((project) =>
    expect(endless(project)).rejects.toThrow("enough"),
  );
  await nextLoop();
  let own = 0;
  await turns.run("c", stop.signal, async (pause) => {
    for (own = 0; own < 5; own += 1) await pause();
  });
  const before = parts;
  while (parts < before + 5) await nextLoop();
  stop.abort(new Error("enough"));
  await Promise.all(greedy);
  expect(own).toBe(5);
  expect(most).toBeLessThanOrEqual(2);
});

it("does not keep the others waiting for files that cannot be read", async () => {
  const turns = new PreparingTurns(0, 1);
  const { signal } = new AbortController();
  let readOn = (): void => {};
  const mounted = new Promise<void>((resolve) => (readOn = resolve));
  const order: string[] = [];
  const stalled = ["a", "b"].map((project) =>
    turns.run(project, signal, async (pause) => {
      await mounted;
      await pause();
      order.push(project);
    }),
  );
  await turns.run("c", signal, async (pause) => {
    await pause();
    order.push("c");
  });
  readOn();
  await Promise.all(stalled);
  expect(order).toEqual(["c", "a", "b"]);
});
