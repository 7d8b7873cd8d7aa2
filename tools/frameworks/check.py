"""Reads exported configurations with the frameworks' own parsers. Nothing is trained and no GPU is needed.

usage: check.py PARSER [CHECKOUT] < CASES

Each line of CASES is JSON: {"folder": …, "worldSize": …}. Each gets a line of JSON as answer: what the parser made of
the configuration, in the words of a plan, or the error that it ended with.
CHECKOUT holds the source of Megatron-LM or Megatron-DeepSpeed, whose parsers no package has.
"""

import json
import os
import shlex
import sys
import traceback
import types
import typing
from pathlib import Path

Reader = typing.Callable[[Path, int], dict]


def arguments_of(script: Path) -> list[str]:
    """Words behind pretrain_gpt.py in an exported script."""
    return shlex.split(script.read_text().split("pretrain_gpt.py", 1)[1].replace("\\\n", " "))


def export_environment(script: Path) -> None:
    """What the script exports before it starts the program."""
    for line in script.read_text().splitlines():
        if line.startswith("export "):
            name, value = line.removeprefix("export ").split("=", 1)
            os.environ[name] = value


def program_arguments(folder: Path) -> None:
    export_environment(folder / "pretrain.sh")
    sys.argv = ["pretrain_gpt.py", *arguments_of(folder / "pretrain.sh")]


def positive(seed: int) -> int:
    """Both programs raise ValueError at their start, behind the parser, for a seed that is not positive."""
    if seed <= 0:
        raise ValueError(f"Seed ({seed}) should be a positive integer.")
    return seed


def fake_ranks(world_size: int) -> None:
    """This process as rank 0 of so many: groups of ranks are made as in training, and nothing is sent."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)


def an_a100() -> None:
    """Parsers ask for the GPU's generation: an A100 answers, as in the jobs that are checked."""
    import torch

    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=8, minor=0)
    torch.cuda.get_device_capability = lambda *_: (8, 0)
    torch.cuda.device_count = lambda: 8


