import { expect, it } from "vitest";
import { countsText } from "./planning-view.ts";

it("says of which plans it is known that they fit", () => {
  const counts = { evaluated: 9000, feasible: 340, rejected: {} } as Parameters<typeof countsText>[0];
  expect(countsText(counts)).toBe("9,000 plans: 340 fit");
  expect(countsText({ ...counts, pruned: 1200 })).toBe(
    "9,000 plans: 340 were examined and fit; 1,200 were skipped, because the listed plans are faster",
  );
});
