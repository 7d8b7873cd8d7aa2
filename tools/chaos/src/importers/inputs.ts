import type { Framework, FrameworkFile } from "@internevo/frameworks";
import { uniformInt } from "pure-rand/distribution/uniformInt";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";

export type Input = readonly [FrameworkFile, ...FrameworkFile[]];

const PYTHON = [
  "model",
  "data",
  "parallel",
  "dict(",
  ")",
  "= ",
  "\n",
  "\n    ",
  ":",
  "if ",
  "else",
  "for x in ",
  "while ",
  "def f():",
  "lambda: ",
  "[",
  "]",
  "{",
  "}",
  "*",
  "**",
  "%",
  "//",
  "-",
  "not ",
  "and ",
  "or ",
  "is ",
  "in ",
  ":= ",
  "+= ",
  "del ",
  "import os",
  "from x import *",
  "exec(",
  "int(",
  "float(",
  "min(",
  "None",
  "True",
  "num_layers=",
  "hidden_size=",
  "['num_layers']",
  ".update(",
  "f'{x}'",
  "'''",
  "\\",
  "#",
  "0",
  "-1",
  "1e308",
  "2**64",
  "10**400",
  "0x",
  "1j",
  "__class__",
  "@",
  "match x:",
  "try:",
  "with x as y:",
  "class A:",
  "size=",
  "mode='isp'",
  "zero1",
  "tensor",
  "weight",
  "pipeline",
  "\t",
  "\u0000",
  "ｍodel",
  "\ufeff",
];
const SHELL = [
  "A=",
  "$A",
  "${A}",
  "${A[@]}",
  '"',
  "'",
  "\\",
  "\n",
  " ",
  ";",
  "&&",
  "||",
  "|",
  "&",
  "$((",
  "))",
  "$(",
  ")",
  "(",
  "A=(",
  "A+=",
  "export ",
  "if ",
  "fi",
  "for x in",
  "{",
  "}",
  "<<EOF",
  ">",
  "2>&1",
  "#",
  "`",
  "~",
  "*",
  "--num-layers",
  "--hidden-size",
  "--swiglu",
  "--seq-length",
  "--bf16",
  "--tensor-model-parallel-size",
  "--pipeline-model-parallel-layout",
  "E|t*4|L",
  "--context-parallel-size",
  "--cp-comm-type",
  "a2a+p2p",
  "--hierarchical-context-parallel-sizes",
  "--use-megatron-fsdp",
  "--num-distributed-optimizer-instances",
  "--recompute-granularity full",
  "--deepspeed",
  "--deepspeed_config",
  "--zero-stage",
  "pretrain_gpt.py",
  "torchrun",
  "--nnodes",
  "--nproc-per-node",
  "0",
  "-1",
  "1e999",
  "NaN",
  "Infinity",
  "9007199254740993",
  "",
  "=",
  "\u0000",
  "\r\n",
  "eval ",
  "source x",
  "unset A",
  "read A",
];
const TOML = [
  "[model]",
  "[training]",
  "[parallelism]",
  "[activation_checkpoint]",
  "[optimizer]",
  "[lr_scheduler]",
  "[debug]",
  "[experimental]",
  "[[training]]",
  "\n",
  " = ",
  "seq_len",
  "local_batch_size",
  "global_batch_size",
  "flavor",
  '"8B"',
  '"internevo"',
  "tensor_parallel_degree",
  "pipeline_parallel_degree",
  "context_parallel_degree",
  "data_parallel_shard_degree",
  "pipeline_parallel_schedule",
  '"Interleaved1F1B"',
  "selective_ac_option",
  '"op"',
  '"',
  "'''",
  "{",
  "}",
  "[",
  "]",
  ",",
  ".",
  "0",
  "-1",
  "1e308",
  "inf",
  "nan",
  "0x",
  "9223372036854775807",
  "1979-05-27",
  "true",
  "__proto__",
  "#",
  "\\u0000",
  "\u0000",
  "\r",
];
const JSON_TEXT = [
  '"zero_optimization"',
  '"stage"',
  '"bf16"',
  '"enabled"',
  '"train_batch_size"',
  '"auto"',
  '"mics_shard_size"',
  '"zero_hpz_partition_size"',
  '"gradient_clipping"',
  '"__proto__"',
  ":",
  ",",
  "{",
  "}",
  "[",
  "]",
  "null",
  "true",
  "-1",
  "0.5",
  "1e999",
  '"',
  "\\",
  "\\u0000",
  "3",
  "NaN",
];
const WORDS: Readonly<Record<Framework, readonly string[]>> = {
  internevo: PYTHON,
  megatron: SHELL,
  deepspeed: SHELL,
  torchtitan: TOML,
};

