"""Attention of the CUDA backend against PyTorch's in float32, and PyTorch's own in bfloat16 beside it; prints one JSON line.

The folder has q, k, v, gO and the results o, gQ, gK, gV as raw bfloat16, [sequence, heads, head size]. Causal, one sequence, grouped
queries. Errors are ‖a − b‖ / ‖b‖ against float32 without TF32, head by head, so that memory is that of one head's scores.
"""
import argparse
import json
import os


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    for name in ("sequence", "heads", "kv-heads", "head-size"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    o = parser.parse_args()
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    attend = torch.nn.functional.scaled_dot_product_attention

    def load(name, heads):
        with open(os.path.join(o.folder, name), "rb") as file:
            data = bytearray(file.read())
        # [heads, sequence, head size]
        return torch.frombuffer(data, dtype=torch.bfloat16).view(o.sequence, heads, o.head_size).transpose(0, 1).contiguous().to(o.device)

    q, g = load("q", o.heads), load("gO", o.heads)
    k, v = load("k", o.kv_heads), load("v", o.kv_heads)
    group = o.heads // o.kv_heads
    future = torch.ones(o.sequence, o.sequence, dtype=torch.bool, device=o.device).triu(1)
    exact = {name: [] for name in ("o", "gQ", "gK", "gV")}
    for kv in range(o.kv_heads):
        keys, values = k[kv].float().requires_grad_(), v[kv].float().requires_grad_()
        for head in range(kv * group, (kv + 1) * group):
            queries = q[head].float().requires_grad_()
            scores = (queries @ keys.T) / o.head_size**0.5
            out = torch.softmax(scores.masked_fill(future, float("-inf")), -1) @ values
            out.backward(g[head].float())
            exact["o"].append(out.detach()), exact["gQ"].append(queries.grad)
            del scores, out
        exact["gK"].append(keys.grad), exact["gV"].append(values.grad)
    exact = {name: torch.stack(parts) for name, parts in exact.items()}

    def error(a, b):
        return ((a.double() - b.double()).norm() / b.double().norm()).item()

    ours = {name: error(load(name, o.heads if name in ("o", "gQ") else o.kv_heads), exact[name]) for name in exact}
    inputs = [each.detach()[None].requires_grad_() for each in (q, k.repeat_interleave(group, 0), v.repeat_interleave(group, 0))]
    out = attend(*inputs, is_causal=True)
    out.backward(g[None])
    grouped = [each.grad[0].float().view(o.kv_heads, group, o.sequence, o.head_size).sum(1) for each in inputs[1:]]
    theirs = {"o": error(out[0].detach(), exact["o"]), "gQ": error(inputs[0].grad[0], exact["gQ"]), "gK": error(grouped[0], exact["gK"]),
              "gV": error(grouped[1], exact["gV"])}
    print(json.dumps({"torchVersion": torch.__version__, "ours": ours, "torch": theirs}))


main()
