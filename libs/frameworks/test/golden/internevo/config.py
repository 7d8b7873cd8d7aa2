# torchrun --nnodes 16 --nproc-per-node 8 train.py --config <this file> --launcher torch
JOB_NAME = "seven"
model_type = "LLAMA2"
DO_ALERT = False

ckpt = dict(enable_save_ckpt=True, save_ckpt_folder="local:checkpoints", checkpoint_every=100, auto_resume=True, load_ckpt_info=None)

data = dict(
    seq_len=32768,
    micro_bsz=1,
    micro_num=4,
    total_steps=1000,
    pack_sample_into_one=True,
    skip_batches="",
    rampup_batch_size="",
    train_folder=None,
    valid_folder=None,
    valid_every=0,
)

model = dict(
    checkpoint=False,
    num_chunks=1,
    num_attention_heads=32,
    num_kv_attention_heads=32,
    hidden_size=4096,
    num_layers=32,
    vocab_size=100000,
    mlp_ratio=11008 / 4096,
    multiple_of=256,
    no_bias=True,
    norm_type="rmsnorm",
    layer_norm_epsilon=0.00001,
    rope_base=10000,
    embed_split_hidden=True,
    embed_grad_scale=1,
    parallel_output=True,
    apply_post_layer_norm=False,
    use_flash_attn=True,
    dtype="torch.bfloat16",
)

parallel = dict(
    tensor=dict(size=4, mode="isp"),
    weight=dict(size=8, overlap=True, forward_overlap_per="layer"),
    zero1=dict(size=16),
    pipeline=dict(size=1, interleaved_overlap=True),
)

hybrid_zero_optimizer = dict(
    overlap_sync_grad=True,
    overlap_sync_param=False,
    reduce_bucket_size=512 * 1024 * 1024,
    clip_grad_norm=1.0,
)

adam = dict(lr=0.0003, adam_beta1=0.9, adam_beta2=0.95, adam_beta2_c=0, adam_eps=1e-8, weight_decay=0.1)
lr_scheduler = dict(total_steps=1000, init_steps=0, warmup_ratio=50.5 / 1000, eta_min=0.00003, last_epoch=-1)
beta2_scheduler = dict(init_beta2=adam["adam_beta2"], c=adam["adam_beta2_c"], cur_iter=-1)
grad_scaler = dict(
    fp16=dict(initial_scale=2**16, min_scale=1, growth_interval=1000),
    growth_factor=2,
    backoff_factor=0.5,
    max_scale=2**24,
    hysteresis=2,
)
loss = dict(label_smoothing=0)
use_fp32_norm = False
seed = 1234
cudnn_deterministic = False
cudnn_benchmark = False
