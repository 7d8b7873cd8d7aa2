import { expect, it } from "vitest";
import { parseDocument } from "yaml";
import { syntaxFault } from "./syntax-fault.ts";

const faultOf = (text: string) => {
  const [error] = parseDocument(text, { prettyErrors: false }).errors;
  if (!error) throw new Error("it is YAML");
  return syntaxFault(error, text);
};

it.each([
  [
    "name: x\nmodel: llama-7b\nsteps: 5\n seed: 3\nplan: {}\n",
    4,
    "is indented one column too far",
    " seed: 3\n ^",
    "column 1",
  ],
  [
    "cluster:\n  nodes: 1\n\n     gpus: 2\n",
    4,
    "is indented 3 columns too far",
    "     gpus: 2\n     ^",
    "column 3",
  ],
  ["cluster:\n  nodes: 1\n gpus: 2\n", 3, "is indented one column too little", " gpus: 2\n ^", "column 3"],
  ["name: x: y\n", 1, "has a second colon in its value", "name: x: y\n      ^", "quotes"],
  ["name: x\nmodel: { a: 1\nsteps: 5\n", 2, "lacks a closing }", "model: { a: 1\n             ^", "close it"],
  [
    "name: x\nmodel: [ a: 1 }\nsteps: 5\n",
    2,
    "lacks a closing ]",
    "model: [ a: 1 }\n              ^",
    "close it",
  ],
  ['{\n  "name": "x",\n  "steps": 5\n\n', 3, "lacks a closing }", '  "steps": 5\n            ^', "close it"],
  ['{"name": "x"', 1, "lacks a closing }", '{"name": "x"\n            ^', "close it"],
  ['["a"\n', 1, "lacks a closing ]", '["a"\n    ^', "close it"],
  ['{\n  "name": "x"\n  "steps": 5\n}', 2, "lacks a comma", '  "name": "x"\n             ^', "put a comma"],
  ["cluster:\n\tnodes: 1\n", 2, "is indented by a tab", " nodes: 1\n^", "spaces"],
  ["name: x\nname: y\n", 2, "gives a field a second time", "name: y\n^", "keep one"],
  ["name: 'x\nsteps: 4\n", 1, "has a quote that is not closed", "name: 'x\n      ^", "close it"],
  ["steps: 4\nname:x\n", 2, "is no field", "name:x\n^", "`steps: 100`"],
  ["name: x\nfoo\nsteps: 4\n", 2, "is no field", "foo\n^", "`steps: 100`"],
  ["name: x\n---\nname: y", 2, "begins a second document", "---\n^", "one job"],
  [
    "name: @x\n",
    1,
    "is not YAML: plain value cannot start with reserved character @",
    "name: @x\n      ^",
    "quotes",
  ],
])("names the line of %j that has to be changed", (text, line, message, excerpt, remedy) => {
  expect(faultOf(text)).toEqual({ line, message, excerpt, remedy: expect.stringContaining(remedy) });
});

it("shows what is around the mark of a long line", () => {
  const { excerpt = "" } = faultOf(`name: "${"x".repeat(5000)}" y\n`);
  expect(Math.max(...excerpt.split("\n").map((line) => line.length))).toBeLessThanOrEqual(100);
  expect(excerpt).toMatch(/^x+" y\n +\^$/);
});
