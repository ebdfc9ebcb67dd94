"""PyTorch and transformers beside `hapo-lab bench --device cuda:0`: the same shapes, on the same GPU, in one run.

torch_bench.py ceilings         products at the decoders' shapes, copies on and to the GPU
torch_bench.py train 3b         forward, backward and AdamW: 8 x 1,024 tokens
torch_bench.py generate 3b      milliseconds per token behind 960 tokens, 64 and 256 sequences
torch_bench.py generate_batch 3b  the same by transformers' paged continuous batching, 64 sequences
torch_bench.py generate_static 3b the same with a static cache and torch.compile, 64 sequences
torch_bench.py make 3b DIR      a model with random weights as a folder
torch_bench.py logprobs DIR F   log-probabilities of the ids in F, in f32 and bf16
"""

import json
import pathlib
import shutil
import statistics
import sys
import time

# hidden, layers, heads, key/value heads, ffn, vocabulary, tied: as in `hapo-lab bench --shape`.
SHAPES = {
    "tiny": (64, 2, 4, 2, 192, 512, True),
    "0.5b": (896, 24, 14, 2, 4864, 151_936, True),
    "3b": (2048, 36, 16, 2, 11_008, 151_936, True),
    "7b": (3584, 28, 28, 4, 18_944, 152_064, False),
}
TOKENIZER = pathlib.Path(__file__).parents[2] / "testdata/fixtures/models/tiny-qwen2"


def config(name):
    from transformers import Qwen2Config

    hidden, layers, heads, kv_heads, ffn, vocabulary, tied = SHAPES[name]
    return Qwen2Config(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=ffn,
        vocab_size=vocabulary,
        tie_word_embeddings=tied,
        max_position_embeddings=32_768,
        rope_theta=1e6,
        bos_token_id=None,
        eos_token_id=0,
    )


