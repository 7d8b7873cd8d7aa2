"""One training run of a LLaMA-style model in PyTorch, on the CPU or a GPU, as a peer of the trainer; prints one JSON line.

The same computation as the trainer's: RMSNorm, rotary positions, (grouped-query) causal attention, SwiGLU, untied head, mean
cross-entropy, global-norm clipping, AdamW. Precisions: fp32; bf16, by autocast over float32 weights; bf16-weights, where
weights, activations, gradients and moments are all bfloat16 (which is less than the trainer keeps). Written for PyTorch 1.13
and newer: `--attention fused` takes scaled_dot_product_attention where the version has it (`flash`, `cudnn`: that kernel of its
only), `--optimizer fused` the fused AdamW, or the multi-tensor one before it. `--longest N` looks for the longest sequence up to N
that a step is possible with. Exit codes: 0; 3 when the memory of the GPU does not do.
"""
import argparse
import contextlib
import json
import math
import os
import resource
import statistics
import sys
import time

OUT_OF_MEMORY = 3


def options():
    parser = argparse.ArgumentParser()
    for name, default in (("hidden", 256), ("layers", 4), ("heads", 8), ("kv-heads", 0), ("ffn", 704), ("vocabulary", 4096),
                          ("sequence", 512), ("batch", 4), ("steps", 7), ("warmup", 2), ("threads", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "bf16", "bf16-weights"], default="fp32")
    parser.add_argument("--attention", choices=["plain", "fused", "flash", "cudnn"], default="plain")
    parser.add_argument("--optimizer", choices=["default", "fused"], default="default")
    parser.add_argument("--compile", choices=["none", "default", "max-autotune"], default="none")
    parser.add_argument("--checkpointing", action="store_true", help="recompute each layer in the backward pass: less memory, more time")
    parser.add_argument("--longest", type=int, default=0, help="instead of timing: the longest sequence, in units, up to this one")
    parser.add_argument("--unit", type=int, default=1024, help="tokens between the lengths that --longest tries")
    parser.add_argument("--seconds", type=float, default=math.inf, help="the last step is the one that ends after so many seconds, and it counts")
    return parser.parse_args()


def build(o, torch):
    nn, functional = torch.nn, torch.nn.functional
    size, kv_heads = o.hidden // o.heads, o.kv_heads or o.heads
    longest = max(o.sequence, o.longest)
    angles = torch.outer(torch.arange(longest).float(), 10000.0 ** (-torch.arange(0, size, 2).float() / size))
    cosines, sines = angles.cos(), angles.sin()
    if o.precision == "bf16-weights":
        cosines, sines = cosines.bfloat16(), sines.bfloat16()
    future = torch.ones(longest, longest, dtype=torch.bool).triu(1) if o.attention == "plain" else None
    fused = getattr(functional, "scaled_dot_product_attention", None)

    class RmsNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(o.hidden))

        def forward(self, x):
            wide = x.float()
            return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.gain

    def rotate(x):
        low, high = x.chunk(2, -1)
        cosine, sine = cosines[: x.shape[-2]], sines[: x.shape[-2]]
        return torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1)

    def attend(q, k, v):
        if o.attention != "plain" and fused is not None:
            return fused(q, k, v, is_causal=True)
        if o.attention != "plain":
            return functional._scaled_dot_product_attention(q, k, v, None, 0.0, False, True)[0]
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(size)
        hidden = future[: q.shape[-2], : q.shape[-2]]
        return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1).to(v.dtype) @ v

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.mlp_norm = RmsNorm(), RmsNorm()
            self.qkv = nn.Linear(o.hidden, (o.heads + 2 * kv_heads) * size, bias=False)
            self.out = nn.Linear(o.hidden, o.hidden, bias=False)
            self.gate_up = nn.Linear(o.hidden, 2 * o.ffn, bias=False)
            self.down = nn.Linear(o.ffn, o.hidden, bias=False)

        def forward(self, x):
            batch, length, _ = x.shape
            split = self.qkv(self.attention_norm(x)).split([o.heads * size, kv_heads * size, kv_heads * size], -1)
            q, k, v = (part.view(batch, length, -1, size).transpose(1, 2) for part in split)
            q, k = rotate(q).to(v.dtype), rotate(k).to(v.dtype)
            if kv_heads != o.heads:
                k, v = (part.repeat_interleave(o.heads // kv_heads, 1) for part in (k, v))
            x = x + self.out(attend(q, k, v).transpose(1, 2).reshape(batch, length, o.hidden))
            gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
            return x + self.down(functional.silu(gate) * up)

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(o.vocabulary, o.hidden)
            self.layers = nn.ModuleList(Layer() for _ in range(o.layers))
            self.norm = RmsNorm()
            self.head = nn.Linear(o.hidden, o.vocabulary, bias=False)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, 0, 0.02)

        def forward(self, tokens, targets):
            x = self.embedding(tokens)
            for layer in self.layers:
                x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) if o.checkpointing else layer(x)
            return functional.cross_entropy(self.head(self.norm(x)).float().view(-1, o.vocabulary), targets.reshape(-1))

    return Llama()