function wordsOf(framework: Framework, name: string): readonly string[] {
  if (name.endsWith(".json")) return JSON_TEXT;
  return name.endsWith(".py") ? PYTHON : WORDS[framework];
}
/** No input grows beyond what people paste. */
const MOST_CHARACTERS = 40_000;

/** Random inputs of one seed. */
export class Drawer {
  readonly #random;

  constructor(seed: number) {
    this.#random = xoroshiro128plus(seed);
  }

  below(end: number): number {
    return uniformInt(this.#random, 0, end - 1);
  }

  pick<Value>(values: readonly Value[]): Value {
    return values[this.below(values.length)] as Value;
  }

  /** Words of the language, in any order. */
  #sentence(words: readonly string[]): string {
    return Array.from(
      { length: 1 + this.below(40) },
      () => this.pick(words) + this.pick(["", "", " ", "\n"]),
    ).join("");
  }

  #mutated(text: string, words: readonly string[], other: string): string {
    const at = this.below(text.length + 1);
    const lines = text.split("\n");
    const line = this.below(lines.length);
    switch (this.below(10)) {
      case 0:
        return text.slice(0, at) + this.pick(words) + text.slice(at);
      case 1:
        return text.slice(0, at) + text.slice(at + 1 + this.below(8));
      case 2:
        return (
          text.slice(0, at) +
          String.fromCharCode(
            this.pick([0, 9, 10, 13, 34, 39, 92, 96, 127, 0x2028, 0xd800, 0xff21, 32 + this.below(95)]),
          ) +
          text.slice(at + 1)
        );
      case 3:
        return lines.filter((_, index) => index !== line).join("\n");
      case 4:
        return [...lines.slice(0, line), lines[line] ?? "", ...lines.slice(line)].join("\n");
      case 5:
        return [
          ...lines.slice(0, line),
          ...other.split("\n").slice(this.below(5), 5 + this.below(20)),
          ...lines.slice(line),
        ].join("\n");
      case 6: {
        const numbers = [...text.matchAll(/\d+(?:\.\d+)?/g)];
        if (numbers.length === 0) return text + this.pick(words);
        const found = this.pick(numbers);
        return (
          text.slice(0, found.index) +
          this.pick([
            "0",
            "-1",
            "1",
            "3",
            "7",
            "1.5",
            "1e6",
            "1e308",
            "2147483648",
            "9007199254740993",
            "1" + "0".repeat(400),
            "",
            "x",
            "None",
            "true",
          ]) +
          text.slice(found.index + found[0].length)
        );
      }
      case 7:
        return text.slice(0, at) + this.#sentence(words) + text.slice(at);
      case 8:
        return (
          text.slice(0, at) +
          this.pick(["(", "[", "{", "-", "not ", "dict(a=", "$((", "'", "a.", "a[", '{"a":']).repeat(
            1 + this.below(this.pick([3, 30, 3000])),
          ) +
          text.slice(at)
        );
      default:
        return text.slice(0, at);
    }
  }

  /** An input near another, or one of words alone. */
  input(framework: Framework, corpus: readonly Input[]): Input {
    const from = this.pick(corpus);
    const other = this.pick(corpus);
    if (this.below(12) === 0)
      return [{ name: from[0].name, text: this.#sentence(WORDS[framework]) }, ...from.slice(1)];
    const files = from.map((file) => ({ ...file }));
    for (let times = 1 + this.below(4); times > 0; times -= 1) {
      const at = this.below(files.length);
      const file = files[at] as FrameworkFile;
      files[at] = {
        name: file.name,
        text: this.#mutated(file.text, wordsOf(framework, file.name), other[0].text).slice(
          0,
          MOST_CHARACTERS,
        ),
      };
    }
    return files as unknown as Input;
  }
}
