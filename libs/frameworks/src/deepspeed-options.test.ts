import { expect, it } from "vitest";
import { faultsOf, read } from "../test/reading.ts";
import { DEEPSPEED, script } from "../test/small-files.ts";
import { DECODER_IGNORED, DECODER_OPTIONS, DECODER_REFUSED } from "./decoder-arguments.ts";
import { DEEPSPEED_JUDGES, DEEPSPEED_OPTIONS, DEEPSPEED_REFUSED } from "./deepspeed-options.ts";

it("knows each of Megatron-DeepSpeed's options once", () => {
  const names = [DECODER_OPTIONS, DECODER_IGNORED, DEEPSPEED_OPTIONS].flatMap((of) =>
    Object.values(of).flatMap((text) => text.trim().split(/\s+/)),
  );
  const all = [...names, ...Object.keys(DECODER_REFUSED), ...Object.keys(DEEPSPEED_REFUSED)];
  expect(all.filter((name, at) => all.indexOf(name) !== at)).toEqual([]);
  expect(all.filter((name) => !/^--[\w-]+$/.test(name))).toEqual([]);
  // Only what is known is judged.
  expect(Object.keys(DEEPSPEED_JUDGES).filter((name) => !names.includes(name))).toEqual([]);
});

const said = (text: string): string => {
  const files = script(`${DEEPSPEED} --use-flash-attn-v2 ${text}`);
  const option = text.split(" ")[0] as string;
  const faults = faultsOf("deepspeed", ...files);
  if (faults.length > 0)
    return faults.every((fault) => fault.startsWith(`${option}:`)) ? "refused" : faults.join();
  const { takenAs, ignored } = read("deepspeed", files);
  if (takenAs.some((each) => each.option === option)) return "taken";
  return ignored.includes(option) ? "ignored" : "nothing";
};

it.each([
  ["--recompute-activations", "taken"],
  ["--create-moe-param-group", "ignored"],
  ["--embedding-weights-in-fp32", "taken"],
  ["--moe-expert-parallel-size 1", "ignored"],
  ["--moe-expert-parallel-size 2", "refused"],
  ["--topk 2", "ignored"],
  ["--random-ltd", "refused"],
  ["--data-efficiency-curriculum-learning", "refused"],
  ["--kd", "refused"],
  ["--remote-device none", "ignored"],
  ["--remote-device cpu", "refused"],
  ["--transformer-impl local", "ignored"],
  ["--transformer-impl transformer_engine", "taken"],
  ["--fp8-e4m3", "refused"],
  ["--squared-relu", "refused"],
  ["--skip-train", "refused"],
  ["--standalone-embedding-stage", "refused"],
  ["--fp32-residual-connection", "taken"],
  ["--distribute-checkpointed-activations", "taken"],
  ["--ds_fused_adam", "taken"],
  ["--disable-mem-efficient-ln", "taken"],
  ["--train-data-exact-num-epochs 1", "ignored"],
  ["--zero-reduce-bucket-size 1000", "ignored"],
  ["--loss-scale 0", "ignored"],
  ["--no-pipeline-parallel", "nothing"],
])("of Megatron-DeepSpeed: %s is %s", (text, what) => {
  expect(said(text)).toBe(what);
});

it("takes --recompute-activations as selective, which keeps no scores", () => {
  const files = script(`${DEEPSPEED} --use-flash-attn-v2 --recompute-activations`);
  expect(read("deepspeed", files).plan).toMatchObject({ recompute: false });
});
