import { describe, expect, it } from "vitest";
import { read } from "../test/reading.ts";
import { toml } from "../test/small-files.ts";

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
