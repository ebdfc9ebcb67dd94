"""Decoding by `hapo-lab bench` and by llama.cpp, alternately, on one machine: prints tokens per second and ratios.

    cargo build --release -p hapo-lab
    python scripts/speed/llama_cpp_side_by_side.py [--lab target/release/hapo-lab] [--rounds 3] [--threads 2]
        [--shape qwen2.5-1.5b --sequences 1 8 64]

Needs llama-cpp-python (built for this processor), gguf and numpy. llama.cpp runs a model of the same shape with
random weights in f32, f16 and bf16, which this script writes; its keys and values are f32 like ours. Each round runs
each program in its own process. A step takes one token for each sequence: logits of all, and a draw from each with
temperature 1 by llama.cpp's own sampler, as `hapo-lab bench` does.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

# Hidden, layers, heads, key/value heads, columns of a head, ffn, vocabulary.
SHAPES = {
    "smollm2-135m": (576, 30, 9, 3, 64, 1536, 49152),
    "qwen2.5-1.5b": (1536, 28, 12, 2, 128, 8960, 151936),
}
PROMPT, NEW = 32, 24
FORMATS = ("f32", "f16", "bf16")


def write_model(path, name, shape):
    """A Llama of the shape with random weights, and no tokenizer."""
    import gguf
    import numpy as np

    hidden, layers, heads, kv_heads, width, ffn, vocabulary = SHAPES[shape]
    kind = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
            "bf16": gguf.GGMLQuantizationType.BF16}[name]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(2048)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("none")
    # The same million numbers again and again, as `hapo-lab bench` does.
    block = np.random.default_rng(0).standard_normal(1 << 20, dtype=np.float32) * np.float32(0.02)

    def matrix(tensor, rows, columns):
        values = np.resize(block, (rows, columns))
        if kind == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(tensor, values)
        else:
            writer.add_tensor(tensor, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def norm(tensor):
        writer.add_tensor(tensor, np.ones(hidden, dtype=np.float32))

    matrix("token_embd.weight", vocabulary, hidden)
    norm("output_norm.weight")
    for layer in range(layers):
        at = f"blk.{layer}."
        norm(at + "attn_norm.weight")
        norm(at + "ffn_norm.weight")
        matrix(at + "attn_q.weight", heads * width, hidden)
        matrix(at + "attn_k.weight", kv_heads * width, hidden)
        matrix(at + "attn_v.weight", kv_heads * width, hidden)
        matrix(at + "attn_output.weight", hidden, heads * width)
        matrix(at + "ffn_gate.weight", ffn, hidden)
        matrix(at + "ffn_up.weight", ffn, hidden)
        matrix(at + "ffn_down.weight", hidden, ffn)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def llama_side(path, sequences, threads, vocabulary):
    """Median seconds of a decoding step with this many sequences."""
    import llama_cpp as lib

    quiet = lib.llama_log_callback(lambda level, text, data: None)
    lib.llama_log_set(quiet, None)
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    params = lib.llama_context_default_params()
    params.n_ctx = sequences * (PROMPT + NEW + 8)
    params.n_batch = params.n_ubatch = sequences * PROMPT
    params.n_seq_max = sequences
    params.n_threads = params.n_threads_batch = threads
    params.type_k = params.type_v = lib.GGML_TYPE_F32
    params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.kv_unified = False
    context = lib.llama_init_from_model(model, params)
    sampler = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    lib.llama_sampler_chain_add(sampler, lib.llama_sampler_init_temp(1.0))
    lib.llama_sampler_chain_add(sampler, lib.llama_sampler_init_dist(0))
    batch = lib.llama_batch_init(sequences * PROMPT, 0, 1)

    def feed(rows):
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.logits[i] = token, position, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        if lib.llama_decode(context, batch):
            raise RuntimeError(f"llama_decode failed with {len(rows)} tokens")

    def draw(outputs):
        return [lib.llama_sampler_sample(sampler, context, at) for at in outputs]

    feed([((i * 31 + s * 17) % vocabulary, i, s, i == PROMPT - 1) for s in range(sequences) for i in range(PROMPT)])
    tokens = draw(s * PROMPT + PROMPT - 1 for s in range(sequences))
    times = []
    for step in range(NEW - 1):
        start = time.perf_counter()
        feed([(token, PROMPT + step, s, True) for s, token in enumerate(tokens)])
        tokens = draw(range(sequences))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def hapo_side(lab, threads, compute, shape):
    """Seconds of a step by number of sequences and format of the weights, and the report."""
    command = [lab, "--threads", str(threads), "bench", "--shape", shape, "--only", "decoding", "--compute", compute,
               "--json"]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    found = {}
    for it in report["results"]:
        count, _, weights, *_ = it["case"].split()
        name = weights if it["compute"] == "f32" else "bf16 products"
        found[int(count), name] = it["seconds"], it["share_of_limit"]
    return report, found


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--lab", default="target/release/hapo-lab")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--shape", default="smollm2-135m", choices=SHAPES)
    ap.add_argument("--sequences", type=int, nargs="+", default=[1, 4, 8, 64])
    ap.add_argument("--compute", default="f32", choices=["f32", "bf16"], help="bf16 measures f32 as well")
    ap.add_argument("--llama", nargs=2, help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.llama:
        print(llama_side(a.llama[0], int(a.llama[1]), a.threads, SHAPES[a.shape][-1]))
        return
    ours, shares, theirs = {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: f"{folder}/{name}.gguf" for name in FORMATS}
        for name, path in paths.items():
            write_model(path, name, a.shape)
        for number in range(a.rounds):
            report, found = hapo_side(a.lab, a.threads, a.compute, a.shape)
            if number == 0:
                print(f"{a.shape}: {report['cpu']}, {report['threads']} threads, {report['instructions']}, "
                      f"peak {report['peak_gflops']:.0f} GFLOP/s, {report['memory_gb_per_s']:.1f} GB/s", flush=True)
            for key, (seconds, share) in found.items():
                ours.setdefault(key, []).append(seconds)
                shares.setdefault(key, []).append(share)
            for count in a.sequences:
                for name, path in paths.items():
                    command = [sys.executable, __file__, "--shape", a.shape, "--threads", str(a.threads), "--llama", path,
                               str(count)]
                    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                    theirs.setdefault((count, name), []).append(float(out))
    names = list(dict.fromkeys(name for _, name in ours))
    heads = [head for name in names for head in (f"{name}, tokens/s", "of limit")]
    print("| sequences | " + " | ".join(heads) + " | " + " | ".join(f"llama.cpp {it}" for it in FORMATS)
          + " | best to llama.cpp's best |")
    print("|---" * (len(heads) + len(FORMATS) + 2) + "|")
    for count in a.sequences:
        rate = lambda times: count / statistics.median(times)
        row = [str(count)]
        for name in names:
            row += [f"{rate(ours[count, name]):.0f}", f"{100 * statistics.median(shares[count, name]):.0f} %"]
        peers = [rate(theirs[count, name]) for name in FORMATS]
        row += [f"{it:.0f}" for it in peers]
        row.append(f"{max(rate(ours[count, name]) for name in names) / max(peers):.2f}")
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
