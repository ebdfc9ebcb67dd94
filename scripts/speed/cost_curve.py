"""How the cost of a training step grows with the model and with the context: prints time per operation.

    cargo build --release -p hapo-lab
    python scripts/speed/cost_curve.py [--lab target/release/hapo-lab] [--threads 2] [--compute f32]

Every batch has about as many tokens in all, so that the context alone changes along a line. Operations are those of
products and of causal attention; where the time per operation is flat, the cost grows as the operations do.
"""
import argparse
import json
import os
import subprocess

# Tokens of a batch for each shape, and its contexts.
TOKENS = {"bench-tiny": 8192, "smollm2-135m": 1024, "qwen2.5-0.5b": 512}
CONTEXTS = (128, 256, 512, 1024, 2048, 4096)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--lab", default="target/release/hapo-lab")
    ap.add_argument("--threads", type=int, default=os.cpu_count())
    ap.add_argument("--compute", default="f32", choices=["f32", "bf16"])
    ap.add_argument("--shape", action="append", choices=list(TOKENS))
    ap.add_argument("--context", action="append", type=int)
    a = ap.parse_args()
    print("| shape | parameters | batch | s a step | GFLOP/s | of limit | ps an operation |")
    print("|---|---|---|---|---|---|---|")
    for shape in a.shape or TOKENS:
        batches = [f"{max(1, TOKENS[shape] // it)}x{it}" for it in a.context or CONTEXTS]
        command = [a.lab, "--threads", str(a.threads), "bench", "--shape", shape, "--only", "training", "--json",
                   "--compute", a.compute, *(word for it in batches for word in ("--batch", it))]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        report = json.loads(out)
        limit = report["peak_gflops"] if a.compute == "f32" else report["rounded_product_gflops"]
        for it in report["results"]:
            if it["compute"] != a.compute:
                continue
            rate = it["share_of_limit"] * limit
            row = [shape, f"{report['parameters']:,}", it["case"], f"{it['seconds']:.3f}", f"{rate:.0f}",
                   f"{100 * it['share_of_limit']:.0f} %", f"{1000 / rate:.2f}"]
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
