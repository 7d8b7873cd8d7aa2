import { refusalsOf } from "./command-line.ts";
import { judgesOf, KERNELS, refused, taken, type Judges } from "./judgements.ts";

/*
 * Options of Megatron-DeepSpeed's own parser beyond those that plan, model and training are read from. What only sets up
 * something that a switch turns on is without effect where the switch is refused: experts, distillation, retrieval, 8 bits.
 */

/** Those that change neither time nor memory, or that {@link DEEPSPEED_JUDGES} judges. */
export const DEEPSPEED_OPTIONS = {
  flag: `--no-query-key-layer-scaling --force-ds-sequence-parallel --accumulate-allreduce-grads-in-fp32
    --universal-checkpoint --partition-activations --contigious-checkpointing --synchronize-each-layer
    --adlr-autoresume --bert-no-binary-head --biencoder-shared-query-context-model --cpu_torch_adam
    --create-moe-param-group --data-parallel-random-init --dino-norm-last-layer --disable-mem-efficient-ln
    --disable-moe-token-dropping --disable-moe-top2-2nd-expert-sampling --distribute-checkpointed-activations
    --distribute-saved-activations --ds-sequence-parallel-fpdt-offloading --ds_fused_adam
    --embedding-weights-in-fp32 --enable-expert-tensor-parallelism --enable-zbh1-exact-semantics
    --exit-on-missing-checkpoint --fp16-lm-cross-entropy --fp32-residual-connection --init-method-xavier-uniform
    --log-optimizer-states-to-tensorboard --memory-centric-tiled-linear --mmap-warmup
    --no-barrier-with-level-1-timing --no-contiguous-buffers-in-local-ddp --no-data-sharding --no-fp8-wgrad
    --no-initialization --no-load-lr-state --no-position-embedding --no-scatter-gather-tensors-in-pipeline
    --output-bert-embeddings --overlap-p2p-communication --profile-backward --repeated-dataloader
    --reset-iteration --retriever-score-scaling --retro-return-doc-ids --return-data-index --scattered-embeddings
    --split-transformers --trust-remote-code --use-cpu-initialization --use-one-sent-docs --use-pin-memory
    --use-ring-exchange-p2p --use-tutel --vision-pretraining --zero-contigious-gradients --zero-reduce-scatter`,
  one: `--data-impl --local_rank --DDP-impl --aml-data-download-path --bert-embedder-type --bert-load
    --biencoder-projection-dim --block-data-path --classes-fraction --data-per-class-fraction
    --dino-bottleneck-size --dino-freeze-last-layer --dino-head-hidden-size --dino-local-crops-number
    --dino-local-img-size --dino-teacher-temp --dino-warmup-teacher-temp --dino-warmup-teacher-temp-epochs
    --ds-sequence-parallel-fpdt-chunk-size --embedding-path --empty-unused-memory-level --evidence-data-path
    --expert-interval --fp8-amax-compute-algo --fp8-amax-history-len --fp8-interval --fp8-margin --head-lr-mult
    --hidden-size-teacher --hysteresis --ict-head-size --ict-load --img-h --img-w --indexer-batch-size
    --indexer-log-interval --inference-batch-times-seqlen-threshold --initial-loss-scale --iter-per-epoch
    --kd-alpha-ce --kd-beta-ce --kd-temp --kill-switch-file --lazy-mpu-init --load-tag --load-teacher --local-rank
    --loss-scale --loss-scale-window --mask-factor --mask-prob --mask-type --max-tokens-to-oom --min-loss-scale
    --mlp-type --moe-eval-capacity-factor --moe-expert-parallel-size --moe-loss-coeff --moe-min-capacity
    --moe-train-capacity-factor --num-attention-heads-teacher --num-channels --num-classes --num-layers-teacher
    --onnx-safe --patch-dim --profile_steps --query-in-block-prob --remote-device --retriever-seq-length
    --retro-cyclic-train-iters --retro-encoder-attention-dropout --retro-encoder-hidden-dropout
    --retro-encoder-layers --retro-num-neighbors --retro-num-retrieved-chunks --retro-workdir --sample-rate
    --sgd-momentum --short-seq-prob --swin-backbone-type --tile-factor --timing-log-option --titles-data-path
    --topk --train-data-exact-num-epochs --train-desc-path --train-doc-idx-path --train-idx-path
    --train-sample-idx-path --train-shuffle-idx-path --transformer-impl --use-dataset-only --vision-backbone-type
    --vision-pretraining-type --vocab-extra-ids --zero-allgather-bucket-size --zero-reduce-bucket-size`,
  some: "--num-experts-teacher --retriever-report-topk-accuracies",
} as const;

