import { expect, it } from "vitest";

type Tell = (line: string) => void;
const module = "./progress.mjs";
const { buildProgress } = (await import(module)) as { buildProgress: (tell: Tell) => Tell };

function told(lines: readonly string[]): string[] {
  const said: string[] = [];
  const read = buildProgress((line) => said.push(line));
  for (const line of lines) read(line);
  return said;
}
const steps = (total: number): string[] =>
  Array.from({ length: total }, (_, index) => `[${index + 1}/${total}] Building CXX object a.cpp.o`);

it("tells every tenth of a build once", () => {
  expect(told(["-- Configuring done", ...steps(95)])).toEqual(
    [10, 19, 29, 38, 48, 57, 67, 76, 86, 95].map((done, index) => `${10 * (index + 1)}% (${done} of 95)`),
  );
  expect(told(steps(2))).toEqual(["50% (1 of 2)", "100% (2 of 2)"]);
});

it("says nothing of what comes from a cache", () => {
  expect(
    told(["> nx run native:build  [existing outputs match the cache, left as is]", ...steps(95)]),
  ).toEqual([]);
  expect(told(["> nx run native:build  [local cache]", ...steps(95)])).toEqual([]);
});
