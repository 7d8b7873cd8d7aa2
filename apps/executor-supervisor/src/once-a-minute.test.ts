import { expect, it } from "vitest";
import { onceAMinute } from "./once-a-minute.ts";

it("says what fails with every step once a minute, and how often it was not said", () => {
  const said: string[] = [];
  let seconds = 0;
  const say = onceAMinute(
    (line) => said.push(line),
    () => 1000 * seconds,
  );
  for (; seconds < 150; seconds += 1) say(`no room at ${seconds} s`);
  expect(said).toEqual([
    "no room at 0 s",
    "no room at 60 s (and 59 more like it since the last such line)",
    "no room at 120 s (and 59 more like it since the last such line)",
  ]);
});