def model(name, dtype):
    import torch
    from transformers import Qwen2ForCausalLM

    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    with torch.device("cuda"):
        made = Qwen2ForCausalLM._from_config(config(name), attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    return made


def milliseconds(work, repetitions=5, warm_up=2):
    import torch

    times = []
    for i in range(warm_up + repetitions):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        if i >= warm_up:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def report(**numbers):
    print(json.dumps(numbers), flush=True)


def ceilings():
    import torch

    for dtype, tf32 in [(torch.bfloat16, False), (torch.float32, True), (torch.float32, False)]:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        kind = "tf32" if tf32 else str(dtype).removeprefix("torch.")
        for rows, inputs, outputs in [
            (8192, 2048, 2560),
            (8192, 2048, 11_008),
            (8192, 11_008, 2048),
            (8192, 2048, 22_016),
            (2048, 2048, 151_936),
            (256, 2048, 11_008),
            (64, 2048, 11_008),
            (256, 11_008, 2048),
        ]:
            a = torch.randn(rows, inputs, device="cuda", dtype=dtype)
            b = torch.randn(inputs, outputs, device="cuda", dtype=dtype)
            ms = milliseconds(lambda a=a, b=b: torch.mm(a, b))
            report(product=[rows, inputs, outputs], kind=kind, ms=ms, tflops=2e-9 * rows * inputs * outputs / ms)
    x = torch.empty(1 << 28, device="cuda")
    y = torch.empty_like(x)
    report(copy_gb_per_s=2 * x.numel() * 4 / 1e6 / milliseconds(lambda: y.copy_(x)))
    for pinned in [False, True]:
        host = torch.empty(256 * 151_936, pin_memory=pinned)
        there = torch.empty_like(host, device="cuda")
        for name, work in [("to", lambda h=host, t=there: t.copy_(h)), ("from", lambda h=host, t=there: h.copy_(t))]:
            report(host_copy=name, pinned=pinned, gb_per_s=host.numel() * 4 / 1e6 / milliseconds(work))


def loss_of(net, ids, chunks=4):
    """Mean of -log p, the head in chunks, so that the logits of a long batch fit."""
    import torch

    hidden = net.model(ids).last_hidden_state[:, :-1].flatten(0, 1)
    targets = ids[:, 1:].flatten()
    total = 0.0
    for rows, wanted in zip(hidden.chunk(chunks), targets.chunk(chunks), strict=True):
        logits = net.lm_head(rows).float()
        total = total + torch.nn.functional.cross_entropy(logits, wanted, reduction="sum")
    return total / targets.numel()


def train(name):
    import torch

    hidden, layers, heads, kv_heads, ffn, vocabulary, _ = SHAPES[name]
    width = hidden // heads
    matrices = layers * (hidden * width * (2 * heads + 2 * kv_heads) + 3 * hidden * ffn) + hidden * vocabulary
    for master, recompute in [("bf16", False), ("f32", True)]:
        net = optimizer = None
        try:
            net = model(name, torch.bfloat16 if master == "bf16" else torch.float32).train()
            if recompute:
                net.gradient_checkpointing_enable()
            optimizer = torch.optim.AdamW(net.parameters(), lr=1e-6, fused=True)
            for rows, length in [(8, 1024)] if name != "tiny" else [(2, 64)]:
                ids = torch.randint(0, vocabulary, (rows, length), device="cuda")

                def step(net=net, optimizer=optimizer, ids=ids, master=master):
                    with torch.autocast("cuda", torch.bfloat16, enabled=master == "f32"):
                        loss = loss_of(net, ids)
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()

                torch.cuda.reset_peak_memory_stats()
                ms = milliseconds(step)
                tokens = rows * length
                flops = 6 * matrices * tokens + 3.5 * 2 * layers * heads * width * rows * length**2
                report(
                    train=name,
                    master=master,
                    recompute=recompute,
                    batch=[rows, length],
                    ms=ms,
                    tokens_per_s=1e3 * tokens / ms,
                    tflops=flops / ms / 1e9,
                    peak_gb=torch.cuda.max_memory_allocated() / 1e9,
                )
        except torch.OutOfMemoryError as error:
            report(train=name, master=master, recompute=recompute, failed=str(error).splitlines()[0])
        del net, optimizer
        torch.cuda.empty_cache()


def generate(name):
    import torch

    net = model(name, torch.bfloat16).eval()
    net.generation_config.eos_token_id = None
    for rows in [64, 256]:
        try:
            ids = torch.randint(0, SHAPES[name][5], (1, 960), device="cuda").expand(rows, -1)

            def seconds(new, ids=ids):
                torch.cuda.synchronize()
                start = time.perf_counter()
                net.generate(
                    ids,
                    do_sample=True,
                    top_p=1.0,
                    top_k=0,
                    temperature=1.0,
                    max_new_tokens=new,
                    min_new_tokens=new,
                    attention_mask=torch.ones_like(ids),
                    pad_token_id=0,
                )
                torch.cuda.synchronize()
                return time.perf_counter() - start

            seconds(2)
            ms = 1e3 * (seconds(64) - seconds(1)) / 63
            report(
                generate=name,
                sequences=rows,
                context=960,
                ms_per_token=ms,
                tokens_per_s=1e3 * rows / ms,
                peak_gb=torch.cuda.max_memory_allocated() / 1e9,
            )
        except torch.OutOfMemoryError as error:
            report(generate=name, sequences=rows, failed=str(error).splitlines()[0])
        torch.cuda.empty_cache()


def generate_batch(name):
    """Prompts of their own, in a paged cache."""
    import torch
    from transformers import GenerationConfig

    net = model(name, torch.bfloat16).eval()
    rows = 64
    prompts = torch.randint(0, SHAPES[name][5], (rows, 960)).tolist()

    def seconds(new):
        settings = GenerationConfig(
            max_new_tokens=new, do_sample=True, top_k=0, top_p=1.0, eos_token_id=-1, pad_token_id=0, use_cuda_graph=True
        )
        torch.cuda.synchronize()
        start = time.perf_counter()
        found = net.generate_batch(inputs=prompts, generation_config=settings, progress_bar=False)
        torch.cuda.synchronize()
        lengths = [len(it.generated_tokens) for it in found.values()]
        return time.perf_counter() - start, min(lengths), max(lengths)

    seconds(2)
    short, long = seconds(8), seconds(72)
    ms = 1e3 * (long[0] - short[0]) / 64
    report(generate_batch=name, sequences=rows, context=960, ms_per_token=ms, tokens=long[1:], seconds=[short[0], long[0]])


def generate_static(name):
    """A static cache and a compiled decoding step."""
    import torch

    net = model(name, torch.bfloat16).eval()
    net.generation_config.eos_token_id = None
    rows = 64
    ids = torch.randint(0, SHAPES[name][5], (rows, 960), device="cuda")

    def seconds(new):
        torch.cuda.synchronize()
        start = time.perf_counter()
        net.generate(
            ids,
            do_sample=True,
            top_p=1.0,
            top_k=0,
            max_new_tokens=new,
            min_new_tokens=new,
            cache_implementation="static",
            attention_mask=torch.ones_like(ids),
            pad_token_id=0,
        )
        torch.cuda.synchronize()
        return time.perf_counter() - start

    # The first of each length compiles.
    for new in (8, 72):
        seconds(new)
    short, long = seconds(8), seconds(72)
    report(
        generate_static=name, sequences=rows, context=960, ms_per_token=1e3 * (long - short) / 64, seconds=[short, long]
    )


def make(name, folder):
    import torch

    net = model(name, torch.bfloat16)
    net.save_pretrained(folder)
    for it in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]:
        if (TOKENIZER / it).exists():
            shutil.copy(TOKENIZER / it, folder)
    report(made=folder, parameters=sum(it.numel() for it in net.parameters()))


def logprobs(folder, file):
    import torch
    from transformers import AutoModelForCausalLM

    for dtype in [torch.float32, torch.bfloat16]:
        net = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).cuda().eval()
        values = []
        for line in pathlib.Path(file).read_text().splitlines():
            ids = torch.tensor([json.loads(line)["input_ids"]], device="cuda")
            with torch.no_grad():
                rows = net(ids).logits[0, :-1].float().log_softmax(-1)
            values += rows.gather(1, ids[0, 1:, None])[:, 0].tolist()
        report(kind=str(dtype).removeprefix("torch."), logprobs=values)


def main(arguments):
    commands = {
        "ceilings": (ceilings, 0),
        "train": (train, 1),
        "generate": (generate, 1),
        "generate_batch": (generate_batch, 1),
        "generate_static": (generate_static, 1),
        "make": (make, 2),
        "logprobs": (logprobs, 2),
    }
    command, count = commands.get(arguments[0] if arguments else "", (None, 0))
    if (
        command is None
        or len(arguments) != count + 1
        or (command is not logprobs and count and arguments[1] not in SHAPES)
    ):
        sys.exit(__doc__)
    command(*arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
