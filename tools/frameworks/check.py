"""Reads exported configurations with the frameworks' own parsers. Nothing is trained and no GPU is needed.

usage: check.py FRAMEWORK FOLDER WORLD_SIZE [CHECKOUT]

Prints one line of JSON: what the parser made of the configuration, or the error that it ended with.
CHECKOUT holds the source of Megatron-LM or Megatron-DeepSpeed, whose parsers no package has.
"""

import json
import os
import shlex
import sys
import types
import typing
from pathlib import Path

import typing_extensions

# Megatron-LM asks for Python 3.12, of which its configuration needs this name only.
if not hasattr(typing, "override"):
    typing.override = typing_extensions.override

# Parsers ask for the GPU's generation: an A100 answers, as in the jobs that are checked.
import torch

torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=8, minor=0)
torch.cuda.get_device_capability = lambda *_: (8, 0)
torch.cuda.device_count = lambda: 8


def arguments_of(script: Path) -> list[str]:
    """Words behind pretrain_gpt.py in an exported script."""
    return shlex.split(script.read_text().split("pretrain_gpt.py", 1)[1].replace("\\\n", " "))


def export_environment(script: Path) -> None:
    """What the script exports before it starts the program."""
    for line in script.read_text().splitlines():
        if line.startswith("export "):
            name, value = line.removeprefix("export ").split("=", 1)
            os.environ[name] = value


def positive(seed: int) -> int:
    """Both programs raise ValueError at their start, behind the parser, for a seed that is not positive."""
    if seed <= 0:
        raise ValueError(f"Seed ({seed}) should be a positive integer.")
    return seed


def megatron(folder: Path, checkout: str) -> dict:
    sys.path.insert(0, checkout)
    export_environment(folder / "pretrain.sh")
    sys.argv = ["pretrain_gpt.py", *arguments_of(folder / "pretrain.sh")]
    from megatron.training.arguments import parse_args, validate_args

    args = parse_args()
    validate_args(args)
    return {"globalBatch": args.global_batch_size, "dataParallel": args.data_parallel_size, "seed": positive(args.seed)}


def megatron_deepspeed(folder: Path, checkout: str) -> dict:
    sys.path.insert(0, checkout)
    export_environment(folder / "pretrain.sh")
    sys.argv = ["pretrain_gpt.py", *arguments_of(folder / "pretrain.sh")]
    os.chdir(folder)
    from megatron.arguments import parse_args, validate_args

    args = parse_args()
    validate_args(args)
    return {"globalBatch": args.global_batch_size, "dataParallel": args.data_parallel_size, "seed": positive(args.seed)}


def zero(folder: Path) -> dict:
    import deepspeed
    from deepspeed.runtime.config import DeepSpeedConfig

    document = json.loads((folder / "ds_config.json").read_text())
    ranks = document["train_batch_size"] // (document["train_micro_batch_size_per_gpu"] * document["gradient_accumulation_steps"])

    class Ranks:
        get_data_parallel_world_size = staticmethod(lambda: ranks)

    # One rank of many: without processes of the others it is told how many there are.
    deepspeed.comm.get_rank = lambda: 0
    config = DeepSpeedConfig(str(folder / "ds_config.json"), mpu=Ranks())
    return {"globalBatch": config.train_batch_size, "dataParallel": ranks, "zeroStage": int(config.zero_config.stage)}


def torchtitan(folder: Path) -> dict:
    # The TOML names the module that lies beside it.
    sys.path.insert(0, str(folder))
    from torchtitan.config import ConfigManager
    from torchtitan.distributed import ParallelDims

    config = ConfigManager().parse_args(["--job.config_file", str(folder / "train.toml")])
    p = config.parallelism
    dims = ParallelDims(dp_replicate=p.data_parallel_replicate_degree, dp_shard=p.data_parallel_shard_degree, cp=p.context_parallel_degree, tp=p.tensor_parallel_degree,
                        pp=p.pipeline_parallel_degree, ep=p.expert_parallel_degree, etp=p.expert_tensor_parallel_degree, world_size=int(os.environ["WORLD_SIZE"]))
    return {"globalBatch": config.training.global_batch_size, "dataParallel": dims.dp_replicate * dims.dp_shard, "seed": config.debug.seed}


def main() -> None:
    framework, folder, world_size, *checkout = sys.argv[1:]
    os.environ.update({"WORLD_SIZE": world_size, "RANK": "0", "LOCAL_RANK": "0"})
    place = Path(folder).resolve()
    read = {
        "megatron": lambda: megatron(place, *checkout),
        "megatron-deepspeed": lambda: megatron_deepspeed(place, *checkout),
        "deepspeed": lambda: zero(place),
        "torchtitan": lambda: torchtitan(place),
    }[framework]
    # What parsers print is not the answer.
    answer, sys.stdout = sys.stdout, sys.stderr
    try:
        result = {"ok": True, **read()}
    except (Exception, SystemExit) as error:
        result = {"ok": False, "error": f"{type(error).__name__}: {error}"[:2000]}
    print(json.dumps(result), file=answer)


main()
