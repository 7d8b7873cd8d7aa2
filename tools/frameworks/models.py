"""Small random models of transformers, and what it makes of them: for models.ts, which compares the trainer with it.

models.py make FOLDER TOKENS   makes a folder for each family, with its loss and gradients in float64
models.py loss FOLDER TOKENS   prints the loss of the model in a folder, in float64
models.py compare FOLDER DUMP  prints by how much the trainer's gradients differ from those of a folder of `make`; the names of
                               its tensors are read as JSON from standard input, ours to theirs
TOKENS: a JSON file with sequences of tokens; the target of a token is the one behind it.
"""
import json
import sys
from pathlib import Path


SIZES = dict(
    vocab_size=97,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    rms_norm_eps=1e-6,
    rope_theta=1000.0,
)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=40)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=4.0, beta_slow=1.0)

FAMILIES = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", dict(tie_word_embeddings=True)),
    "llama-linear": ("Llama", dict(scaling=dict(rope_type="linear", factor=2.0))),
    "llama-3.1": ("Llama", dict(scaling=LLAMA3)),
    "mistral": ("Mistral", dict(sliding_window=7, head_dim=16)),
    "qwen2": ("Qwen2", dict(scaling=YARN)),
    "qwen2-window": ("Qwen2", dict(use_sliding_window=True, sliding_window=5, max_window_layers=0)),
    "qwen3": ("Qwen3", dict(head_dim=20)),
    "qwen3-yarn-tied": ("Qwen3", dict(head_dim=12, scaling=YARN, tie_word_embeddings=True)),
}


def configuration(kind: str, more: dict):
    import transformers

    scaling = more.pop("scaling", None)
    config = getattr(transformers, kind + "Config")(**{**SIZES, **more})
    if hasattr(config, "rope_parameters"):
        config.rope_parameters = {"rope_type": "default", "rope_theta": SIZES["rope_theta"], **(scaling or {})}
    else:
        config.rope_scaling = scaling
    config._attn_implementation = "eager"
    return config


def loss_of(model, tokens):
    """Mean over the tokens of every sequence but the last, in the model's type."""
    import torch

    logits = model(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))


def make(folder: Path, tokens: list) -> None:
    import torch
    import transformers
    from safetensors.torch import save_file

    for name, (kind, more) in FAMILIES.items():
        torch.manual_seed(1)
        model = getattr(transformers, kind + "ForCausalLM")(configuration(kind, dict(more)))
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                # Gains and biases are moved away from 1 and 0, where some mistakes would not be seen.
                if parameter_name.endswith("norm.weight"):
                    parameter.uniform_(0.5, 1.5)
                else:
                    parameter.normal_(0, 0.1)
        model.save_pretrained(folder / name, safe_serialization=True)
        exact = type(model).from_pretrained(folder / name, dtype=torch.float64, attn_implementation="eager")
        loss = loss_of(exact, torch.tensor(tokens))
        loss.backward()
        gradients = {key: value.grad.contiguous() for key, value in exact.named_parameters()}
        save_file({**gradients, "loss": loss.detach().reshape(1)}, folder / name / "expected.gradients")
        print(json.dumps({"family": name, "loss": loss.item()}), flush=True)


def compare(folder: Path, dump: Path) -> None:
    """Largest relative difference (of norms) of a gradient, and its tensor."""
    import numpy as np
    from safetensors.numpy import load_file

    expected, found = load_file(folder / "expected.gradients"), load_file(dump)
    names = json.load(sys.stdin)
    missing = {names[name] for name in found if name != "loss"} ^ (set(expected) - {"loss"})
    if missing:
        raise SystemExit(f"gradients of {sorted(missing)} are on one side alone")
    worst, tensor = 0.0, ""
    for name, gradient in found.items():
        wanted = expected["loss" if name == "loss" else names[name]]
        difference = float(np.linalg.norm(gradient.astype(np.float64) - wanted) / np.linalg.norm(wanted))
        if difference > worst:
            worst, tensor = difference, name
    print(json.dumps({"loss": found["loss"].item(), "exact": expected["loss"].item(), "difference": worst, "tensor": tensor}))


def main() -> None:
    command, folder, tokens_path = sys.argv[1:4]
    if command == "compare":
        return compare(Path(folder), Path(tokens_path))
    tokens = json.loads(Path(tokens_path).read_text())
    if command == "make":
        return make(Path(folder), tokens)
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    print(json.dumps({"model_type": model.config.model_type, "loss": loss_of(model, torch.tensor(tokens)).item()}))


main()