def chosen_attention(o, torch):
    """Entered around what is trained: the only kernel that attention may take."""
    if o.attention not in ("flash", "cudnn"):
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.FLASH_ATTENTION if o.attention == "flash" else SDPBackend.CUDNN_ATTENTION)


class Training:
    def __init__(self, o, torch):
        self.o, self.torch = o, torch
        # Parameters are made where they stay: a large model's would take the processor minutes.
        with torch.device(o.device) if o.device != "cpu" else contextlib.nullcontext():
            self.model = build(o, torch)
        if o.precision == "bf16-weights":
            self.model = self.model.bfloat16()
        self.network = self.model if o.compile == "none" else torch.compile(self.model, mode=None if o.compile == "default" else o.compile)
        version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
        extra = {} if o.optimizer == "default" else {"fused": True} if version >= (2, 4) else {"foreach": True}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, **extra)

    def batches(self, sequence):
        return [self.torch.randint(0, self.o.vocabulary, (self.o.batch, sequence + 1)).to(self.o.device) for _ in range(4)]

    def step(self, batch):
        """Returns the loss; whatever was begun has ended by then."""
        with self.torch.autocast(self.o.device, dtype=self.torch.bfloat16, enabled=self.o.precision == "bf16"):
            loss = self.network(batch[:, :-1], batch[:, 1:])
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        last = loss.item()
        if self.o.device != "cpu":
            self.torch.cuda.synchronize()
        return last


def longest(o, torch):
    """Halves what lies between a length that did and one that did not."""
    began, training, tried = time.perf_counter(), Training(o, torch), []

    def possible(sequence):
        try:
            training.step(training.batches(sequence)[0])
            did = True
        except torch.cuda.OutOfMemoryError:
            did = False
        training.optimizer.zero_grad(set_to_none=True)
        if o.device != "cpu":
            torch.cuda.empty_cache()
        tried.append({"sequence": sequence, "possible": did, "seconds": time.perf_counter() - began})
        return did

    good, bad = 0, o.longest // o.unit + 1
    if possible((bad - 1) * o.unit):
        good = bad - 1
    else:
        bad -= 1
    while bad - good > 1 and time.perf_counter() - began < o.seconds:
        middle = (good + bad) // 2
        if possible(middle * o.unit):
            good = middle
        else:
            bad = middle
    # Reached is not the longest: the search ends at the length that was given.
    return {"torch": torch.__version__, "longest": good * o.unit, "complete": bad - good == 1, "searchedUpTo": o.longest, "tried": tried}


def timed(o, torch):
    training = Training(o, torch)
    batches = training.batches(o.sequence)
    seconds, processor_seconds, steps = [], [], 0
    began = time.perf_counter()
    for step in range(o.warmup + o.steps):
        start, processor_start = time.perf_counter(), time.process_time()
        last = training.step(batches[step % len(batches)])
        late = time.perf_counter() - began > o.seconds
        steps += 1
        if step >= o.warmup or late:
            seconds.append(time.perf_counter() - start)
            processor_seconds.append(time.process_time() - processor_start)
        if late:
            break
    return {"torch": torch.__version__, "stepSeconds": seconds, "medianStepSeconds": statistics.median(seconds),
            "medianStepProcessorSeconds": statistics.median(processor_seconds), "warmupSteps": steps - len(seconds), "loss": last,
            "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
            "devicePeakBytes": torch.cuda.max_memory_allocated() if o.device != "cpu" else 0,
            "residentPeakBytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main():
    o = options()
    os.environ.setdefault("OMP_NUM_THREADS", str(o.threads))
    # Lengths that are tried one after the other would leave holes behind them.
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    import torch
    import torch.utils.checkpoint

    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    try:
        with chosen_attention(o, torch):
            print(json.dumps(longest(o, torch) if o.longest > 0 else timed(o, torch)))
    except torch.cuda.OutOfMemoryError as error:
        print(error, file=sys.stderr)
        sys.exit(OUT_OF_MEMORY)


main()
