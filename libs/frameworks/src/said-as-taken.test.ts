import { describe, expect, it } from "vitest";
import { read } from "../test/reading.ts";
import { DEEPSPEED, MLP, python, script, SIZES } from "../test/small-files.ts";
import type { Framework, FrameworkFile } from "./index.ts";

/*
 * What is trained or computed otherwise than a file says is said, with the value that the file has.
 */

const taken = (framework: Framework, option: string, ...files: FrameworkFile[]) =>
  read(framework, files).takenAs.filter((each) => each.option === option);

describe("TF32", () => {
  it("of InternEvo is fp32, whose predicted time is too long", () => {
    const file = { ...python(MLP) };
    const text = file.text.replace("torch.bfloat16", "torch.tf32");
    expect(read("internevo", [{ ...file, text }]).precision).toBe("fp32");
    expect(taken("internevo", "model.dtype", { ...file, text })).toEqual([
      {
        option: "model.dtype",
        value: "torch.tf32",
        as:
          "fp32 without TF32, with which InternEvo multiplies matrices many times faster on GPUs that have it; " +
          "the predicted time is too long",
        errs: { time: "too long" },
      },
    ]);
    const plain = file.text.replace("torch.bfloat16", "torch.float32");
    expect(taken("internevo", "model.dtype", { ...file, text: plain })).toEqual([]);
  });
});

describe("Megatron-LM's virtual stages", () => {
  const warned = (layers: number, stages: number, virtual: number) =>
    read("megatron", [
      script(
        `--pipeline-model-parallel-size ${stages} --num-virtual-stages-per-pipeline-rank ${virtual}`,
        {},
        SIZES.replace("--num-layers 4", `--num-layers ${layers}`),
      )[0],
    ]).warnings;

  it("that do not divide the layers of a rank are warned of", () => {
    expect(warned(32, 2, 3)).toEqual([
      {
        field: "--num-virtual-stages-per-pipeline-rank",
        value: 3,
        message: "does not divide the 16 layers of a pipeline rank: Megatron-LM refuses it",
        remedy: "give 1, 2, 4 or 8, or --pipeline-model-parallel-layout",
      },
    ]);
    expect(warned(32, 2, 4)).toEqual([]);
    expect(warned(32, 1, 4)).toMatchObject([
      {
        field: "--pipeline-model-parallel-size",
        message: "is too few for 4 chunks of a stage: Megatron-LM refuses it",
      },
    ]);
  });
});

describe("options that change what is trained, not its time or memory", () => {
  const of = (option: string, more: string) => taken("megatron", option, script(more)[0])[0]?.as;

  it.each([
    ["--decoupled-lr 1e-3", "--lr: embedding and output layer learn at the rate of the rest"],
    ["--decoupled-min-lr 1e-5", "--min-lr: embedding and output layer learn at the rate of the rest"],
    ["--train-iters 100 --exit-interval 30", "never: training ends with its last step, not after step 30"],
    ["--exit-duration-in-mins 60", "never: training ends with its last step"],
    ["--exit-interval 30", "never: training ends with its last step, not after step 30"],
    ["--phase-transition-iterations 10,20", "never: training ends with its last step"],
    ["--dataloader-type cyclic", "single: each sample once before one comes again"],
    ["--fim-data", "data as it is: nothing is filled in the middle"],
    ["--eod-mask-loss", "not given: the last token of a document counts in the loss"],
  ])("are said of Megatron-LM: %s", (text, as) => {
    const option = text.split(" ").findLast((word) => word.startsWith("--")) ?? "";
    expect(of(option, text)).toBe(as);
  });

  it("are without effect with the values that change nothing", () => {
    const { ignored } = read("megatron", [
      script("--train-iters 100 --exit-interval 100 --dataloader-type single")[0],
    ]);
    expect(ignored).toEqual(expect.arrayContaining(["--exit-interval", "--dataloader-type"]));
  });
});

describe("the vocabulary of Megatron-DeepSpeed's tokenizer without files", () => {
  it("is named as it is written, with the token that is added", () => {
    const files = script(
      `${DEEPSPEED} --tokenizer-type NullTokenizer`,
      {},
      SIZES.replace("1024 --seq", "32000 --seq"),
    );
    expect(read("deepspeed", files).model.vocabularySize).toBe(32_128);
    expect(taken("deepspeed", "--vocab-size", ...files)).toEqual([
      {
        option: "--vocab-size",
        value: 32_000,
        as:
          "32128: with the token that NullTokenizer adds, a multiple of 128, --make-vocab-size-divisible-by times the " +
          "tensor ranks",
      },
    ]);
    const padded = (more: string) =>
      taken("megatron", "--vocab-size", script(more, {}, SIZES.replace("1024 --seq", "1000 --seq"))[0]);
    expect(padded("--tokenizer-type NullTokenizer")).toMatchObject([
      { value: 1000, as: "1024: a multiple of 128, --make-vocab-size-divisible-by times the tensor ranks" },
    ]);
  });
});
