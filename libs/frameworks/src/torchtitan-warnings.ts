import type { Fields } from "./fields.ts";
import type { FrameworkWarning } from "./framework.ts";
import { repeated } from "./problems.ts";
import { pipelineFault } from "./torchtitan-model.ts";

/** What a section says: the names in it. */
const quantized = (value: unknown): unknown =>
  typeof value === "object" && value !== null ? repeated(Object.keys(value).join(", ")) : repeated(value);

/** What torchtitan refuses, though a plan stands for it. */
export function torchtitanWarnings(
  root: Fields,
  sequenceLengthTokens: number,
  { tp, pp, ring }: Readonly<Record<"tp" | "pp" | "ring", number>>,
): FrameworkWarning[] {
  const stages = pp > 1 ? pipelineFault(root.section("model").text("name") ?? "") : null;
  const divisor = 2 * tp * ring;
  // model.converters is refused, so that nothing uses them.
  const quantize = root
    .section("quantize")
    .names()
    .map((name) => ({
      field: root.path(`quantize.${name}`),
      value: quantized(root.section("quantize").value(name)),
      message: "computes nothing in 8 bits: torchtitan does so only with model.converters",
      remedy: "leave it out",
    }));
  const training = root.section("training");
  const reduced = training.text("mixed_precision_reduce") ?? "float32";
  const warnings = [
    ...quantize,
    ...(stages === null
      ? []
      : [
          {
            field: "parallelism.pipeline_parallel_degree",
            value: pp,
            message: `is more than 1: ${stages}`,
            remedy: "give 1",
          },
        ]),
    ...(reduced === "float32"
      ? []
      : [
          {
            field: training.path("mixed_precision_reduce"),
            value: reduced,
            message: "is not float32, the one choice that torchtitan has",
            remedy: "give float32",
          },
        ]),
  ];
  if (sequenceLengthTokens % divisor === 0) return warnings;
  return [
    ...warnings,
    {
      field: "training.seq_len",
      value: sequenceLengthTokens,
      message:
        "is no multiple of the tensor degree times twice the " +
        `context degree, which is ${divisor}: torchtitan refuses it`,
      remedy: `give a multiple of ${divisor}`,
    },
  ];
}
