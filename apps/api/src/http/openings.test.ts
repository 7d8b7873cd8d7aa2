import { setImmediate as turn } from "node:timers/promises";
import { expect, it } from "vitest";
import { TurnsByCaller } from "./openings.ts";

it("lets so many work at once, and callers take turns", async () => {
  const turns = new TurnsByCaller(2);
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  const ask = (caller: string): void =>
    void turns.take(caller).then((end) => {
      begun.push(caller);
      ends.push(end);
    });
  for (const caller of ["a", "a", "a", "a", "a", "b", "c", "b"]) ask(caller);
  await turn();
  expect(begun).toEqual(["a", "a"]);
  for (let ended = 0; ended < 6; ended += 1) {
    ends[ended]?.();
    // A second call ends nobody else's turn.
    ends[ended]?.();
    await turn();
    expect(begun).toHaveLength(ended + 3);
  }
  expect(begun).toEqual(["a", "a", "a", "b", "c", "a", "b", "a"]);
  for (const end of ends) end();
  ask("d");
  ask("d");
  ask("d");
  await turn();
  expect(begun.slice(8)).toEqual(["d", "d"]);
});
