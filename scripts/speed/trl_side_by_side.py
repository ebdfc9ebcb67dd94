"""A GRPO step of an adapter and of all weights: `hapo train`, and TRL, with PEFT for the adapter, on one machine.

    cargo build --release -p hapo-cli
    python scripts/speed/trl_side_by_side.py [--shape 135m] [--only hapo-lora hapo-full trl-lora trl-full] [--steps 3]
        [--set compute=bf16 --set optim.moments=bf16]

Needs torch, transformers, trl, peft and datasets (python/tests/trl-requirements.txt), for the weights as well:
they are random, in bf16, with a tokenizer of single letters. 8 responses of `--new-tokens` tokens to each prompt;
rank 16, alpha 32, every matrix of the layers. Every program runs in a process of its own, one after the other;
seconds are the median of the steps after the first, of the clock and of the CPU (the latter say more where
other work runs beside), memory is the largest resident set of the process.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

GROUP = 8
# hidden, layers, heads, key/value heads, inner width, vocabulary
SHAPES = {
    "bench-tiny": (192, 4, 6, 2, 512, 512),
    "135m": (576, 30, 9, 3, 1536, 49152),
    "0.5b": (896, 24, 14, 2, 4864, 151936),
    "1.5b": (1536, 28, 12, 2, 8960, 151936),
}
WORDS = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]

RECIPE = """
name = "{name}"
method = "grpo"
steps = {steps}

[model]
path = "{model}"
{dtype}

[data]
train = "{data}"
template = "none"
grader = "command:{python} {reward}"
truncated = "grade"
max_prompt_tokens = {prompt_tokens}

[sampling]
group_size = {group}
prompts_per_step = {prompts}
max_new_tokens = {new_tokens}

[optim]
lr = 1e-6
micro_batch_tokens = 1024
activation_checkpointing = "layers"

[checkpoint]
every = 0

[metrics]
rollouts_every = 0
{lora}
"""

REWARD = """
import sys, zlib
for line in sys.stdin:
    print(zlib.crc32(line.encode()) % 2, flush=True)
"""


def make_model(shape: str, folder: Path) -> None:
    """Random weights in bf16 and a tokenizer of single letters: a prompt of n words has n tokens."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    hidden, layers, heads, kv_heads, inner, vocabulary = SHAPES[shape]
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    config = Qwen2Config(
        vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=2048,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=0, pad_token_id=0, rope_theta=1e6,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    vocab = {"<end>": 0} | {word: index + 1 for index, word in enumerate(WORDS)}
    vocab |= {f"t{index}": index for index in range(len(vocab), vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>", unk_token="a"
    ).save_pretrained(folder)


def prompts(it: argparse.Namespace) -> list[str]:
    """A run's problems, of `prompt_tokens` words each."""
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=it.prompt_tokens)) for _ in range(it.prompts * it.steps)]


def trl_side(it: argparse.Namespace, model: Path) -> None:
    """Seconds and CPU seconds of every step, in TRL's own bf16: autocast, with bf16 weights beside an adapter in f32."""
    import torch
    import transformers
    from datasets import Dataset
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    which, out = it.trl_side, it.out
    torch.set_num_threads(it.threads)
    times: list[tuple[float, float]] = []

    class Clock(transformers.TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.start = (time.perf_counter(), time.process_time())

        def on_step_end(self, *_, **__):
            times.append((time.perf_counter() - self.start[0], time.process_time() - self.start[1]))

    def reward(completions, **_):
        return [float(index % 2) for index in range(len(completions))]

    lora = which == "trl-lora"
    dtype = torch.bfloat16 if lora else torch.float32
    adapter = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = GRPOTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(model, dtype=dtype),
        processing_class=transformers.AutoTokenizer.from_pretrained(model),
        args=GRPOConfig(
            output_dir=str(out), use_cpu=True, bf16=True, gradient_checkpointing=False, report_to="none",
            loss_type="dr_grpo", scale_rewards="none", beta=0.0, num_generations=GROUP,
            max_completion_length=it.new_tokens, temperature=1.0, num_iterations=1,
            per_device_train_batch_size=it.prompts * GROUP, learning_rate=1e-6, lr_scheduler_type="constant",
            max_steps=it.steps, save_strategy="no", logging_steps=1000, disable_tqdm=True, seed=0,
            generation_kwargs={"suppress_tokens": [0], "top_k": 0},
        ),
        reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": prompts(it)}),
        peft_config=adapter if lora else None,
        callbacks=[Clock()],
    )  # fmt: skip
    trainer.train()
    (out / "times.json").write_text(json.dumps(times))


