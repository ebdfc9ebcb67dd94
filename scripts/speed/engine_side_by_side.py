"""`hapo-lab bench` and PyTorch, alternately, on one machine: prints the ratios.

    cargo build --release -p hapo-lab
    python scripts/speed/engine_side_by_side.py [--lab target/release/hapo-lab] [--rounds 3] [--threads 2]
        [--shape bench-tiny] [--shape smollm2-135m] [--shape qwen2.5-0.5b]

Needs torch. Every round runs each program in its own process, one after the other; medians over the
rounds are compared, so that other work on the machine hits all of them alike. Products are of f32 and, where
the CPU has the instructions, of bf16 factors; the ratio is to the better of PyTorch's f32 and bf16. The
PyTorch side is a Qwen2-style decoder written with plain tensors and torch's own attention, fused AdamW, f32 or bf16
(autocast while training, bf16 weights while sampling), with a preallocated key/value cache.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

SHAPES = {
    "bench-tiny": dict(hidden=192, layers=4, heads=6, kv_heads=2, width=32, ffn=512, vocab=512),
    "smollm2-135m": dict(hidden=576, layers=30, heads=9, kv_heads=3, width=64, ffn=1536, vocab=49152),
    "qwen2.5-0.5b": dict(hidden=896, layers=24, heads=14, kv_heads=2, width=64, ffn=4864, vocab=151936),
}
PROMPT, NEW = 32, 64
# (shape, part of hapo-lab bench, its case, what torch runs, rows, tokens)
CASES = [
    ("bench-tiny", "training", "64 x 96 tokens", "train", 64, 96),
    ("bench-tiny", "sampling", "64 sequences, 32 + 64", "sample", 64, NEW),
    ("bench-tiny", "sampling", "256 sequences, 32 + 64", "sample", 256, NEW),
    ("smollm2-135m", "training", "4 x 256 tokens", "train", 4, 256),
    ("smollm2-135m", "decoding", "64 sequences, bf16 weights, a step", "decode", 64, 24),
    ("qwen2.5-0.5b", "training", "1 x 128 tokens", "train", 1, 128),
    ("qwen2.5-0.5b", "training", "4 x 512 tokens", "train", 4, 512),
    ("qwen2.5-0.5b", "decoding", "8 sequences, bf16 weights, a step", "decode", 8, 24),
    ("qwen2.5-0.5b", "decoding", "64 sequences, bf16 weights, a step", "decode", 64, 24),
]


def torch_side(shape, what, rows, tokens, dtype, threads):
    """Tokens per second of one case."""
    import torch
    import torch.nn.functional as F

    torch.manual_seed(0)
    torch.set_num_threads(threads)
    s = SHAPES[shape]
    h, q, kv = s["hidden"], s["heads"] * s["width"], s["kv_heads"] * s["width"]
    kind = torch.bfloat16 if dtype == "bf16" and what != "train" else torch.float32

    def tensor(*size):
        return (torch.randn(*size) * 0.02).to(kind).requires_grad_(what == "train")

    embedding = tensor(s["vocab"], h)
    names = dict(qw=(q, h), qb=(q,), kw=(kv, h), kb=(kv,), vw=(kv, h), vb=(kv,), ow=(h, q),
                 gate=(s["ffn"], h), up=(s["ffn"], h), down=(h, s["ffn"]), norm1=(h,), norm2=(h,))
    layers = [{name: tensor(*size) for name, size in names.items()} for _ in range(s["layers"])]
    final = tensor(h)
    weights = [embedding, final] + [w for layer in layers for w in layer.values()]
    longest = max(tokens, PROMPT + tokens) + 1
    frequencies = 1e6 ** (-torch.arange(0, s["width"], 2) / s["width"])
    angles = torch.outer(torch.arange(longest), frequencies)
    cos, sin = angles.cos().to(kind), angles.sin().to(kind)

    def turned(x, at):
        a, b = x.chunk(2, -1)
        c, d = cos[at:at + x.shape[2]], sin[at:at + x.shape[2]]
        return torch.cat((a * c - b * d, b * c + a * d), -1)

    def forward(ids, cache=None, at=0, last_only=False):
        b, t = ids.shape
        x = F.embedding(ids, embedding)
        for i, p in enumerate(layers):
            y = F.rms_norm(x, (h,), p["norm1"], 1e-6)
            split = lambda z, n: z.view(b, t, n, s["width"]).transpose(1, 2)
            k = turned(split(F.linear(y, p["kw"], p["kb"]), s["kv_heads"]), at)
            v = split(F.linear(y, p["vw"], p["vb"]), s["kv_heads"])
            query = turned(split(F.linear(y, p["qw"], p["qb"]), s["heads"]), at)
            if cache is not None:
                keys, values = cache[i]
                keys[:, :, at:at + t], values[:, :, at:at + t] = k, v
                k, v = keys[:, :, :at + t], values[:, :, :at + t]
            if t == 1:
                # The queries of one key/value head as one small matrix: faster here than the fused call.
                grouped = query.reshape(b, s["kv_heads"], -1, s["width"])
                scores = grouped @ k.transpose(-1, -2) * s["width"] ** -0.5
                o = (scores.softmax(-1) @ v).reshape(b, 1, q)
            else:
                o = F.scaled_dot_product_attention(query, k, v, is_causal=True, enable_gqa=True)
                o = o.transpose(1, 2).reshape(b, t, q)
            x = x + F.linear(o, p["ow"])
            y = F.rms_norm(x, (h,), p["norm2"], 1e-6)
            x = x + F.linear(F.silu(F.linear(y, p["gate"])) * F.linear(y, p["up"]), p["down"])
        x = F.rms_norm(x[:, -1] if last_only else x, (h,), final, 1e-6)
        return F.linear(x, embedding)

    times = []
    if what == "train":
        optimizer = torch.optim.AdamW(weights, lr=1e-6, weight_decay=0.01, fused=True)
        ids = torch.randint(0, s["vocab"], (rows, tokens + 1))
        for _ in range(5):
            start = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
                logits = forward(ids[:, :-1])
            F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten()).backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            times.append(time.perf_counter() - start)
        return rows * tokens / statistics.median(times[1:])
    ids = torch.randint(0, s["vocab"], (rows, PROMPT))
    draw = lambda logits: torch.multinomial(logits.float().softmax(-1), 1)
    with torch.inference_mode():
        for _ in range(3):
            start = time.perf_counter()
            room = (rows, s["kv_heads"], longest, s["width"])
            cache = [(torch.empty(room, dtype=kind), torch.empty(room, dtype=kind)) for _ in layers]
            token = draw(forward(ids, cache, 0, True))
            prompt_read = time.perf_counter()
            for step in range(tokens - 1):
                token = draw(forward(token, cache, PROMPT + step, True))
            end = time.perf_counter()
            times.append(end - start if what == "sample" else (end - prompt_read) * tokens / (tokens - 1))
    return rows * tokens / statistics.median(times[1:])


def hapo_side(lab, shape, parts, threads, compute):
    """Results of one `hapo-lab bench`, by part, case and format."""
    only = [word for part in parts for word in ("--only", part)]
    command = [lab, "--threads", str(threads), "bench", "--shape", shape, "--compute", compute, "--json", *only]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return report, {(it["part"], it["case"], it["compute"]): it for it in report["results"]}


def median_of(numbers):
    return statistics.median(numbers) if numbers else float("nan")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--lab", default="target/release/hapo-lab")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--shape", action="append", choices=list(SHAPES))
    ap.add_argument("--compute", default="bf16", choices=["f32", "bf16"], help="bf16 measures f32 as well")
    ap.add_argument("--torch", nargs=5, help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.torch:
        shape, what, rows, tokens, dtype = a.torch
        print(torch_side(shape, what, int(rows), int(tokens), dtype, a.threads))
        return
    cases = [it for it in CASES if it[0] in (a.shape or SHAPES)]
    ours, shares, theirs = {}, {}, {}
    for number in range(a.rounds):
        for shape in dict.fromkeys(it[0] for it in cases):
            parts = dict.fromkeys(it[1] for it in cases if it[0] == shape)
            report, results = hapo_side(a.lab, shape, parts, a.threads, a.compute)
            if number == 0:
                print(f"{report['shape']}: {report['cpu']}, {report['threads']} threads, {report['instructions']}, "
                      f"peak {report['peak_gflops']:.0f} GFLOP/s (bf16 product {report.get('rounded_product_gflops', 0):.0f}), "
                      f"{report['memory_gb_per_s']:.1f} GB/s", flush=True)
            for case in (it for it in cases if it[0] == shape):
                for compute in ("f32", "bf16"):
                    if it := results.get((case[1], case[2], compute)):
                        ours.setdefault((case, compute), []).append(it["per_second"])
                        shares.setdefault((case, compute), []).append(it.get("share_of_limit", float("nan")))
                    words = [shape, case[3], str(case[4]), str(case[5]), compute]
                    command = [sys.executable, __file__, "--threads", str(a.threads), "--torch", *words]
                    out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
                    theirs.setdefault((case, compute), []).append(float(out))
    print("| shape | case | f32, tokens/s | of limit | bf16, tokens/s | of limit | PyTorch f32 | PyTorch bf16 "
          "| f32 to the better | bf16 to the better |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case in cases:
        row = [case[0], f"{case[1]}, {case[2]}"]
        for compute in ("f32", "bf16"):
            row += [f"{median_of(ours.get((case, compute))):.0f}",
                    f"{100 * median_of(shares.get((case, compute))):.0f} %"]
        torch = [median_of(theirs[case, compute]) for compute in ("f32", "bf16")]
        row += [f"{it:.0f}" for it in torch]
        row += [f"{median_of(ours.get((case, it))) / max(torch):.2f}" for it in ("f32", "bf16")]
        print(f"| {' | '.join(row)} |".replace("nan %", "").replace("nan", ""), flush=True)


if __name__ == "__main__":
    main()
