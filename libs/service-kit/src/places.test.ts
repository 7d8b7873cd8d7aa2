import { expect, it } from "vitest";
import { Places } from "./places.ts";

const takeAll = (places: Places, project: string): (() => void)[] => {
  const taken: (() => void)[] = [];
  for (let give = places.take(project); give; give = places.take(project)) taken.push(give);
  return taken;
};

it("leaves places to others, whatever one project asks for", () => {
  const places = new Places(64);
  const first = takeAll(places, "first");
  expect(first).toHaveLength(32);
  expect(takeAll(places, "second")).toHaveLength(16);
  expect(takeAll(places, "third")).toHaveLength(8);
  for (const give of first.splice(0, 24)) give();
  expect(takeAll(places, "third")).toHaveLength(12);
});

it("gives one that has none the only place", () => {
  const places = new Places(1);
  const [give, ...more] = takeAll(places, "first");
  expect(more).toEqual([]);
  give?.();
  expect(takeAll(places, "second")).toHaveLength(1);
});
