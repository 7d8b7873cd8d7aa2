import { parsePlanLabel, ProblemError } from "@internevo/domain";
import { shippedProfile } from "@internevo/cost-model";
import { planOfJob } from "@internevo/plan";
import { describe, expect, it } from "vitest";
import { exportBest, exportConfiguration } from "./index.ts";
import { jobOf } from "../test/random-plans.ts";
import { read } from "../test/reading.ts";

/*
 * Megatron-DeepSpeed's attention: with flash it keeps no scores, and heeds no masks; without flash it turns no
 * positions where ranks share the heads.
 */

const DATA = { format: "megatron", path: "/data/x", packing: "documents", endOfDocumentToken: 99_999 };
const HEADS = "b1 n4 a1 pp1 dp32 tp1 sp4 ps1 gs1 oss128";
const TENSOR = "b1 n4 a1 pp1 dp32 tp4 sp4 ps1 gs1 oss32";
const ALONE = "b1 n1 a1 pp1 dp128 tp1 sp1 ps1 gs1 oss128";

const written = (label: string, more: Record<string, unknown> = {}) => {
  const job = jobOf({ model: { base: "llama-7b", vocabularySize: 100_000 }, precision: "bf16", ...more });
  const exported = exportConfiguration("deepspeed", job, planOfJob(parsePlanLabel(label), job));
  return { ...exported, text: exported.files[0]?.text ?? "" };
};
const FLASH = /^ {2}--use-flash-attn-v2 \\$/m;

/** What an import says of a written script that is changed. */
function readBack(label: string, from: string, to: string) {
  const { files, text } = written(label);
  const { takenAs, warnings, ignored, plan } = read("deepspeed", [
    { name: "pretrain.sh", text: text.replace(from, to) },
    ...files.slice(1),
  ]);
  return { takenAs, warnings, ignored, plan };
}

describe("DeepSpeed's attention", () => {
  it.each([HEADS, TENSOR, ALONE])("is flash attention in what is written, and is read back: %s", (label) => {
    const { text, files } = written(label);
    expect(text).toMatch(FLASH);
    const again = read("deepspeed", files);
    expect([again.takenAs, again.warnings]).toEqual([[], []]);
    expect(again.ignored.join()).not.toContain("flash");
  });

  it.each([TENSOR, ALONE])("heeds the masks of packed documents without flash: %s", (label) => {
    const { text, inexpressible } = written(label, { data: DATA });
    expect(text).not.toMatch(/flash/);
    expect(text).toContain("--reset-attention-mask");
    const [said] = inexpressible.filter(({ field }) => field === "data.packing");
    expect(said).toMatchObject({ value: "documents", nearest: "documents" });
    // 32 heads of 32,768 by 32,768 scores in 2 bytes, on so many tensor ranks.
    expect(said?.reason).toContain(label === TENSOR ? "16.0 GiB" : "64.0 GiB");
    expect(said?.reason).toMatch(/without flash.*does not count/);
  });

  it("does not keep documents apart where ranks share the heads", () => {
    const { text, inexpressible } = written(HEADS, { data: DATA });
    expect(text).toMatch(FLASH);
    expect(text).not.toContain("--reset-attention-mask");
    const [said] = inexpressible.filter(({ field }) => field === "data.packing");
    expect(said).toMatchObject({ value: "documents", nearest: "none" });
    expect(said?.reason).toMatch(/--ds-sequence-parallel-size.*flash/);
  });

  it("keeps scores in float32, which flash attention does not take", () => {
    const { text, inexpressible } = written(TENSOR, { precision: "fp32" });
    expect(text).not.toMatch(/flash/);
    const [said] = inexpressible.filter(({ field }) => field === "precision");
    expect(said).toMatchObject({ value: "fp32", nearest: "fp32" });
    expect(said?.reason).toContain("32.0 GiB");
  });

  it("is refused in float32 where ranks share the heads, and the search leaves such plans out", () => {
    let refused: unknown;
    try {
      written(HEADS, { precision: "fp32" });
    } catch (error) {
      refused = error;
    }
    expect(refused).toBeInstanceOf(ProblemError);
    expect((refused as ProblemError).details).toMatchObject([
      { field: "plan.sequenceParallel", value: 4, message: expect.stringMatching(/rotary positions/) },
    ]);
    const job = jobOf({ model: "llama-7b", precision: "fp32", sequenceLengthTokens: 131_072 });
    const { tensorParallel, sequenceParallel } = exportBest(
      "deepspeed",
      job,
      shippedProfile("a800-128"),
    ).plan;
    expect(sequenceParallel).toBe(tensorParallel);
  });

  it("is read by any of its options without a word", () => {
    for (const option of [
      "--use-flash-attn",
      "--use-flash-attn-v1",
      "--use-flash-attn-triton",
      "--use-flash-attn-builder",
    ])
      expect(readBack(HEADS, "--use-flash-attn-v2", option)).toMatchObject({
        takenAs: [],
        warnings: [],
        ignored: expect.not.arrayContaining([option]),
      });
  });

  it("is said to be another where a script has none of them", () => {
    const alone = readBack(ALONE, "--use-flash-attn-v2", "");
    expect(alone.warnings).toEqual([]);
    expect(alone.takenAs).toMatchObject([
      { option: "--use-flash-attn-v2", value: "missing", as: "blockwise attention, which keeps no scores" },
    ]);
    expect(readBack(HEADS, "--use-flash-attn-v2", "").warnings).toMatchObject([
      {
        field: "--use-flash-attn-v2",
        value: null,
        message: expect.stringMatching(/--ds-sequence-parallel-size 4.*rotary positions/),
      },
    ]);
  });

  it("heeds no masks with flash: documents are not packed then", () => {
    const masked = "--use-flash-attn-v2 --reset-attention-mask";
    const { files, text } = written(ALONE, { data: { format: "megatron", path: "/data/x" } });
    const script = { name: "pretrain.sh", text: text.replace("--use-flash-attn-v2", masked) };
    const { data, takenAs } = read("deepspeed", [script, ...files.slice(1)]);
    expect(data).toEqual({ format: "megatron", path: "/data/x" });
    expect(takenAs.map(({ option }) => option)).toContain("--reset-attention-mask");
  });
});
