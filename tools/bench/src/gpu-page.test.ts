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
    "`plan.1` ",
    "`kernels.8192` ",
    "`benchmark.products` ",
    "InternEvo | 64 ",
  ])
    expect(rowOf(page, start), start).toMatch(/\| 1[567]00 MHz \| (350|351) W \| 41 °C \|$/);
  expect(rowOf(page, "32 | InternEvo")).toMatch(/ms \|.*1[567]00 MHz/);
});

it("says of the model's figures that they say nothing about a GPU", () => {
  expect(pageOf(sample)).toMatch(/^\*\*These figures are those of a model of a GPU on a CPU/);
});

it("counts outcomes by command, and names what did not pass with its reason", () => {
  const page = pageOf(sample);
  expect(rowOf(page, "truth")).toMatch(/^\| truth \| 8 \| 1 \| 0 \| 0 \| 0 \| 0 \| 0 \|/);
  expect(rowOf(page, "`attention.torch.warpgroup`")).toContain("| absent | python3 has no PyTorch");
  expect(rowOf(page, "`operators.linear-forward-g-x-g-w-33x17x21` | bf16")).toMatch(
    /\| the CPU \| \d\.\de-\d \| \d\.\de-\d \| {2}\|$/,
  );
});

it("takes a case's last line, over files and over a line that was cut off", () => {
  const again = sample
    .split("\n")
    .find((line) => line.includes('"case":"attention.torch.warpgroup"') && line.includes('"event":"case"'))
    ?.replace('"outcome":"absent"', '"outcome":"timed-out"')
    .replace(/"message":"[^"]*"/, '"message":"ended after 60 s | no more"');
  const page = pageOf(`${sample}{"event":"case","case":"instr`, `${again}\n`);
  expect(rowOf(page, "truth")).toMatch(/^\| truth \| 8 \| 0 \| 0 \| 0 \| 1 \|/);
  expect(rowOf(page, "`attention.torch.warpgroup`")).toContain("timed-out | ended after 60 s \\| no more |");
});

it("refuses files of two builds, and files without results", () => {
  const other = sample.replace(/"build":"[^"]*"/, '"build":"another"');
  expect(() => pageOf(sample, other)).toThrow(/give files of one build and one GPU/);
  expect(() => pageOf("")).toThrow(/no results in file 0/);
});

it("shows what was predicted of each plan beside what was measured", () => {
  const page = pageOf(sample);
  expect(page).toContain("## Plans: predicted beside measured");
  expect(page).toMatch(/2 layers of on-the-model at 32 tokens, 64 tokens a step\. Predicted with profile /);
  const row = rowOf(page, "`plan.2` ");
  const [predicted = 0, measured = 0] = [...row.matchAll(/([\d.]+) ms/g)].map(([, value]) => Number(value));
  const error = Number(/ms \| ([+-][\d.]+)% \|/.exec(row)?.[1]);
  expect(measured).toBeGreaterThan(0);
  expect(error).toBeCloseTo(100 * (predicted / measured - 1), -1);
  expect(row).toMatch(/\| [\d.]+ GiB \| [\d.]+ GiB \| [+-][\d.]+% \| `b\d n\d/);
});

it("predicts plans anew with a profile, and says with which", () => {
  const results = readCheckResults([{ name: "one", text: sample }]);
  const page = gpuPageBody(results, {
    predictor: {
      profile: "one-gpu, assembled",
      predict: (spec, plan, threadsPerRank) => ({
        stepTimeSeconds: plan.microBatches,
        peakMemoryBytes: spec.sequenceLengthTokens * threadsPerRank * 2 ** 30,
      }),
    },
  });
  expect(page).toContain("Predicted with profile one-gpu, assembled.");
  const row = rowOf(page, "`plan.1` ");
  const microBatches = Number(row.split("|")[3]);
  expect(row).toContain(`| ${(1000 * microBatches).toFixed(2)} ms |`);
  expect(row).toContain("| 32.00 GiB |");
});

it("puts losses of ten steps side by side, by kernels of attention", () => {
  const page = pageOf(sample);
  expect(rowOf(page, "step | warp")).toBe("| step | warp | warpgroup | cudnn |");
  expect(page).toMatch(/\| 10 \| \d\.\d{6} \| \d\.\d{6} \| \d\.\d{6} \|/);
});
