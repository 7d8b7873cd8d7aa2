/** What the questions' documentation shows; the tests ask them. */
export const EXAMPLE_JOB = {
  name: "seven",
  model: "llama-7b",
  sequenceLengthTokens: 4096,
  globalBatchTokens: 4_194_304,
  cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" },
};
const subject = { job: EXAMPLE_JOB, profile: "a800-128" };
const PLAN = "b1 n8 a0 pp1 dp128 tp1 sp1 ps8 gs1 oss16";

export const EXAMPLES = {
  plans: { ...subject, top: 3 },
  whyNot: { ...subject, plan: "b1 n8 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss1" },
  explain: { ...subject, a: 1, b: PLAN },
  memory: { ...subject, plan: PLAN },
  sweep: { ...subject, axis: "sequence", values: [4096, 8192, 16_384] },
  largestSequence: { ...subject, unitTokens: 65_536, sequences: 1 },
  pareto: { ...subject, points: 5 },
  cheapestCluster: { ...subject, tokens: 1e12, seconds: 2_592_000, nodes: [8, 16, 32] },
  export: { ...subject, plan: PLAN, framework: "megatron" },
  import: {
    framework: "megatron",
    profile: "a800-128",
    nodes: 16,
    gpusPerNode: 8,
    files: [
      {
        name: "train.sh",
        text: "torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 1024 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 1 --sequence-parallel --use-distributed-optimizer --bf16 --swiglu --normalization RMSNorm --position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear --vocab-size 32000 --train-iters 100 --lr 3e-4\n",
      },
    ],
  },
} as const;
