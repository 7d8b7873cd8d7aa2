"""One training run of a LLaMA-style model in PyTorch on the CPU, as a peer of the trainer; prints one JSON line.

The same computation as the trainer's: RMSNorm, rotary positions, (grouped-query) causal attention, SwiGLU, untied head, mean
cross-entropy, global-norm clipping, AdamW. Precisions: fp32; bf16, by autocast over float32 weights; bf16-weights, where
weights, activations, gradients and moments are all bfloat16 (which is less than the trainer keeps). Written for PyTorch 1.13
and newer: `--attention fused` takes scaled_dot_product_attention where the version has it, `--optimizer fused` the fused
AdamW, or the multi-tensor one before it.
"""
import argparse
import json
import math
import os
import resource
import statistics
import time


def options():
    parser = argparse.ArgumentParser()
    for name, default in (("hidden", 256), ("layers", 4), ("heads", 8), ("kv-heads", 0), ("ffn", 704), ("vocabulary", 4096),
                          ("sequence", 512), ("batch", 4), ("steps", 7), ("warmup", 2), ("threads", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--precision", choices=["fp32", "bf16", "bf16-weights"], default="fp32")
    parser.add_argument("--attention", choices=["plain", "fused"], default="plain")
    parser.add_argument("--optimizer", choices=["default", "fused"], default="default")
    parser.add_argument("--compile", choices=["none", "default", "max-autotune"], default="none")
    parser.add_argument("--checkpointing", action="store_true", help="recompute each layer in the backward pass: less memory, more time")
    parser.add_argument("--seconds", type=float, default=math.inf, help="the last step is the one that ends after so many seconds, and it counts")
    return parser.parse_args()


def build(o, torch):
    nn, functional = torch.nn, torch.nn.functional
    size, kv_heads = o.hidden // o.heads, o.kv_heads or o.heads
    angles = torch.outer(torch.arange(o.sequence).float(), 10000.0 ** (-torch.arange(0, size, 2).float() / size))
    cosines, sines = angles.cos(), angles.sin()
    if o.precision == "bf16-weights":
        cosines, sines = cosines.bfloat16(), sines.bfloat16()
    future = torch.ones(o.sequence, o.sequence, dtype=torch.bool).triu(1)
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
        return torch.cat((low * cosines - high * sines, high * cosines + low * sines), -1)

    def attend(q, k, v):
        if o.attention == "fused" and fused is not None:
            return fused(q, k, v, is_causal=True)
        if o.attention == "fused":
            return functional._scaled_dot_product_attention(q, k, v, None, 0.0, False, True)[0]
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(size)
        return torch.softmax(scores.masked_fill(future, float("-inf")), -1).to(v.dtype) @ v

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


def main():
    o = options()
    os.environ.setdefault("OMP_NUM_THREADS", str(o.threads))
    import torch
    import torch.utils.checkpoint

    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    model = build(o, torch)
    if o.precision == "bf16-weights":
        model = model.bfloat16()
    network = model if o.compile == "none" else torch.compile(model, mode=None if o.compile == "default" else o.compile)
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    extra = {} if o.optimizer == "default" else {"fused": True} if version >= (2, 4) else {"foreach": True}
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, **extra)
    batches = [torch.randint(0, o.vocabulary, (o.batch, o.sequence + 1)) for _ in range(4)]
    seconds, processor_seconds, steps = [], [], 0
    began = time.perf_counter()
    for step in range(o.warmup + o.steps):
        start, processor_start = time.perf_counter(), time.process_time()
        batch = batches[step % len(batches)]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=o.precision == "bf16"):
            loss = network(batch[:, :-1], batch[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        last = loss.item()
        late = time.perf_counter() - began > o.seconds
        steps += 1
        if step >= o.warmup or late:
            seconds.append(time.perf_counter() - start)
            processor_seconds.append(time.process_time() - processor_start)
        if late:
            break
    print(json.dumps({"torch": torch.__version__, "stepSeconds": seconds, "medianStepSeconds": statistics.median(seconds),
                      "medianStepProcessorSeconds": statistics.median(processor_seconds), "warmupSteps": steps - len(seconds), "loss": last,
                      "residentPeakBytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


main()