def hapo_command(which: str, it: argparse.Namespace, model: Path, out: Path) -> list[str]:
    data, reward, recipe = out / "prompts.jsonl", out / "reward.py", out / f"{which}.toml"
    rows = [json.dumps({"problem": text, "answer": "1"}) for text in prompts(it)]
    data.write_text("\n".join(rows) + "\n")
    reward.write_text(REWARD)
    lora = "[lora]\nrank = 16\nalpha = 32" if which == "hapo-lora" else ""
    dtype = 'dtype = "bf16"' if which == "hapo-full" else ""
    recipe.write_text(
        RECIPE.format(
            name=which, steps=it.steps, model=model, dtype=dtype, data=data, python=sys.executable, reward=reward,
            prompt_tokens=it.prompt_tokens, group=GROUP, prompts=it.prompts, new_tokens=it.new_tokens, lora=lora,
        )
    )  # fmt: skip
    options = ["--run-dir", str(out / which), "--threads", str(it.threads), "--no-preflight"]
    return [it.hapo, "train", str(recipe), *options, *(part for pair in it.set for part in ("--set", pair))]


def cpu_seconds(pid: int) -> float:
    """What a running process has used, its own threads alone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(command: list[str], log: Path, metrics: Path) -> tuple[float, list[float]]:
    """Runs a command: its largest resident set in GB, and the CPU seconds between the lines of `metrics`."""
    marks = [0.0]
    with log.open("w") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written)
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= len(marks):
                marks.append(cpu_seconds(process.pid))
            time.sleep(0.1)
        _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed: {log.read_text()[-2000:]}")
    marks = marks if len(marks) > 1 else [0.0, usage.ru_utime + usage.ru_stime]
    return usage.ru_maxrss * 1024 / 1e9, [after - before for before, after in zip(marks, marks[1:])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hapo", default="target/release/hapo")
    parser.add_argument("--shape", choices=SHAPES, default="135m")
    parser.add_argument("--only", nargs="+", default=["hapo-lora", "hapo-full", "trl-lora"])
    parser.add_argument("--prompts", type=int, default=8, help="prompts of a step")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("runs/lora-side-by-side"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of hapo's recipes")
    parser.add_argument("--trl-side", choices=["trl-lora", "trl-full"], help=argparse.SUPPRESS)
    it = parser.parse_args()
    model, out = (it.out / f"random-{it.shape}").resolve(), (it.out / time.strftime("%H%M%S")).resolve()
    if it.trl_side:
        trl_side(it, model)
        return
    if not (model / "model.safetensors").exists():
        make_model(it.shape, model)
    out.mkdir(parents=True)
    print(f"| {it.shape}, {it.prompts} prompts, {it.threads} threads | seconds a step | CPU seconds a step | peak memory, GB |")
    print("|---|---|---|---|", flush=True)
    for which in it.only:
        if which.startswith("trl"):
            if not (out / f"random-{it.shape}").exists():
                (out / f"random-{it.shape}").symlink_to(model)
            command = [sys.executable, __file__, "--trl-side", which, "--shape", it.shape, "--out", str(out)]
            for name in ("prompts", "prompt_tokens", "new_tokens", "steps", "threads"):
                command += [f"--{name.replace('_', '-')}", str(getattr(it, name))]
            memory, _ = measured(command, out / f"{which}.log", out / "none")
            times, cpu = zip(*json.loads((out / "times.json").read_text()))
        else:
            command = hapo_command(which, it, model, out)
            metrics = out / which / "metrics.jsonl"
            memory, cpu = measured(command, out / f"{which}.log", metrics)
            times = [json.loads(line)["time/step"] for line in metrics.read_text().splitlines()]
        columns = [f"{statistics.median(t[1:] or t):.2f} ({', '.join(f'{x:.2f}' for x in t)})" for t in (times, cpu)]
        print(f"| {which} | {' | '.join(columns)} | {memory:.2f} |", flush=True)


if __name__ == "__main__":
    main()
