import { expect, it } from "vitest";
import { eventually } from "./eventually.ts";

it("looks until there is something, and hands it over", async () => {
  let looks = 0;
  expect(await eventually("the third look", () => ((looks += 1) === 3 ? "here" : undefined))).toBe("here");
  expect(looks).toBe(3);
});

it("says what was waited for in vain, and what else is known", async () => {
  await expect(
    eventually(
      "the end",
      () => Promise.resolve(false),
      0,
      () => "its log",
    ),
  ).rejects.toThrow(/in vain for the end\nits log$/);
});

it("passes on what looking throws", async () => {
  const look = (): boolean => {
    throw new Error("it is gone");
  };
  await expect(eventually("anything", look)).rejects.toThrow("it is gone");
});
