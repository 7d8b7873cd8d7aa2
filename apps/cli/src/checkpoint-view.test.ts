import picocolors from "picocolors";
import { expect, it } from "vitest";
import { inspectionText, verificationText, writtenText } from "./checkpoint-view.ts";

const colors = picocolors.createColors(false);

it("writes figures as everywhere", () => {
  const written = { path: "/out", from: "/in", bytes: 3_412_480, parameters: 853_120 };
  expect(writtenText({ ...written, fileCount: 1 }, "wrote")).toBe(
    "wrote /out: 853,120 parameters, 3.25 MiB in 1 file, from /in",
  );
  expect(writtenText({ ...written, fileCount: 2 }, "imported")).toMatch(/ in 2 files, from \/in$/);
  expect(
    inspectionText(
      {
        kind: "huggingFace",
        path: "/hf",
        parameters: 853_120,
        fileCount: 1,
        model: { vocabularySize: 32_000, normEpsilon: 1e-5 },
      },
      colors,
    ),
  ).toMatch(/\/hf: 853,120 parameters in 1 file\nvocabularySize +32,000\nnormEpsilon +0\.00001$/);
  const checkpoint = {
    path: "/ck",
    step: 12_000,
    dataPosition: 1,
    parameters: 853_120,
    bytes: 3_412_480,
    fileCount: 1,
    precision: "fp32",
    plan: null,
    holds: ["weight"],
  };
  const text = inspectionText(
    {
      ...checkpoint,
      kind: "checkpoint",
      files: [{ name: "a", bytes: 3_412_480, slices: 1200, elements: 853_120 }],
      tensors: [{ name: "t", shape: [32_000, 8], elements: 256_000, slices: 1 }],
    },
    colors,
  );
  expect(text).toMatch(/step +12,000, 1 sequence read/);
  expect(text).toMatch(/weight of 853,120 parameters, 3\.25 MiB/);
  expect(text).toMatch(/a +3\.25 MiB +1,200 +853,120/);
  expect(text).toMatch(/t +32,000 × 8 +1/);
  expect(
    verificationText(
      { ok: true, checkpoints: [{ path: "/ck", bytes: 3_412_480, fileCount: 1, ok: true, problems: [] }] },
      colors,
    ),
  ).toBe("sound  /ck: 1 file, 3.25 MiB");
});
