import { describe, expect, it } from "vitest";
import { read } from "../test/reading.ts";
import { MLP, python } from "../test/small-files.ts";
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
