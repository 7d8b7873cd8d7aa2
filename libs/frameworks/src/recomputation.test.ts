import { describe, expect, it } from "vitest";
import { faultsOf, read } from "../test/reading.ts";
import { script, toml } from "../test/small-files.ts";

/*
 * What frameworks compute again beside whole layers, and how the figures err where no plan has it.
 */

describe("torchtitan's recomputation of operators", () => {
  it("is said to be more than none, and how the figures err", () => {
    const option = "activation_checkpoint.selective_ac_option";
    const { plan, takenAs } = read("torchtitan", [
      toml('[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "op"'),
    ]);
    expect(plan).toMatchObject({ recompute: false });
    const [taken] = takenAs.filter((each) => each.option === option);
    expect(taken).toMatchObject({ value: "op", errs: { time: "too short", memory: "too large" } });
    expect(taken?.as).toBe(
      "none, though torchtitan makes every second matrix product again, and all that is no matrix product, attention " +
        "or sum over ranks; the predicted time is too short, and the memory too large",
    );
  });
});

describe("Megatron-LM's recomputation of modules", () => {
  const imported = (more: string) =>
    read("megatron", [script(`--recompute-granularity selective ${more}`)[0]]);
  const taken = (more: string) =>
    imported(more).takenAs.filter(({ option }) => option.startsWith("--recompute"));
  const NONE = {
    option: "--recompute-granularity",
    value: "selective",
    as: "none: blockwise attention keeps no scores that could be recomputed",
  };

  it("is none for attention, which is what it makes where nothing is said", () => {
    for (const more of ["", "--recompute-modules core_attn"]) {
      expect(imported(more).plan).toMatchObject({ recompute: false });
      expect(imported(more).plan.gateUp).toBeUndefined();
      expect(taken(more)).toEqual([NONE]);
    }
  });

  it("makes gate and up again for an MLP, and norms as the executor always does", () => {
    const { plan } = imported("--recompute-modules mlp layernorm");
    expect(plan).toMatchObject({ recompute: false, gateUp: "again" });
    expect(taken("--recompute-modules mlp layernorm")).toEqual([
      {
        option: "--recompute-modules",
        value: "mlp layernorm",
        as:
          "gate and up made again, though Megatron-LM makes the whole MLP again; norms made again, as the executor always " +
          "does; the predicted time is too short",
        errs: { time: "too short" },
      },
    ]);
    // It says selective, whatever the granularity is.
    const activations = script("--recompute-granularity full --recompute-activations")[0];
    expect(read("megatron", [activations]).plan).toMatchObject({ recompute: false });
    expect(taken("--recompute-modules layernorm core_attn").map(({ as }) => as)).toEqual([
      NONE.as,
      "norms made again, as the executor always does",
    ]);
  });

  it("of what the model does not have is none, and warned of where Megatron-LM refuses it", () => {
    const said = imported("--recompute-modules moe mhc");
    expect(said.takenAs).toContainEqual({
      option: "--recompute-modules",
      value: "moe mhc",
      as: "moe and mhc made again: nothing, since the model has no such modules",
    });
    expect(said.warnings).toEqual([
      {
        field: "--recompute-modules",
        value: "moe mhc",
        message: "names mhc, which Megatron-LM refuses with a model that has no such module",
        remedy: "leave it out",
      },
    ]);
  });

  it("of no module that there is is refused", () => {
    for (const more of ["", "--recompute-granularity selective"])
      expect(faultsOf("megatron", script(`${more} --recompute-modules mlp banana`)[0])).toEqual([
        "--recompute-modules: is no module that Megatron-LM recomputes → use core_attn, mlp, layernorm, moe, moe_act, " +
          "shared_experts, mla_up_proj, gdn_norm_out, gdp_in_proj, gdp_qkv or mhc",
      ]);
  });

  it("has no effect without selective, and no method or number of layers with it", () => {
    const full = "--recompute-granularity full --recompute-method uniform --recompute-modules mlp";
    expect(read("megatron", [script(full)[0]]).ignored).toContain("--recompute-modules");
    expect(read("megatron", [script("--recompute-modules mlp")[0]]).ignored).toContain("--recompute-modules");
    expect(imported("--recompute-num-layers 2").ignored).toContain("--recompute-num-layers");
    expect(faultsOf("megatron", script("--recompute-activations --recompute-method block")[0])).toEqual([
      "--recompute-method: has no effect without --recompute-granularity full → add it, or leave the method out",
    ]);
  });
});
