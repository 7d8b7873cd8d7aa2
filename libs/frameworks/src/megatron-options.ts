import { refusalsOf } from "./command-line.ts";
import { NO_BORDERS, UNTIL_THE_END } from "./decoder-arguments.ts";
import { BLOCKWISE, BUCKETS, judgesOf, KERNELS, refused, taken, type Judges } from "./judgements.ts";

/*
 * Options of Megatron-LM's own parser beyond those that plan, model and training are read from. What only sets
 * up something that a switch turns on is without effect where the switch is refused: experts, other optimizers
 * and precisions, inference.
 */

/** How the executor does what Megatron-LM has options for. */
export const OWN_PIPELINE = "the executor's own pipeline, whose times are predicted";
const NCCL = "NCCL's own settings, with which profiles are measured";

/** Those that change neither time nor memory, or that {@link MORE_JUDGES} judges. */
export const MORE_OPTIONS = {
  flag: `--no-initialization --use-cpu-initialization --no-tp-comm-bulk-wgrad --disable-tp-comm-bulk-wgrad
    --no-tp-comm-bulk-dgrad --disable-tp-comm-bulk-dgrad --no-tp-comm-overlap-ag --disable-tp-comm-overlap-ag
    --no-tp-comm-overlap-rs --disable-tp-comm-overlap-rs --tp-comm-overlap-rs-dgrad --no-tp-comm-split-ag
    --disable-tp-comm-split-ag --no-tp-comm-split-rs --disable-tp-comm-split-rs --overlap-moe-expert-parallel-comm
    --delay-wgrad-compute --overlap-dispatch-backward-with-experts-wgrad --ep-overlap-early-attn-memory-release
    --use-ring-exchange-p2p --defer-embedding-wgrad-compute --overlap-p2p-communication-warmup-flush --mtp-standalone
    --cpu-offloading-retain-pinned-cpu-buffers --mtp-use-repeated-layer --mtp-detach-heads --mtp-hsm
    --fp32-residual-connection --rotary-interleaved --qk-l2-norm --qk-clip --dsa-indexer-use-sparse-loss
    --dsa-indexer-rope-interleaved --no-dsa-indexer-rotate-activation --disable-dsa-indexer-rotate-activation
    --no-dsa-indexer-scoring-relu --disable-dsa-indexer-scoring-relu --dsa-indexer-k-norm-fp32
    --init-model-with-meta-device --use-mup --apply-query-key-layer-scaling --disable-bf16-reduced-precision-matmul
    --use-fused-weighted-squared-relu --fused-residual-rmsnorm --use-transformer-engine-op-fuser
    --distribute-saved-activations --no-fp8-wgrad --disable-fp8-wgrad --fp8-output-proj --first-last-layers-bf16
    --use-kitchen-attention --high-priority-a2a-comm-stream --moe-shared-expert-gate --moe-shared-expert-overlap
    --use-grouped-gemm-for-shared-expert --moe-enable-routing-replay --moe-router-padding-for-quantization
    --moe-router-padding-for-fp8 --moe-router-pre-softmax --moe-router-enable-expert-bias
    --moe-router-force-load-balancing --use-grouped-gemm-for-dense-mlp --moe-grouped-gemm --moe-use-grouped-tensor
    --moe-single-grouped-weight --moe-single-grouped-bias --moe-enable-deepep --moe-permute-fusion-into-hybridep
    --moe-hybridep-pad-uneven-dispatch-inputs --moe-per-layer-logging --moe-pad-expert-input-to-capacity
    --moe-pad-experts-for-cuda-graph-inference --moe-layer-recompute --moe-permute-fusion --moe-router-fusion
    --moe-apply-probs-on-input --moe-ncclep-zero-copy --enable-cuda-graph --external-cuda-graph
    --no-clone-scatter-output-in-embedding --disable-clone-scatter-output-in-embedding --flash-decode
    --batch-invariant-mode --use-te-activation-func --nccl-all-reduce-for-prefill --inference-fuse-tp-communication
    --inference-disable-triton-nvls-kernels --inference-moe-disable-fused-quant-kernels --disable-mamba-mem-eff-path
    --gdp-cutedsl-kernel --delay-offload-until-cuda-graph --moe-paged-stash --log-straggler
    --disable-straggler-on-startup --disable-log-loss-scale-to-tensorboard --log-device-memory-used
    --log-max-attention-logit --no-barrier-with-level-1-timing --log-energy --moe-routing-trace-capture-logits
    --moe-routing-trace-capture-hidden-states --moe-routing-trace-dump-weights --pytorch-profiler-collect-shapes
    --pytorch-profiler-collect-callstack --pytorch-profiler-collect-chakra --record-memory-history --record-shapes
    --nvtx-ranges --decrease-batch-size-if-needed --exit-signal-handler-for-dataloader
    --exit-signal-handler-for-training --no-manual-gc-eval --disable-manual-gc-eval --check-for-spiky-loss
    --te-rng-tracker --inference-rng-tracker --data-parallel-random-init --override-opt-param-scheduler
    --use-checkpoint-opt-param-scheduler --load-main-params-from-ckpt --no-use-tokenizer-model-from-checkpoint-args
    --disable-use-tokenizer-model-from-checkpoint-args --exit-on-missing-checkpoint
    --ckpt-convert-update-legacy-dist-opt-format --no-ckpt-fully-parallel-save --use-persistent-ckpt-worker
    --async-ckpt-use-cpu-shm --ckpt-fully-parallel-load --ckpt-fully-parallel-load-per-rank-objects
    --ckpt-assume-constant-structure --ckpt-pg-tensors-cache-create --no-ckpt-load-validate-sharding-integrity
    --disable-ckpt-load-validate-sharding-integrity --no-strict-fsdp-dtensor-load --disable-strict-fsdp-dtensor-load
    --dist-ckpt-save-pre-mcore-014 --dist-ckpt-optim-fully-reshardable --distrib-optim-fully-reshardable-mem-efficient
    --no-save-tokenizer-assets --disable-save-tokenizer-assets --replication --verify-integrity --no-align-grad-reduce
    --disable-align-grad-reduce --lazy-mpu-init --disable-gloo-process-groups --use-sharp
    --no-flight-recorder-dump-on-timeout --disable-flight-recorder-dump-on-timeout
    --flight-recorder-include-stack-trace --no-flight-recorder-include-only-active
    --disable-flight-recorder-include-only-active --no-flight-recorder-extra-dump-on-exec
    --disable-flight-recorder-extra-dump-on-exec --disable-jit-fuser --test-mode --full-validation
    --multiple-validation-sets --tokenizer-sentencepiece-legacy --no-tokenizer-sentencepiece-ignore-extra-whitespaces
    --disable-tokenizer-sentencepiece-ignore-extra-whitespaces --tokenizer-hf-no-use-fast
    --tokenizer-hf-no-include-special-tokens --trust-remote-code --use-gigatoken --output-bert-embeddings
    --use-legacy-static-engine --inference-dynamic-batching --inference-dynamic-batching-track-paused-request-events
    --inference-dynamic-batching-track-generated-token-events --decode-only-cuda-graphs
    --inference-cuda-graph-all-prefills --enable-chunked-prefill --inference-dynamic-batching-prefix-caching
    --no-inference-dynamic-batching-prefix-caching --use-same-sampling-seed-across-dp-ranks
    --inference-text-gen-server-logging --no-inference-text-gen-server-logging --inference-wandb-logging
    --no-inference-wandb-logging --inference-use-synchronous-zmq-collectives
    --no-inference-use-synchronous-zmq-collectives --inference-disable-ep-consensus
    --no-inference-disable-ep-consensus --yarn-correction-range-round-to-int --no-yarn-correction-range-round-to-int
    --no-position-embedding --bert-no-binary-head --run-workload-inspector-server --inprocess-restart
    --inprocess-empty-cuda-cache --no-one-logger --one-logger-async --enable-ft-package --calc-ft-timeouts
    --otel-enabled --apply-wd-to-qk-layernorm --muon-no-split-qkv --muon-nesterov --muon-use-syrk
    --rl-durable-rollout-bank --grpo-filter-groups-with-same-reward --rl-offload-optimizer-during-inference
    --rl-persist-cuda-graphs --no-rl-persist-cuda-graphs --rl-partial-rollouts --no-rl-partial-rollouts
    --rl-inference-logprobs-is-correction --no-rl-inference-logprobs-is-correction --rl-use-sequence-packing
    --no-rl-use-sequence-packing --rl-training-cuda-graphs --no-rl-training-cuda-graphs
    --rl-offload-inference-model-weights-when-idle --no-rl-offload-inference-model-weights-when-idle
    --rl-verify-model-weights-swap --no-rl-verify-model-weights-swap --rl-skip-bos-token --no-rl-skip-bos-token
    --rl-profile --optimizer-cuda-graph --use-torch-optimizer-for-cpu-offload --overlap-cpu-optimizer-d2h-h2d
    --no-pin-cpu-grads --no-pin-cpu-params --init-method-xavier-uniform --ckpt-drop-redundant-extra-state
    --fp16-lm-cross-entropy --reuse-grad-buf-for-mxfp8-param-ag --ddp-reduce-scatter-with-fp32-accumulation
    --gtp-remat-reduce-scatter-with-fp32-accumulation --overlap-param-gather-with-optimizer-step
    --no-use-layer-wise-param-layout --use-nccl-ub --disable-symmetric-registration --gtp-remat-nccl-ub
    --gtp-expert-remat-nccl-ub --fsdp-manual-registration --create-all-gather-group --no-gradient-reduce-div-fusion
    --keep-fp8-transpose-cache --torch-fsdp2-no-reshard-after-forward --dataloader-fast-cache-load
    --dataloader-defer-npy-index-mmap --dataloader-inter-document-masking
    --allow-ambiguous-pad-tokens --fim-data --adlr-autoresume --biencoder-shared-query-context-model
    --use-one-sent-docs --retriever-score-scaling --no-data-sharding --vision-pretraining --dino-norm-last-layer
    --cache-mla-latents --mla-down-proj-fusion --enable-experimental --megatron-fsdp-enable-fine-grained-param-gather
    --megatron-fsdp-max-pool-double-buffer --fsdp-db-use-persist-buf-on-alloc-fail --enable-msc --disable-msc --sft
    --logits-load-ignore-errors --legacy-tokenizer`,
  one: `--pipeline-model-parallel-comm-backend --max-seqlen-per-dp-cp-rank --expert-tensor-parallel-size
    --expert-tensor-parallel-num-weight-shards --tp-comm-bootstrap-backend --wgrad-deferral-limit
    --microbatch-group-size-per-virtual-pipeline-stage --cpu-offloading-num-layers --mtp-num-layers
    --mtp-loss-scaling-factor --mtp-hybrid-override-pattern --flash-attention-version --softmax-type
    --glu-linear-offset --activation-func-clamp-value --qk-clip-alpha --qk-clip-threshold --dsa-indexer-n-heads
    --dsa-indexer-head-dim --dsa-indexer-topk --dsa-indexer-topk-freq --dsa-indexer-skip-topk-offset
    --dsa-indexer-loss-coeff --dsa-kernel-backend --dsa-indexer-k-norm-epsilon --linear-conv-kernel-dim
    --linear-key-head-dim --linear-value-head-dim --linear-num-key-heads --linear-num-value-heads
    --embedding-init-method-std --mup-width-mult --mup-base-hidden-size --mup-embedding-mult --mup-output-mult
    --mup-base-head-dim --mup-attn-scale-power --fp8-recipe --fp8-quantizer-factory --fp8-margin --fp8-interval
    --fp8-amax-history-len --fp8-amax-compute-algo --num-layers-at-start-in-bf16 --num-layers-at-end-in-bf16
    --kitchen-attention-backend --fp4-recipe --fp4-quantizer-factory --moe-shared-expert-intermediate-size
    --moe-shared-expert-glu-interleave-size --moe-ffn-hidden-size --moe-router-topk --moe-router-num-groups
    --moe-router-group-topk --moe-router-topk-scaling-factor --moe-router-score-function --moe-router-dtype
    --moe-router-bias-update-rate --moe-router-quantile-balancing-ema --moe-router-force-biased --moe-z-loss-coeff
    --moe-input-jitter-eps --moe-token-dispatcher-type --moe-flex-dispatcher-backend --moe-expert-capacity-factor
    --moe-token-drop-policy --moe-latent-size --moe-flex-dispatcher-num-sms --moe-deepep-num-sms
    --moe-hybridep-num-sms --moe-hybridep-num-blocks-permute --moe-hybridep-num-blocks-unpermute
    --moe-hybridep-num-sms-preprocessing --moe-dispatch-fwd-dtype --moe-combine-bwd-dtype
    --moe-mlp-glu-interleave-size --moe-expert-rank-capacity-factor --cuda-graph-warmup-steps --cuda-graph-impl
    --inference-cuda-graph-scope --mhc-num-residual-streams --mhc-sinkhorn-iterations --mhc-init-gating-factor
    --mhc-recompute-layer-num --config-logger-dir --batch-invariant-backend --symmetric-ar-type
    --inference-grouped-gemm-backend --inference-moe-token-dispatcher-type --mamba-state-dim --mamba-head-dim
    --mamba-num-groups --mamba-num-heads --gdp-num-householder --gdp-num-chunk-states-to-recompute
    --mlp-chunks-for-prefill --mlp-chunks-for-training --min-offloaded-tensor-size
    --delta-offload-bytes-across-pp-ranks --activation-offload-fraction --moe-paged-stash-page-size
    --moe-paged-stash-buffer-size-factor-cuda --moe-paged-stash-buffer-size-factor-cpu
    --fine-grained-offloading-max-inflight-offloads --straggler-ctrlr-port --straggler-minmax-count
    --timing-log-option --log-memory-interval --wandb-entity --logging-level --moe-routing-trace-path
    --moe-routing-trace-max-training-iters --memory-snapshot-path --check-weight-hash-across-dp-replicas-interval
    --gpu-sniff-test-interval --train-sync-interval --exit-signal --error-injection-rate --error-injection-type
    --rerun-mode --lr-warmup-init --persistent-save-interval --save-params-interval --save-activations-interval
    --save-tokens-per-expert-interval --save-wgrads-interval --save-dgrads-interval --save-retain-interval
    --non-persistent-save-interval --non-persistent-ckpt-type --non-persistent-global-ckpt-dir
    --non-persistent-local-ckpt-dir --non-persistent-local-ckpt-algo --pretrained-checkpoint --ckpt-step
    --ckpt-convert-save --async-strategy --async-ckpt-cpu-priority --async-ckpt-io-priority
    --ckpt-fully-parallel-load-exchange-algo --ckpt-fully-parallel-save-process-group
    --ckpt-fully-parallel-load-process-group --ckpt-pg-tensors-cache-path --dist-ckpt-strictness --replication-jump
    --replication-factor --local-rank --nccl-communicator-config-path --sharp-enabled-group
    --distributed-timeout-seconds-after-init --flight-recorder-dump-path --flight-recorder-trace-buffer-size
    --start-eval-at-iter --eval-global-batch-size --eval-micro-batch-size --vocab-extra-ids --tokenizer-metadata
    --tiktoken-num-special-tokens --null-tokenizer-eod-id --null-tokenizer-pad-id --chat-template
    --fault-injector-ranks --fault-injector-num-ranks --fault-injector-fault-types
    --fault-injector-fault-probabilities --fault-injector-fault-delay --fault-injector-delay-start-iteration
    --fault-injector-mtti-seconds --fault-injector-offset-seconds --fault-injector-seed
    --inference-batch-times-seqlen-threshold --max-tokens-to-oom --bert-embedder-type --inference-max-requests
    --inference-max-seq-length --inference-dynamic-batching-buffer-size-gb
    --inference-dynamic-batching-paused-buffer-size-gb --inference-dynamic-batching-mamba-memory-ratio
    --inference-dynamic-batching-block-size --inference-dynamic-batching-max-requests
    --inference-dynamic-batching-max-tokens --inference-dynamic-batching-num-cuda-graphs
    --inference-cuda-graph-max-tokens --inference-dynamic-batching-unified-memory-level --num-speculative-tokens
    --inference-dynamic-batching-prefix-caching-eviction-policy
    --inference-dynamic-batching-prefix-caching-coordinator-policy
    --inference-dynamic-batching-prefix-caching-routing-alpha --inference-dynamic-batching-prefix-caching-mamba-gb
    --inference-dynamic-batching-cuda-graph-mixed-prefill-count
    --inference-dynamic-batching-cuda-graph-sizing-distribution --inference-dynamic-batching-sampling-backend
    --inference-dynamic-batching-async-sched-mode --inference-dynamic-batching-logprobs-mode
    --inference-logging-step-interval --inference-coordinator-port --mamba-inference-conv-states-dtype
    --mamba-inference-ssm-states-dtype --inference-shards --yarn-original-max-position-embeddings --yarn-beta-fast
    --yarn-beta-slow --relative-attention-num-buckets --relative-attention-max-distance --onnx-safe
    --inprocess-max-iterations --inprocess-monitor-thread-interval --inprocess-monitor-process-interval
    --inprocess-progress-watchdog-interval --inprocess-heartbeat-interval --inprocess-soft-timeout
    --inprocess-hard-timeout --inprocess-heartbeat-timeout --inprocess-barrier-timeout --inprocess-completion-timeout
    --inprocess-last-call-wait --inprocess-termination-grace-time --inprocess-granularity
    --inprocess-active-world-size --one-logger-project --one-logger-run-name --app-tag-run-name --app-tag-run-version
    --ft-num-warmup-iters --otel-service-name --otel-span-groups --sgd-momentum --muon-momentum --muon-scale-mode
    --muon-fp32-matmul-prec --muon-coefficient-type --muon-num-ns-steps --muon-tp-mode --muon-extra-scale-factor
    --muon-scalar-optimizer --lion-beta1 --lion-beta2 --no-weight-decay-cond-type --rl-prompts-per-eval
    --grpo-prompts-per-step --grpo-group-size --rl-generation-lag --rl-max-inflight-requests
    --rl-submission-granularity --rl-consumption-granularity --rl-rollout-bank-dir --rl-rollout-bank-max-bytes
    --grpo-iterations --grpo-clamp-eps-lower --grpo-clamp-eps-upper --grpo-kl-beta --grpo-entropy-term-weight
    --langrl-env-config --rl-default-temperature --rl-default-top-p --rl-default-top-k --rl-kv-cache-management-mode
    --rl-importance-sampling-truncation-coef --rl-sequence-packing-max-sequences-per-bin --rl-sequence-packing-algo
    --rl-inference-tensor-model-parallel-size --rl-inference-pipeline-model-parallel-size
    --rl-inference-expert-model-parallel-size --rl-inference-expert-tensor-model-parallel-size
    --rl-inference-model-unified-memory-level --refit-method --rl-profile-dir --result-rejected-tracker-filename
    --tp-comm-overlap-cfg --rope-type --optimizer-offload-fraction --dump-param-to-param-group-map
    --override-ckpt-iteration --dist-ckpt-format --dist-ckpt-workers --loss-scale --initial-loss-scale
    --min-loss-scale --loss-scale-window --hysteresis --output-logit-dtype --mamba-training-ssm-states-dtype
    --phase-transition-iterations --data-args-path --per-split-data-args-path --per-dataset-sequences-path
    --sample-rate --mask-prob --short-seq-prob --num-dataset-builder-threads --object-storage-cache-path
    --mid-level-dataset-surplus --fim-rate --fim-spm-rate --fim-split-sample --fim-fragment-rate --fim-no-prefix
    --fim-prefix-token --fim-middle-token --fim-suffix-token --fim-pad-token --fim-eod-token --ict-head-size
    --biencoder-projection-dim --ict-load --bert-load --titles-data-path --query-in-block-prob --evidence-data-path
    --block-data-path --embedding-path --indexer-batch-size --indexer-log-interval --num-classes --img-h --img-w
    --num-channels --patch-dim --classes-fraction --data-per-class-fraction --head-lr-mult --vision-pretraining-type
    --vision-backbone-type --swin-backbone-type --mask-type --mask-factor --iter-per-epoch --dino-local-img-size
    --dino-local-crops-number --dino-head-hidden-size --dino-bottleneck-size --dino-freeze-last-layer
    --dino-warmup-teacher-temp --dino-teacher-temp --dino-warmup-teacher-temp-epochs --moe-layer-freq
    --moe-upcycling-granularity --q-lora-rank --kv-lora-rank --qk-head-dim --qk-pos-emb-head-dim --v-head-dim
    --rotary-scaling-factor --mscale --mscale-all-dim --linear-attention-freq --main-grads-dtype --main-params-dtype
    --exp-avg-dtype --exp-avg-sq-dtype --megatron-fsdp-main-params-dtype --megatron-fsdp-main-grads-dtype
    --megatron-fsdp-grad-comm-dtype --sft-tokenizer-prompt-format --logits-save-top-k --logits-save-top-p
    --logits-save-top-p-min-k --logits-save-dtype --logits-load-decode-threads --logits-load-prefetch-factor
    --logits-load-msc-prefetch-depth --logits-load-kd-loss-alpha`,
  some: `--gtp-remat-opt-in-modules --mrope-section --offload-modules --iterations-to-skip --high-priority-stream-groups
    --validation-set-names --tokenizer-special-tokens --cuda-graph-scope --cuda-graph-modules --rl-inference-parsers
    --ddp-param-name-patterns-for-fp32-local-accumulation --retriever-report-topk-accuracies
    --moe-router-load-balancing-type --moe-aux-loss-coeff --spec`,
} as const;