def megatron(checkout: str) -> Reader:
    import typing_extensions

    # Megatron-LM asks for Python 3.12, of which its configuration needs this name only.
    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override
    an_a100()
    sys.path.insert(0, checkout)
    from megatron.core import parallel_state
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator, get_num_microbatches
    from megatron.training.argument_utils import core_transformer_config_from_args
    from megatron.training.arguments import parse_args, validate_args
    from megatron.training.training import get_megatron_ddp_config, get_megatron_optimizer_config

    def ring_of(args) -> int:
        if args.context_parallel_size == 1 or args.cp_comm_type == ["a2a"]:
            return 1
        return args.hierarchical_context_parallel_sizes[1] if args.cp_comm_type == ["a2a+p2p"] else args.context_parallel_size

    def shards_of(args, ddp, replicas: int) -> dict:
        size = replicas // ddp.num_distributed_optimizer_instances
        strategy = ddp.data_parallel_sharding_strategy if ddp.use_megatron_fsdp else None
        if strategy == "optim_grads_params":
            return {"parameterSharding": size, "gradientSharding": 1, "optimizerStateSharding": replicas // size if ddp.outer_dp_sharding_strategy == "optim" else 1}
        return {"parameterSharding": 1, "gradientSharding": size if strategy == "optim_grads" else 1, "optimizerStateSharding": size if ddp.use_distributed_optimizer else 1}

    def read(folder: Path, world_size: int) -> dict:
        program_arguments(folder)
        args = parse_args()
        validate_args(args)
        # Transformer Engine, whose kernel it is, needs a GPU to be installed.
        args.apply_rope_fusion = False
        # What the program makes of its arguments when it starts, up to the point where it needs a GPU.
        config = core_transformer_config_from_args(args)
        ddp = get_megatron_ddp_config(args)
        get_megatron_optimizer_config(args)
        init_num_microbatches_calculator(args.rank, None, args.global_batch_size, args.micro_batch_size, args.data_parallel_size, False)
        fake_ranks(world_size)
        parallel_state.initialize_model_parallel(
            args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.virtual_pipeline_model_parallel_size, context_parallel_size=args.context_parallel_size,
            hierarchical_context_parallel_sizes=args.hierarchical_context_parallel_sizes, num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
            create_gloo_process_groups=False)
        tp, cp, chunks = config.tensor_model_parallel_size, config.context_parallel_size, config.virtual_pipeline_model_parallel_size or 1
        kept = config.recompute_num_layers if config.recompute_granularity == "full" and config.recompute_method == "block" else 0
        return {
            "seed": positive(args.seed),
            "precision": "fp32" if not args.bf16 else "bf16" if ddp.grad_reduce_in_fp32 else "bf16-grad16",
            "model": {"layers": config.num_layers, "hiddenSize": config.hidden_size, "ffnHiddenSize": config.ffn_hidden_size, "heads": config.num_attention_heads,
                      "kvHeads": config.num_query_groups, "tiedEmbeddings": not args.untie_embeddings_and_output_weights, "ropeTheta": args.rotary_base},
            "plan": {
                "microBatchSize": args.micro_batch_size, "microBatches": get_num_microbatches(), "pipelineParallel": config.pipeline_model_parallel_size,
                "dataParallel": parallel_state.get_data_parallel_world_size(), "tensorParallel": tp, "sequenceParallel": tp if config.sequence_parallel else cp, "contextParallel": ring_of(args),
                **shards_of(args, ddp, parallel_state.get_data_parallel_world_size(with_context_parallel=True)), "pipelineChunks": chunks,
                "recompute": config.recompute_granularity == "full" and config.recompute_method == "uniform", "recomputeLayers": kept * chunks,
                "forwardOverlap": "inter-layer" if ddp.overlap_param_gather else "none", "backwardOverlap": "intra-layer" if ddp.overlap_grad_reduce else "none",
            },
        }

    return read


def zero_plan(folder: Path, micro: int, dp: int, replicas: int) -> dict:
    """DeepSpeed's JSON, as its parser reads it, for a rank of so many."""
    import deepspeed
    from deepspeed.runtime.config import DeepSpeedConfig

    # One rank of many: without processes of the others it is told how many there are.
    deepspeed.comm.get_rank = lambda: 0
    config = DeepSpeedConfig(str(folder / "ds_config.json"), mpu=types.SimpleNamespace(get_data_parallel_world_size=lambda: dp))
    zero = config.zero_config
    stage, hpz = int(zero.stage), zero.zero_hpz_partition_size
    if config.train_micro_batch_size_per_gpu != micro:
        raise ValueError(f"train_micro_batch_size_per_gpu {config.train_micro_batch_size_per_gpu} is not --micro-batch-size {micro}")
    if stage < 3:
        shards = (1, replicas if stage == 2 else 1, replicas if stage > 0 else 1)
    else:
        shards = (hpz, replicas // hpz, replicas // hpz) if hpz > 1 else (replicas, 1, 1)
    overlap = bool(zero.overlap_comm) and replicas > 1
    accumulated = config.grad_accum_dtype
    return {
        "precision": "fp32" if not config.bfloat16_config.enabled else "bf16" if accumulated == "fp32" else "bf16-grad16",
        "plan": {
            "microBatchSize": config.train_micro_batch_size_per_gpu, "microBatches": config.gradient_accumulation_steps, "dataParallel": dp,
            **dict(zip(("parameterSharding", "gradientSharding", "optimizerStateSharding"), shards)),
            "forwardOverlap": "inter-layer" if overlap and stage == 3 else "none", "backwardOverlap": "intra-layer" if overlap and stage > 0 else "none",
        },
    }


def deepspeed() -> Reader:
    import deepspeed.runtime.config  # noqa: F401  loaded once, before any case

    def read(folder: Path, world_size: int) -> dict:
        words = arguments_of(folder / "pretrain.sh")
        size = lambda name: int(words[words.index(name) + 1]) if name in words else 1  # noqa: E731
        tp, pp, ulysses = size("--tensor-model-parallel-size"), size("--pipeline-model-parallel-size"), size("--ds-sequence-parallel-size")
        dp = world_size // (tp * pp * ulysses)
        return zero_plan(folder, size("--micro-batch-size"), dp, dp * ulysses)

    return read


def megatron_deepspeed(checkout: str) -> Reader:
    # The parser's module loads the models too, which ask for NVIDIA apex when the accelerator is a GPU. Only while they
    # are loaded the accelerator is the CPU; the arguments are then checked as on GPUs.
    os.environ["DS_ACCELERATOR"] = "cpu"
    sys.path.insert(0, checkout)
    from megatron.arguments import parse_args, validate_args, core_transformer_config_from_args
    import deepspeed.accelerator
    from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

    deepspeed.accelerator.set_accelerator(CUDA_Accelerator())

    def read(folder: Path, world_size: int) -> dict:
        program_arguments(folder)
        os.chdir(folder)
        args = parse_args()
        validate_args(args)
        config = core_transformer_config_from_args(args)
        tp, pp, ulysses = args.tensor_model_parallel_size, args.pipeline_model_parallel_size, args.ds_sequence_parallel_size
        if config.sequence_parallel != (tp > 1):
            raise ValueError(f"sequence_parallel is {config.sequence_parallel} with {tp} tensor ranks")
        zero = zero_plan(folder, args.micro_batch_size, args.data_parallel_size, args.data_parallel_size * ulysses)
        return {
            "seed": positive(args.seed),
            "precision": zero["precision"],
            "model": {"layers": args.num_layers, "hiddenSize": args.hidden_size, "ffnHiddenSize": args.ffn_hidden_size, "heads": args.num_attention_heads,
                      "kvHeads": args.num_key_value_heads, "tiedEmbeddings": not args.untie_embeddings_and_output_weights, "ropeTheta": args.rope_theta},
            "plan": {
                **zero["plan"], "microBatches": args.global_batch_size // (args.micro_batch_size * args.data_parallel_size), "pipelineParallel": pp, "tensorParallel": tp,
                "sequenceParallel": max(tp, ulysses), "recompute": args.checkpoint_activations,
            },
        }

    return read


def torchtitan() -> Reader:
    import importlib

    import torch

    # torchtitan takes a GPU for granted, and makes its groups of ranks on its kind of device.
    torch._utils._get_available_device_type = lambda: "cpu"
    import torchtitan.tools.utils
    from torchtitan.config import ConfigManager, TORCH_DTYPE_MAP
    from torchtitan.distributed import ParallelDims
    from torchtitan.protocols.train_spec import get_train_spec

    def layers_recomputed(parts) -> int:
        return sum(1 for part in parts for layer in part.layers.values() if any("_checkpoint_wrapped_module" in name for name, _ in layer.named_modules()))

    def read(folder: Path, world_size: int) -> dict:
        # The TOML names the module that lies beside it.
        sys.path.insert(0, str(folder))
        config = ConfigManager().parse_args(["--job.config_file", str(folder / "train.toml")])
        if config.experimental.custom_import:
            importlib.import_module(config.experimental.custom_import)
        fake_ranks(world_size)
        p, t = config.parallelism, config.training
        dims = ParallelDims(dp_replicate=p.data_parallel_replicate_degree, dp_shard=p.data_parallel_shard_degree, cp=p.context_parallel_degree, tp=p.tensor_parallel_degree,
                            pp=p.pipeline_parallel_degree, ep=p.expert_parallel_degree, etp=p.expert_tensor_parallel_degree, world_size=world_size)
        dims.build_mesh()
        spec = get_train_spec(config.model.name)
        arguments = spec.model_args[config.model.flavor]
        arguments.update_from_config(config)
        # Tensors without storage: only how the model is split is of interest.
        with torch.device("meta"), torchtitan.tools.utils.set_default_dtype(TORCH_DTYPE_MAP[t.dtype]):
            model = spec.model_cls(arguments)
        width = next(iter(model.layers.values())).feed_forward.w1.out_features
        dp = dims.dp_replicate * dims.dp_shard
        steps, rest = divmod(t.global_batch_size, t.local_batch_size * dp)
        if rest > 0:
            raise ValueError(f"global_batch_size {t.global_batch_size} is no multiple of local_batch_size {t.local_batch_size} times {dp} data-parallel ranks")
        if dims.pp_enabled and spec.pipelining_fn is None:
            raise ValueError(f"{config.model.name} has no pipelining_fn, without which torchtitan starts no pipeline_parallel_degree {dims.pp}")
        if dims.pp_enabled:
            schedule, parts, _, _ = spec.pipelining_fn(model, dims, config, torch.device("cpu"), arguments, spec.parallelize_fn, spec.build_loss_fn(config, parallel_dims=dims))
            micro, within = p.pipeline_parallel_microbatch_size, schedule._n_microbatches
        else:
            parts, micro, within = [spec.parallelize_fn(model, dims, config)], t.local_batch_size, 1
        group = dims.dp_shard * dims.cp
        # Without FSDP there is nothing that is gathered.
        reshards = group > 1 and (p.fsdp_reshard_after_forward == "always" or (p.fsdp_reshard_after_forward == "default" and not dims.pp_enabled))
        held, recomputed = sum(len(part.layers) for part in parts), layers_recomputed(parts)
        return {
            "seed": config.debug.seed,
            "precision": "fp32" if t.mixed_precision_param == "float32" else "bf16",
            "model": {"layers": arguments.n_layers, "hiddenSize": arguments.dim, "ffnHiddenSize": width, "heads": arguments.n_heads, "kvHeads": arguments.n_kv_heads,
                      "vocabularySize": arguments.vocab_size, "ropeTheta": arguments.rope_theta},
            "plan": {
                "microBatchSize": micro, "microBatches": within * steps, "pipelineParallel": dims.pp, "dataParallel": dp, "tensorParallel": dims.tp,
                "sequenceParallel": max(dims.tp, dims.cp), "contextParallel": dims.cp, "pipelineChunks": len(parts),
                "parameterSharding": group if reshards else 1, "gradientSharding": 1 if reshards else group, "optimizerStateSharding": 1 if reshards else group,
                "recompute": recomputed == held, "recomputeLayers": 0 if recomputed == held else recomputed,
            },
        }

    return read


PARSERS = {"megatron": megatron, "megatron-deepspeed": megatron_deepspeed, "deepspeed": deepspeed, "torchtitan": torchtitan}


def answer(read: Reader, folder: Path, world_size: int) -> dict:
    os.environ["WORLD_SIZE"] = str(world_size)
    try:
        return {"ok": True, **read(folder, world_size)}
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        return {"ok": False, "error": f"{type(error).__name__}: {error}"[:2000]}


def in_a_process(read: Reader, case: dict) -> str:
    """One case in a process of its own, which has the modules already: parsers keep what they read in global variables."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        with os.fdopen(theirs, "w") as out:
            out.write(json.dumps(answer(read, Path(case["folder"]).resolve(), case["worldSize"])))
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as result:
        text = result.read()
    _, status = os.waitpid(child, 0)
    return text or json.dumps({"ok": False, "error": f"the parser's process ended with status {status}"})


def main() -> None:
    name, *checkout = sys.argv[1:]
    os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"})
    # What parsers print is not the answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        read = PARSERS[name](*checkout)
    except ImportError as error:
        sys.exit(f"the parser of {name} cannot be loaded: {error}")
    for line in sys.stdin:
        print(in_a_process(read, json.loads(line)), file=answers, flush=True)


main()
