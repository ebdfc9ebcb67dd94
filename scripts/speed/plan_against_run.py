"""What `hapo plan` says against what `hapo train` takes: the process's peak of memory and the time of a step.

    python scripts/speed/plan_against_run.py [--binary target/release/hapo] [--only 135m] [--threads 2] [--set KEY=VALUE]

Needs nothing but Python. Three shapes with random weights; responses go to their limit, since one id in thousands
ends one. The plan's rates are measured right after each run: compare on a machine that does nothing else.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile

#        hidden, layers, heads, kv_heads, ffn, vocabulary, prompts, group, new tokens, steps
SHAPES = {
    "quickstart": (192, 4, 6, 2, 512, 2048, 16, 8, 96, 4),
    "30m": (384, 16, 6, 2, 1024, 16384, 8, 8, 62, 3),
    "135m": (576, 30, 9, 3, 1536, 49152, 2, 8, 64, 3),
}


def tokenizer_of(size, path):
    """The built-in tokenizer with words that no text has, so that few draws end a response."""
    with open("models/base/tokenizer.json") as file:
        tokenizer = json.load(file)
    vocabulary = tokenizer["model"]["vocab"]
    for index in range(len(vocabulary), size):
        vocabulary[f"w{index}"] = index
    with open(path, "w") as file:
        json.dump(tokenizer, file)


def recipe_of(name, folder):
    hidden, layers, heads, kv_heads, ffn, vocabulary, prompts, group, new, steps = SHAPES[name]
    tokenizer = os.path.join(folder, "tokenizer.json")
    tokenizer_of(vocabulary, tokenizer)
    path = os.path.join(folder, f"{name}.toml")
    with open(path, "w") as file:
        file.write(f"""
name = "{name}"
method = "grpo"
steps = {steps}
[model.init]
hidden = {hidden}
layers = {layers}
heads = {heads}
kv_heads = {kv_heads}
ffn = {ffn}
tokenizer = "{tokenizer}"
[data]
prompts = 64
levels = ["multiply:6", "add:5"]
max_prompt_tokens = 24
template = "chatml"
[sampling]
group_size = {group}
prompts_per_step = {prompts}
max_new_tokens = {new}
[loss]
entropy_coef = 0.001
[metrics]
preflight = 0
rollouts_every = 0
""")
    return path


def plan_of(options, recipe, lengths=()):
    command = [options.binary, "--threads", str(options.threads), "plan", recipe, "--json", *lengths]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)[0]


def train(options, recipe, run_dir):
    """Steps as they are logged, and the largest resident set in bytes."""
    command = [options.binary, "--threads", str(options.threads), "train", recipe, "--quiet", "--run-dir", run_dir]
    child = subprocess.Popen([*command, *options.set], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, status
    with open(os.path.join(run_dir, "metrics.jsonl")) as file:
        return [json.loads(line) for line in file], usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="target/release/hapo")
    parser.add_argument("--only", action="append", choices=SHAPES, default=None)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE of the recipe")
    options = parser.parse_args()
    options.set = [part for it in options.set for part in ("--set", it)]
    for name in options.only or SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            recipe = recipe_of(name, folder)
            before = plan_of(options, recipe, options.set)
            steps, peak = train(options, recipe, os.path.join(folder, "run"))
            length = statistics.mean(it["response_length/mean"] for it in steps)
            lengths = ["--prompt-tokens", "20", "--response-tokens", f"{length:.1f}", *options.set]
            plans = [plan_of(options, recipe, lengths) for _ in range(3)]
        print(f"{name}: {before['parameters'] / 1e6:.1f} M parameters, responses of {length:.0f} tokens")
        planned = before["total_bytes"]
        print(f"  memory: planned {planned / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB, {planned / peak - 1:+.1%}")
        # The first step touches fresh memory.
        for what, planned, measured in [
            ("sampling", "sampling_seconds", "time/sample"),
            ("training", "training_seconds", "time/train"),
        ]:
            times = [it[planned] for it in plans]
            took = [it[measured] for it in steps[1:]]
            planned, took = statistics.mean(times), statistics.median(took)
            print(f"  {what}: planned {planned:.3f} s, took {took:.3f} s, {planned / took - 1:+.1%}")
        planned = statistics.mean(it["sampling_seconds"] + it["training_seconds"] for it in plans)
        took = statistics.median(it["time/step"] for it in steps[1:])
        print(f"  a step: planned {planned:.3f} s, took {took:.3f} s, {planned / took - 1:+.1%}")
        rates = plans[0]["device"]
        print(f"  rates: {rates['flops'] / 1e9:.0f} GFLOP/s, {rates['bandwidth'] / 1e9:.0f} GB/s")


if __name__ == "__main__":
    main()
