import { expect, it } from "vitest";
import { unmetText } from "./unmet-deadline.ts";

const DAY = 86_400;
/** Clusters of eight GPUs a node, by nodes and days. */
const sizes = (...list: readonly (readonly [nodes: number, days: number])[]) =>
  list.map(([nodes, days]) => ({ nodes, gpus: nodes * 8, seconds: days * DAY }));
const said = (list: ReturnType<typeof sizes>, days: number) =>
  unmetText(
    list.map(({ nodes }) => nodes),
    list,
    days * DAY,
  );

it("asks for as many nodes as the deadline takes at perfect scaling, and more", () => {
  expect(said(sizes([16, 64.3], [32, 32.4]), 1)).toBe(
    "no cluster of 16 or 32 nodes meets the deadline: the fastest, of 32 nodes, takes 32 d 9 h, and the deadline is 1 d.\n" +
      "At perfect scaling the deadline takes 1,037 nodes, and more in practice: ask for --values 2048..8192.",
  );
  expect(said(sizes([16, 12]), 10)).toMatch(
    /takes 20 nodes, and more in practice: ask for --values 32\.\.128\.$/,
  );
});

it("says so where no number of nodes will do", () => {
  expect(said(sizes([4096, 3.6], [8192, 3.3]), 1)).toMatch(
    /\nFrom 4,096 to 8,192 nodes the time only fell from 3 d 14 h to 3 d 7 h, so more will not do\. Give it more time/,
  );
  expect(said(sizes([4, 30], [8, 31]), 10)).toMatch(
    /\nMore nodes than 4 were slower, so more will not do\. /,
  );
  expect(said(sizes([4, 3], [2, 3]), 1)).toMatch(/will not do/);
  expect(said(sizes([16, 1e5]), 1)).toMatch(
    /At perfect scaling the deadline takes 1,600,000 nodes, more than a job can have \(125,000\)\. Give it more time/,
  );
});

it("asks for larger ones where none has a plan", () => {
  expect(unmetText([1, 2], [], DAY)).toBe(
    "no cluster of 1 or 2 nodes has a plan: ask for larger ones, e.g. --values 4..16",
  );
});
