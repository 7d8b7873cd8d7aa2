# Adds the model to torchtitan's llama3; found when it lies where torchtitan is started, or on PYTHONPATH.
from torchtitan.models.llama3 import TransformerModelArgs, llama3_args
from torchtitan.models.llama3.model.args import RoPEScalingArgs

args = TransformerModelArgs(
    dim=4096,
    n_layers=32,
    n_heads=32,
    n_kv_heads=32,
    vocab_size=100000,
    multiple_of=256,
    norm_eps=0.00001,
    rope_theta=10000,
    rope_scaling_args=RoPEScalingArgs(
        scaling_factor=1,
        low_freq_factor=1,
        high_freq_factor=4,
        original_max_position_embeddings=8192,
    ),
)
llama3_args["internevo"] = args
