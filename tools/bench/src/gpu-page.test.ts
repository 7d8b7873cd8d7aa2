import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { readCheckResults } from "@internevo/profiles";
import { expect, it } from "vitest";
import { gpuPageBody } from "./gpu-page.ts";

// Lines that gpu-check wrote on the model of a GPU, with clocks of the model of NVML.
const sample = await readFile(join(import.meta.dirname, "../test-data/gpu-check-on-the-model.jsonl"), "utf8");
const pageOf = (...texts: string[]) =>
  gpuPageBody(readCheckResults(texts.map((text, index) => ({ name: `file ${index}`, text }))));
const rowOf = (page: string, start: string): string =>
  page.split("\n").find((line) => line.startsWith(`| ${start}`)) ?? "";

it("puts clock, power and temperature beside every figure", () => {
  const page = pageOf(sample);
  for (const start of [
    "`step.8192` ",
    "`plan.b4-n2` ",
    "`kernels.8192` ",
    "`benchmark.products` ",
    "InternEvo | 64 ",
  ])
    expect(rowOf(page, start), start).toMatch(/\| 1600 MHz \| (350|351) W \| 41 °C \|$/);
  expect(rowOf(page, "32 | InternEvo")).toMatch(/ms \|.*1600 MHz/);
});

it("says of the model's figures that they say nothing about a GPU", () => {
  expect(pageOf(sample)).toMatch(/^\*\*These figures are those of a model of a GPU on a CPU/);
});

it("counts outcomes by command, and names what did not pass with its reason", () => {
  const page = pageOf(sample);
  expect(rowOf(page, "truth")).toMatch(/^\| truth \| 5 \| 1 \| 0 \| 0 \| 0 \| 0 \| 0 \|/);
  expect(rowOf(page, "`attention.torch`")).toContain("| absent | python3 has no PyTorch");
  expect(rowOf(page, "`operators.linear-forward-g-x-g-w-33x17x21` | bf16")).toMatch(
    /\| the CPU \| \d\.\de-\d \| \d\.\de-\d \| {2}\|$/,
  );
});

it("takes a case's last line, over files and over a line that was cut off", () => {
  const again = sample
    .split("\n")
    .find((line) => line.includes('"case": "attention.torch"'))
    ?.replace('"outcome": "absent"', '"outcome": "timed-out"')
    .replace(/"message": "[^"]*"/, '"message": "ended after 60 s | no more"');
  const page = pageOf(`${sample}{"event": "case", "case": "instr`, `${again}\n`);
  expect(rowOf(page, "truth")).toMatch(/^\| truth \| 5 \| 0 \| 0 \| 0 \| 1 \|/);
  expect(rowOf(page, "`attention.torch`")).toContain("timed-out | ended after 60 s \\| no more |");
});

it("refuses files of two builds, and files without results", () => {
  const other = sample.replace(/"build": "[^"]*"/, '"build": "another"');
  expect(() => pageOf(sample, other)).toThrow(/give files of one build and one GPU/);
  expect(() => pageOf("")).toThrow(/no results in file 0/);
});
