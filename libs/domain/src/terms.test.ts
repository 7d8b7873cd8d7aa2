import { expect, it } from "vitest";
import { alikeWords, splitTerms, sumOfDifferences } from "./terms.ts";
import { formatSeconds } from "./units.ts";

const term = (name: string, a: number, difference: number) => ({ name, a, b: a + difference, difference });
const namesOf = (terms: readonly { name: string }[]) => terms.map(({ name }) => name);

it("shows what the total difference is made of, where larger differences balance", () => {
  const terms = [
    term("bubble", 1, -0.4405),
    term("gradients", 0.1, 0.2394),
    term("parameters", 0.2, 0.2177),
    term("compute", 10.79, -0.002),
    term("update", 1, 1e-5),
    term("sequence", 0.25, 1e-17),
  ];
  const { differing, alike } = splitTerms(terms, formatSeconds);
  expect(namesOf(differing)).toEqual(["bubble", "gradients", "parameters", "compute"]);
  expect(namesOf(alike)).toEqual(["update", "sequence"]);
});

it("leaves out what differs by next to nothing beside a difference that does not balance", () => {
  const { differing, alike } = splitTerms(
    [term("update", 0.004, 0.059), term("compute", 10.7914, 1e-6)],
    formatSeconds,
  );
  expect(namesOf(differing)).toEqual(["update"]);
  expect(namesOf(alike)).toEqual(["compute"]);
  expect(alikeWords(alike)).toBe("Nearly the same in both");
});

it("shows all that differs where the sum is nothing, and nothing where only rounding differs", () => {
  const balanced = [term("bubble", 1, -0.002), term("update", 1, 0.002), term("compute", 9, 0)];
  expect(namesOf(splitTerms(balanced, formatSeconds).differing)).toEqual(["bubble", "update"]);
  expect(splitTerms([term("compute", 9, 1e-15)], formatSeconds).differing).toEqual([]);
  expect(sumOfDifferences([term("compute", 9, 1e-15)])).toBe(0);
  expect(alikeWords([term("compute", 9, 1e-15)])).toBe("The same in both");
  expect(sumOfDifferences(balanced.slice(1))).toBe(0.002);
});