/** Those of {@link MORE_OPTIONS} that have an effect, with some values or with all. */
export const MORE_JUDGES: Judges = {
  ...judgesOf(
    `--apply-query-key-layer-scaling --disable-bf16-reduced-precision-matmul --fused-residual-rmsnorm
      --use-transformer-engine-op-fuser --use-grouped-gemm-for-dense-mlp --batch-invariant-mode
      --use-te-activation-func --disable-jit-fuser --check-for-spiky-loss --no-gradient-reduce-div-fusion
      --fp16-lm-cross-entropy --ddp-reduce-scatter-with-fp32-accumulation --enable-cuda-graph
      --external-cuda-graph --optimizer-cuda-graph`,
    taken(KERNELS),
  ),
  "--cuda-graph-impl": taken(KERNELS, "none"),
  "--use-kitchen-attention": taken(BLOCKWISE),
  ...judgesOf(
    `--megatron-fsdp-enable-fine-grained-param-gather --megatron-fsdp-max-pool-double-buffer
      --fsdp-db-use-persist-buf-on-alloc-fail`,
    taken(BUCKETS),
  ),
  ...judgesOf(
    `--use-ring-exchange-p2p --overlap-p2p-communication-warmup-flush
      --microbatch-group-size-per-virtual-pipeline-stage --no-align-grad-reduce --disable-align-grad-reduce
      --overlap-param-gather-with-optimizer-step`,
    taken(OWN_PIPELINE),
  ),
  "--defer-embedding-wgrad-compute": taken(
    "the embedding's gradient is computed with the others of its micro-batch",
  ),
  "--delay-wgrad-compute": taken("gradients of weights are computed with those of activations"),
  ...judgesOf(
    `--nccl-communicator-config-path --use-sharp --use-nccl-ub --high-priority-stream-groups
      --create-all-gather-group`,
    taken(NCCL),
  ),
  "--pipeline-model-parallel-comm-backend": taken(NCCL, "nccl"),
  "--softmax-type": taken("vanilla: a softmax over the keys alone", "vanilla"),
  "--fp32-residual-connection": taken("residuals in the precision of the model"),
  ...judgesOf(`--glu-linear-offset --lr-warmup-init`, taken("0", 0)),
  "--phase-transition-iterations": taken(UNTIL_THE_END),
  "--fim-data": taken("data as it is: nothing is filled in the middle"),
  "--rotary-interleaved": taken("halves of a head turn together"),
  "--qk-l2-norm": taken("queries and keys without this norm"),
  "--qk-clip": taken("weights are not clipped"),
  ...judgesOf(
    `--embedding-init-method-std --init-method-xavier-uniform`,
    taken("as the other parameters begin, by --init-method-std"),
  ),
  "--data-parallel-random-init": taken("replicas begin alike"),
  "--use-mup": taken("not scaled by the width"),
  ...judgesOf(
    `--mup-embedding-mult --mup-output-mult --mup-attn-scale-power --mlp-chunks-for-training`,
    taken("1", 1),
  ),
  "--distribute-saved-activations": taken("not given: what is kept is split by sequence already"),
  ...judgesOf(
    `--no-clone-scatter-output-in-embedding --disable-clone-scatter-output-in-embedding`,
    taken("the executor's own memory"),
  ),
  ...judgesOf(
    `--log-max-attention-logit --log-straggler --check-weight-hash-across-dp-replicas-interval`,
    taken("not computed"),
  ),
  "--iterations-to-skip": taken("none: every step is trained"),
  ...judgesOf(`--dataloader-inter-document-masking --sft`, taken(NO_BORDERS)),
  ...judgesOf(`--apply-wd-to-qk-layernorm --no-weight-decay-cond-type`, taken("norms have no weight decay")),
  "--ddp-param-name-patterns-for-fp32-local-accumulation": taken(
    "gradients of all parameters in one precision",
  ),
  ...judgesOf(
    `--megatron-fsdp-main-grads-dtype --megatron-fsdp-grad-comm-dtype`,
    taken("the precision of the job's policy", "auto"),
  ),
  "--output-logit-dtype": taken("the precision of the executor's own loss"),
  "--mtp-num-layers": refused("predicts more than the next token, which is not planned for", "give 0", 0),
  "--cpu-offloading-num-layers": refused(
    "moves activations to the host, which is not planned for",
    "give 0",
    0,
  ),
  "--rope-type": refused("scales positions by options that are not read", "give rope", "rope"),
  "--spec": refused("builds the model by a module that is not read", "leave it out", "local"),
  "--megatron-fsdp-main-params-dtype": refused(
    "keeps parameters in another precision than is planned for",
    "give fp32",
    "fp32",
  ),
};

