// Plans that every framework's parser is given: each dimension that one of them can express, alone and
// together with others.
type Written = Readonly<Record<string, unknown>>;

const CLUSTER = { nodes: 16, gpusPerNode: 8, memoryPerGpu: "80GB" };
const JOB = {
  name: "seven",
  model: "llama-7b",
  sequenceLengthTokens: 32_768,
  globalBatchTokens: 4_194_304,
  steps: 1000,
  cluster: CLUSTER,
};
const with_ = (written: Written): Written => ({ ...JOB, ...written });
const GROUPED = with_({ model: { base: "llama-7b", kvHeads: 8 } });
const TIED = with_({
  model: { base: "llama-7b", kvHeads: 8, tiedEmbeddings: true },
  seed: 7,
  precision: "fp32",
});
const SMALL = with_({
  model: {
    hiddenSize: 2048,
    layers: 22,
    heads: 32,
    kvHeads: 4,
    ffnHiddenSize: 5632,
    vocabularySize: 32_000,
    ropeTheta: 500_000,
  },
  sequenceLengthTokens: 8192,
  globalBatchTokens: 128 * 8192,
});
const UNEVEN = with_({ model: { base: "llama-7b", layers: 30 } });
/** Its sequence is a multiple of 4 and of no more. */
const ODD_SEQUENCE = with_({ sequenceLengthTokens: 32_764, globalBatchTokens: 128 * 32_764 });
const ONE_NODE = with_({ cluster: { ...CLUSTER, nodes: 1 }, globalBatchTokens: 16 * 32_768 });

/** Jobs, and plans of them as `planLabel` writes them. */
export const CASES: readonly (readonly [job: Written, plan: string])[] = [
  // Data parallelism, and sharding of the model states.
  [JOB, "b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss1"],
  [{ ...JOB, precision: "fp32" }, "b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss1"],
  [JOB, "b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss128"],
  [JOB, "b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss8 ovnone/intra-layer"],
  [JOB, "b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs128 oss128 ovinter-layer/intra-layer"],
  [JOB, "b1 n1 a1 pp1 dp128 tp1 sp1 ps128 gs1 oss1 ovinter-layer/intra-layer"],
  [JOB, "b1 n1 a1 pp1 dp128 tp1 sp1 ps8 gs1 oss1 ovinter-layer/intra-layer"],
  [JOB, "b1 n1 a1 pp1 dp128 tp1 sp1 ps8 gs16 oss16 ovblock/block"],
  [JOB, "b1 n1 a1 pp1 dp128 tp1 sp1 ps8 gs1 oss16"],
  [
    { ...JOB, precision: "bf16-grad16" },
    "b1 n1 a0 pp1 dp128 tp1 sp1 ps8 gs1 oss16 ovinter-layer/intra-layer",
  ],
  [{ ...JOB, precision: "bf16-grad16" }, "b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs8 oss8 ovinter-layer/intra-layer"],
  // Micro-batches.
  [GROUPED, "b4 n2 a1 pp1 dp16 tp8 sp8 ps1 gs1 oss16"],
  [GROUPED, "b2 n2 a1 pp1 dp32 tp1 sp4 ps128 gs1 oss1"],
  // Tensor parallelism.
  [JOB, "b1 n2 a1 pp1 dp64 tp2 sp2 ps1 gs1 oss64"],
  [TIED, "b1 n4 a1 pp1 dp32 tp4 sp4 ps1 gs1 oss32"],
  [SMALL, "b1 n8 a0 pp1 dp16 tp8 sp8 ps16 gs1 oss1 ovinter-layer/intra-layer"],
  [ONE_NODE, "b1 n16 a0 pp1 dp1 tp8 sp8 ps1 gs1 oss1"],
  // Sequence ranks that share heads, that are a ring, and both.
  [JOB, "b1 n4 a0 pp1 dp32 tp1 sp4 ps8 gs1 oss16 ovinter-layer/intra-layer"],
  [JOB, "b1 n16 a1 pp1 dp8 tp1 sp16 ps1 gs1 oss128 cp16"],
  [JOB, "b1 n16 a1 pp1 dp8 tp1 sp16 ps16 gs1 oss8 cp4"],
  [GROUPED, "b1 n16 a1 pp1 dp8 tp1 sp16 ps1 gs128 oss128"],
  [SMALL, "b1 n8 a1 pp1 dp16 tp1 sp8 ps1 gs1 oss1 cp2"],
  [ODD_SEQUENCE, "b1 n4 a1 pp1 dp32 tp1 sp4 ps1 gs1 oss128"],
  [ODD_SEQUENCE, "b1 n2 a1 pp1 dp64 tp1 sp2 ps1 gs1 oss128"],
  [ODD_SEQUENCE, "b1 n4 a1 pp1 dp32 tp4 sp4 ps1 gs1 oss32"],
  [ONE_NODE, "b1 n16 a0 pp1 dp1 tp1 sp8 ps1 gs1 oss8"],
  // Pipelines, with chunks, and where layers do not divide.
  [JOB, "b1 n8 a0 pp8 dp16 tp1 sp1 ps1 gs1 oss16"],
  [JOB, "b1 n8 a1 pp4 dp16 tp2 sp2 ps1 gs1 oss16 v2"],
  [JOB, "b1 n8 a1 pp2 dp16 tp4 sp4 ps1 gs1 oss16 v2"],
  [JOB, "b1 n16 a0 pp4 dp8 tp4 sp4 ps1 gs1 oss8 v8 k8"],
  [JOB, "b1 n8 a0 pp2 dp16 tp1 sp4 ps1 gs1 oss64 cp4 k8"],
  [JOB, "b1 n4 a0 pp2 dp32 tp1 sp2 ps4 gs1 oss16 ovinter-layer/intra-layer"],
  [JOB, "b1 n4 a0 pp2 dp32 tp1 sp2 ps1 gs64 oss64 ovinter-layer/intra-layer v4"],
  [UNEVEN, "b1 n16 a1 pp4 dp8 tp4 sp4 ps1 gs1 oss8"],
  [UNEVEN, "b1 n8 a0 pp4 dp16 tp1 sp2 ps1 gs1 oss32 v2 k2"],
  [UNEVEN, "b1 n8 a0 pp4 dp16 tp1 sp2 ps1 gs1 oss32 v3 k3"],
  [SMALL, "b1 n16 a0 pp16 dp8 tp1 sp1 ps1 gs1 oss8"],
  // Recomputation of some layers.
  [JOB, "b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss128 k16"],
  [JOB, "b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss128 k31"],
  // All of it.
  [{ ...GROUPED, seed: 3 }, "b1 n16 a0 pp2 dp8 tp1 sp8 ps1 gs1 oss64 ovinter-layer/intra-layer cp2 v2 k4"],
  [
    { ...GROUPED, precision: "bf16-grad16" },
    "b2 n8 a0 pp4 dp8 tp4 sp4 ps1 gs8 oss8 ovinter-layer/intra-layer v4",
  ],
];
