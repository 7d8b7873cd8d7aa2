import { parsePlanLabel } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { describe, expect, it } from "vitest";
import { exportConfiguration, type Framework } from "./index.ts";
import { jobOf } from "../test/random-plans.ts";
import { faultsOf } from "../test/reading.ts";

/** Tensor ranks of a written configuration, and others that share the sequence beside them. */
function both(
  framework: Framework,
  replaced: readonly (readonly [string, string])[],
  model: object = {},
): string {
  const job = jobOf({ model: { base: "llama-7b", ...model }, sequenceLengthTokens: 16_384 });
  const plan = planOfJob(parsePlanLabel("b1 n4 a1 pp1 dp64 tp2 sp2 ps1 gs1 oss64"), job);
  const { files } = exportConfiguration(framework, job, plan);
  const [main, ...rest] = files as [(typeof files)[number], ...typeof files];
  const text = replaced.reduce((before, [from, to]) => before.replace(from, to), main.text);
  return faultsOf(framework, { ...main, text }, ...rest).join("\n");
}
const context = (ranks: number): readonly [string, string][] => [
  ["--sequence-parallel", `--sequence-parallel --context-parallel-size ${ranks}`],
];

describe("tensor ranks and others that share a sequence", () => {
  it("are refused with the two layouts of as many ranks that can be planned", () => {
    expect(both("megatron", context(4))).toMatch(
      /^--context-parallel-size: together with --tensor-model-parallel-size 2 is in no plan: .* → use --tensor-model-parallel-size 8 --sequence-parallel alone, or --context-parallel-size 8 --cp-comm-type p2p alone$/,
    );
    expect(
      both("deepspeed", [["--sequence-parallel", "--sequence-parallel --ds-sequence-parallel-size 4"]]),
    ).toMatch(
      /→ use --tensor-model-parallel-size 8 --sequence-parallel alone, or --ds-sequence-parallel-size 8 alone$/,
    );
    expect(both("torchtitan", [["context_parallel_degree = 1", "context_parallel_degree = 4"]])).toMatch(
      /→ use tensor_parallel_degree 8 alone, or context_parallel_degree 8 alone$/,
    );
  });

  it("name only layouts that the model and the sequence take", () => {
    // 32 heads are not shared by 64 ranks.
    expect(both("megatron", context(32))).toMatch(
      /→ use --context-parallel-size 64 --cp-comm-type p2p alone$/,
    );
    expect(both("megatron", context(4), { slidingWindowTokens: 4096 })).toMatch(
      /or --context-parallel-size 8 --cp-comm-type a2a alone$/,
    );
    expect(
      both("torchtitan", [["context_parallel_degree = 1", "context_parallel_degree = 4"]], { kvHeads: 4 }),
    ).toMatch(/→ use context_parallel_degree 8 alone$/);
    expect(both("megatron", context(3))).toMatch(/→ use one of them with fewer ranks$/);
  });
});
