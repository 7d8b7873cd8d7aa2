import type { FrameworkFile } from "../src/index.ts";

/*
 * Small configurations, each of 16 GPUs, into which tests write what they ask about.
 */

/** torchtitan's, of its llama3. */
export const toml = (text: string): FrameworkFile => ({
  name: "t.toml",
  text: `# torchrun --nnodes 2 --nproc-per-node 8\n[model]\nname = "llama3"\nflavor = "8B"\n${text}`,
});

/** A script of either program, and DeepSpeed's JSON beside it. */
export const script = (more: string, json: object = {}, base = SIZES): [FrameworkFile, FrameworkFile] => [
  {
    name: "run.sh",
    text: `torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py ${base} ${/--deepspeed /.test(more) ? more : `${ROTARY} ${more}`}\n`,
  },
  { name: "ds.json", text: JSON.stringify({ bf16: { enabled: true }, ...json }) },
];
export const SIZES =
  "--num-layers 4 --hidden-size 1024 --ffn-hidden-size 2816 --num-attention-heads 8 --swiglu " +
  "--disable-bias-linear --bf16 " +
  "--vocab-size 1024 --seq-length 4096 --micro-batch-size 1 --global-batch-size 16 " +
  "--attention-dropout 0 --hidden-dropout 0";
const ROTARY = "--normalization RMSNorm --position-embedding-type rope";
export const DEEPSPEED =
  "--normalization rmsnorm --use-rotary-position-embeddings --deepspeed --deepspeed_config ds.json";

/** InternEvo's. */
export const python = (
  model: string,
  { type = "LLAMA2", parallel = "", data = "", more = "" } = {},
): FrameworkFile => ({
  name: "c.py",
  text: `# torchrun --nnodes 2 --nproc-per-node 8
model_type = "${type}"
model = dict(num_layers=4, hidden_size=1024, num_attention_heads=8, vocab_size=1024, dtype="torch.bfloat16", ${model})
data = dict(seq_len=4096, micro_bsz=1, micro_num=4, ${data})
parallel = dict(zero1=dict(size=-1), ${parallel})
${more}
`,
});
export const MLP = "mlp_ratio=8 / 3, multiple_of=256, no_bias=True";