/** Those that make of a step what is not planned for. */
export const MORE_REFUSED: Readonly<Record<string, string>> = refusalsOf([
  [
    "deals layers unevenly over stages; they are planned evenly",
    "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
  ],
  [
    "splits weights over more ranks than the tensor ranks, which is not planned for",
    "--tensor-parallel-num-weight-shards",
  ],
  [
    "deals samples of different lengths over context ranks, which is not planned for",
    "--hybrid-context-parallel",
  ],
  ["moves activations to the host, which is not planned for", "--fine-grained-activation-offloading"],
  [
    "is another attention; multi-head and grouped-query attention are planned for",
    "--attention-output-gate --experimental-attention-variant",
  ],
  [
    "puts norms behind the layers' parts, which is not planned for",
    "--apply-residual-connection-post-layernorm",
  ],
  ["makes several residual streams, which is not planned for", "--enable-mhc-connections"],
  ["computes in 4 bits, for which no profile is kept", "--fp4-format --fp4-param-gather"],
  [
    "computes parts of the model in fewer bits, for which no profile is kept",
    "--te-precision-config-file --kitchen-config-file --kitchen-recipe-number",
  ],
  [
    "makes a hybrid model; decoders of attention and MLP are planned for",
    "--is-hybrid-model --hybrid-override-pattern",
  ],
  [
    "gives layers sizes of their own; layers of one size are planned for",
    "--heterogeneous-layers-config-path --heterogeneous-layers-config-encoded-json",
  ],
  ["leaves some layers without positions, which is not planned for", "--no-rope-freq"],
  ["is another activation than SwiGLU, which is planned for", "--openai-gelu --squared-relu --quick-geglu"],
  [
    "is of models with encoder and decoder; decoders are planned for",
    `--encoder-num-layers --decoder-num-layers --encoder-seq-length --decoder-seq-length`,
  ],
  ["makes a mixture of experts; dense decoders are planned for", "--moe-use-upcycling"],
  ["changes the batch as training goes on", "--step-batch-size-schedule"],
  [
    "takes sizes from a checkpoint in place of the options, and no checkpoint is read",
    "--use-mp-args-from-checkpoint-args",
  ],
  ["takes options from a file that is not read", "--yaml-cfg"],
  ["trains nothing", "--skip-train --freeze-all-layers --ckpt-convert-format"],
  ["trains without communication", "--fake-process-group"],
  ["trains by reinforcement, which is not planned for", "--perform-rl-step"],
  [
    "trains on another model's answers, or writes them, which is not planned for",
    "--logits-load-dir --logits-save-dir",
  ],
  ["is no longer taken by this program: it has --recompute-granularity", "--checkpoint-activations"],
  ["is no longer taken by this program: it has --lr-warmup-iters", "--warmup"],
]);
