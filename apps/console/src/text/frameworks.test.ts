import { describe, expect, it } from "vitest";
import { besideName, lineOfOption, sortFiles } from "./frameworks.ts";

describe("configurations of other frameworks", () => {
  it("are told apart from the files beside them", () => {
    const [script, json] = [
      { name: "run/pretrain.sh", text: "a" },
      { name: "zero3.json", text: "{}" },
    ];
    expect(sortFiles("deepspeed", [json, script])).toEqual({ main: script, beside: json });
    expect(sortFiles("megatron", [script])).toEqual({ main: script, beside: undefined });
    expect(sortFiles("megatron", [{ name: "arguments", text: "b" }])).toEqual({
      main: { name: "arguments", text: "b" },
      beside: undefined,
    });
    expect(sortFiles("torchtitan", [{ name: "flavor.py", text: "c" }])).toEqual({
      main: undefined,
      beside: { name: "flavor.py", text: "c" },
    });
  });

  it("name the files beside them", () => {
    expect(
      besideName("deepspeed", "torchrun pretrain_gpt.py --deepspeed_config conf/zero3.json --bf16"),
    ).toBe("conf/zero3.json");
    expect(besideName("deepspeed", "pretrain_gpt.py --deepspeed")).toBe("ds_config.json");
    expect(besideName("internevo", "--deepspeed_config x.json")).toBeUndefined();
  });

  it("have the options that errors name", () => {
    const text = "torchrun pretrain_gpt.py \\\n  --hidden-size-of-x 1 \\\n  --hidden-size 4096\n";
    expect(lineOfOption(text, "--hidden-size")).toBe(3);
    expect(lineOfOption(text, "--hidden")).toBeUndefined();
    expect(lineOfOption('[model]\nflavor = "7B"\n', "model.flavor")).toBe(2);
    expect(lineOfOption("file a\n", "file")).toBeUndefined();
  });
});