const HOST = "moves model states to the host, which is not planned for";

/** Those of {@link DEEPSPEED_OPTIONS} that have an effect, with some values or with all. */
export const DEEPSPEED_JUDGES: Judges = {
  ...judgesOf(
    "--partition-activations --contigious-checkpointing --synchronize-each-layer",
    taken("not given: what is kept is not moved"),
  ),
  ...judgesOf(
    "--distribute-saved-activations --distribute-checkpointed-activations",
    taken("not given: what is kept is split by sequence already"),
  ),
  ...judgesOf("--disable-mem-efficient-ln --ds_fused_adam --fp16-lm-cross-entropy", taken(KERNELS)),
  "--transformer-impl": taken(KERNELS, "local"),
  "--fp32-residual-connection": taken("residuals in the precision of the model"),
  "--embedding-weights-in-fp32": taken("not given: the embedding in the precision of the model"),
  "--init-method-xavier-uniform": taken("as the other parameters begin, by --init-method-std"),
  "--data-parallel-random-init": taken("replicas begin alike"),
  "--split-transformers": taken("not given: a layer is recomputed as a whole"),
  "--log-optimizer-states-to-tensorboard": taken("not computed"),
  "--profile-backward": taken("not given: what measures a step is not predicted"),
  "--empty-unused-memory-level": taken("0: memory that is free is kept", 0),
  "--moe-expert-parallel-size": refused("shares out experts; dense decoders are planned for", "give 1", 1),
  "--remote-device": refused(HOST, "give none", "none"),
};

/** Those that make of a step what is not planned for. */
export const DEEPSPEED_REFUSED: Readonly<Record<string, string>> = {
  "--num-layers-per-virtual-pipeline-stage": "is not carried out by DeepSpeed's pipeline",
  "--ds-sequence-parallel-fpdt":
    "computes a sequence in chunks from the host's memory, which is not planned for",
  "--enable-zbh1-pipeline": "is a schedule that is not planned for",
  "--use-distributed-optimizer": "is another sharding than ZeRO",
  "--cpu-optimizer": "moves optimizer states to the host, which is not planned for",
  "--checkpoint-in-cpu": "moves activations to the host, which is not planned for",
  ...refusalsOf([
    [
      "puts norms behind the layers' parts, which is not planned for",
      "--apply-residual-connection-post-layernorm",
    ],
    ["is another activation than SwiGLU, which is planned for", "--openai-gelu --squared-relu"],
    ["makes a mixture of experts; dense decoders are planned for", "--num-experts-switch"],
    [
      "is of models with encoder and decoder; decoders are planned for",
      `--encoder-num-layers --decoder-num-layers --encoder-seq-length --decoder-seq-length
        --pipeline-model-parallel-split-rank`,
    ],
    ["trains nothing", "--skip-train --inference --ds-inference"],
    ["trains on another model's answers, which is not planned for", "--kd --mos"],
    ["drops tokens of layers as training goes on, which is not planned for", "--random-ltd"],
    ["changes sequences as training goes on", "--data-efficiency-curriculum-learning"],
    ["adds a retriever to the model, which is not planned for", "--retro-add-retriever"],
    ["computes in 8 bits, for which no profile is kept", "--fp8-e4m3 --fp8-hybrid"],
    ["deals layers unevenly over stages; they are planned evenly", "--standalone-embedding-stage"],
    ["is no longer taken by this program: it has --lr-warmup-fraction", "--warmup"],
  ]),
};
