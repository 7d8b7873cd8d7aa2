import { describe, expect, it } from "vitest";
import { planLabel } from "@internevo/domain";
import { importConfiguration, type FrameworkFile } from "./index.ts";
import { faultsOf, read } from "../test/reading.ts";

const MEGATRON = `
GPUS=8  # of a node
SIZE="4096"
MODEL=(
  --num-layers 32 --hidden-size $SIZE
  --ffn-hidden-size 11008
  --num-attention-heads 32
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights
  --position-embedding-type rope
)
SIZES="--seq-length 4096 --max-position-embeddings 4096 --vocab-size 100000 --make-vocab-size-divisible-by 1 --attention-dropout 0 --hidden-dropout 0"
torchrun --nproc_per_node $GPUS --nnodes 2 pretrain_gpt.py \\
    \${MODEL[@]} $SIZES --bf16 --micro-batch-size 1 --global-batch-size $((16 * 4)) --save "$CHECKPOINTS/one" \\
    --tensor-model-parallel-size 2 --sequence-parallel`;
const megatron = (more = "", text = MEGATRON): FrameworkFile => ({
  name: "run.sh",
  text: `${text} ${more}\n`,
});

describe("scripts as people write them", () => {
  it("are read with their variables, arrays and arithmetic", () => {
    const { plan, model, launch, takenAs, ignored } = read("megatron", [
      megatron("--use-distributed-optimizer --overlap-grad-reduce | tee log.txt"),
    ]);
    expect(planLabel(plan)).toBe("b1 n8 a0 pp1 dp8 tp2 sp2 ps1 gs1 oss8 ovnone/intra-layer");
    expect([model.hiddenSize, model.layers, launch]).toEqual([4096, 32, { nodes: 2, gpusPerNode: 8 }]);
    expect(ignored).toEqual(["--attention-dropout", "--hidden-dropout", "--save"]);
    expect(takenAs.filter(({ value }) => value !== "missing")).toEqual([]);
    expect(takenAs.map(({ option }) => option)).toEqual([
      ..."--lr --train-iters --lr-warmup-iters --lr-decay-style --min-lr --adam-beta1 --adam-beta2".split(
        " ",
      ),
      ..."--adam-eps --weight-decay --seed --clip-grad".split(" "),
    ]);
  });

  it("are read as they run without arguments", () => {
    const text = `TP=\${1:-4}\nshift\n: \${GBS:=32}\nOUT=$1\n${MEGATRON}`
      .replace("--tensor-model-parallel-size 2", "--tensor-model-parallel-size $TP --load $OUT")
      .replace("$((16 * 4))", () => "$GBS");
    const { plan } = read("megatron", [megatron("$2", text)]);
    expect(planLabel(plan)).toBe("b1 n8 a0 pp1 dp4 tp4 sp4 ps1 gs1 oss1");
    // Without a default, a parameter is asked for where a number is read.
    expect(faultsOf("megatron", megatron("", text.replace("${1:-4}", "$1")))[0]).toBe(
      "--tensor-model-parallel-size: is not a number that is possible here → " +
        "give a default, such as ${1:-2}, in the file, or write the number",
    );
  });

  it("say whose ranks were taken", () => {
    const asked = { nodes: 4, gpusPerNode: 4 };
    const said = { nodes: 2, gpusPerNode: 8 };
    const file = megatron();
    expect(importConfiguration("megatron", [file])).toMatchObject({
      launch: said,
      launchOrigin: { isAsked: false, said },
    });
    expect(importConfiguration("megatron", [file], asked)).toMatchObject({
      launch: asked,
      launchOrigin: { isAsked: true, said },
    });
    const silent = { ...file, text: file.text.replace("--nproc_per_node $GPUS --nnodes 2", "") };
    expect(importConfiguration("megatron", [silent], asked)).toMatchObject({
      launchOrigin: { isAsked: true, said: null },
    });
  });

  it("warn of what the framework itself refuses, or does not do", () => {
    const warned = (text: string, framework: "megatron" | "torchtitan" = "megatron") =>
      importConfiguration(framework, [{ name: "file", text }], { nodes: 2, gpusPerNode: 8 }).warnings.map(
        ({ field, value, message, remedy }) => `${field} ${String(value)} ${message}; ${remedy}`,
      );
    expect(warned(MEGATRON)).toEqual([]);
    expect(
      warned(MEGATRON.replace("--max-position-embeddings 4096", "--max-position-embeddings 2048")),
    ).toEqual([
      "--max-position-embeddings 2048 is less than --seq-length 4096, which Megatron-LM refuses; give 4096 or more",
    ]);
    const alone = MEGATRON.replace("--tensor-model-parallel-size 2", "");
    expect(warned(alone)).toEqual([
      "--sequence-parallel true has no effect: Megatron-LM switches it off with " +
        "--tensor-model-parallel-size 1; leave it out, or give more tensor ranks",
    ]);
    const ring = `${alone.replace("--sequence-parallel", "")} --context-parallel-size 4`;
    expect(warned(ring)).toEqual([]);
    expect(warned(ring.replace("--seq-length 4096", "--seq-length 4092"))).toEqual([
      "--seq-length 4092 is no multiple of twice --context-parallel-size, " +
        "which is 8: Megatron-LM refuses it; give a multiple of 8",
    ]);
    const titan = (length: number): string =>
      `[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = ` +
      `${length}\nlocal_batch_size = 1\n[parallelism]\ncontext_parallel_degree = 4\n`;
    expect(warned(titan(8192), "torchtitan")).toEqual([]);
    expect(warned(titan(8188), "torchtitan")).toEqual([
      "training.seq_len 8188 is no multiple of the tensor degree times twice the " +
        "context degree, which is 8: torchtitan refuses it; give a multiple of 8",
    ]);
  });

  it("say what is wrong, with a remedy: unknown, contradictory, impossible", () => {
    expect(faultsOf("megatron", megatron("--context-paralel-size 2"))).toEqual([
      "--context-paralel-size: is not known → did you mean --context-parallel-size? " +
        "else leave it out, if it changes neither time nor memory",
    ]);
    // As everywhere: what is spelt otherwise, and the beginning of a name.
    expect(faultsOf("megatron", megatron("--Num_Layers 2"))[0]).toMatch(/did you mean --num-layers\?/);
    expect(faultsOf("megatron", megatron("--rotary-b 2"))[0]).toMatch(/did you mean --rotary-base\?/);
    expect(faultsOf("megatron", megatron("--micro-batch-size 2"))).toEqual([
      "--micro-batch-size: contradicts 1, which it was given before → give it once",
    ]);
    expect(faultsOf("megatron", megatron("--num-experts 8"))[0]).toMatch(
      /^--num-experts: makes a mixture of experts/,
    );
    expect(faultsOf("megatron", megatron("--context-parallel-size 2"))[0]).toMatch(
      /together with --tensor-model-parallel-size 2 is in no plan/,
    );
    expect(faultsOf("megatron", megatron("--overlap-grad-reduce --overlap-param-gather"))[0]).toMatch(
      /needs --use-distributed-optimizer/,
    );
    expect(faultsOf("megatron", megatron("--pipeline-model-parallel-size 3"))[0]).toMatch(
      /^nodes × gpusPerNode: is no multiple of .* which is 6/,
    );
    const instances = "--use-distributed-optimizer --num-distributed-optimizer-instances 3";
    expect(faultsOf("megatron", megatron(instances))[0]).toMatch(
      /^--num-distributed-optimizer-instances: does not divide the data-parallel ranks, which are \d+ → give a divisor of/,
    );
    expect(
      faultsOf(
        "megatron",
        megatron(
          "--context-parallel-size 8 --cp-comm-type a2a --group-query-attention --num-query-groups 4",
          MEGATRON.replace("--tensor-model-parallel-size 2 --sequence-parallel", ""),
        ),
      )[0],
    ).toMatch(/^--context-parallel-size: shares 4 heads .* over 8 ranks/);
    expect(faultsOf("megatron", megatron("--lr $LR"))).toEqual([
      "--lr: is not a number that is possible here → set LR in the file, or write the number",
    ]);
    expect(faultsOf("megatron", megatron("", MEGATRON.replace("--sequence-parallel", "")))[0]).toMatch(
      /^--sequence-parallel: is missing/,
    );
    expect(faultsOf("megatron", megatron("", `if true; then\n${MEGATRON}\nfi`))[0]).toMatch(
      /write the arguments without conditions/,
    );
    expect(faultsOf("megatron", { name: "x", text: "echo nothing" })[0]).toMatch(
      /starts no training program/,
    );
    // Everything that is wrong, at once.
    expect(faultsOf("megatron", megatron("--nonsense --num-experts 8"))).toHaveLength(2);
  });
});
