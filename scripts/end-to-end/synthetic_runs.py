#!/usr/bin/env python3
"""Run folders for the browser test, without training: made-up metrics and hostile rollouts.

    python3 scripts/end-to-end/synthetic_runs.py DIR [--runs 5] [--steps 2000]

DIR/run-0 … hold metrics.jsonl with every metric of a real run, recipe.toml, gate.json and rollouts of every
hundredth step; run-0 and run-1 differ in their seed alone. DIR/hostile has the texts of HOSTILE as completions.
Needs the standard library alone.
"""

import argparse
import json
import math
import pathlib
import random

HOSTILE = {
    "script": "<script>document.body.dataset.pwned='1'</script><img src=x onerror=\"document.body.dataset.pwned='2'\">",
    "closing": "</script></pre></template><h1 id='injected-markup'>markup</h1><!--",
    "rtl": "\u202eevil\u202c שלום עולם مرحبا \u2067abc\u2069 \\boxed{5}",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 \\boxed{🙂}",
    "controls": "\x00\x07\x1b[31mred\x1b[0m \u2028 \u0085 \ufeff{{blocks}} ${x} %s",
    "million": "".join(random.Random(1).choices("0123456789 abcdef\n", k=1_000_000)) + "THE-END",
    "surrogate": "a" * 1999 + "🙂" * 10,
    "empty": "",
}


def zstd_stored(data):
    """A zstd frame of uncompressed blocks (RFC 8878)."""
    frame = bytearray(b"\x28\xb5\x2f\xfd\xe0") + len(data).to_bytes(8, "little")
    parts = [data[at : at + 65536] for at in range(0, len(data), 65536)] or [b""]
    for n, part in enumerate(parts):
        last = n == len(parts) - 1
        frame += (last | len(part) << 3).to_bytes(3, "little") + part
    return bytes(frame)


def recipe(name, seed, steps, lr):
    return (
        f'# resolved by hapo 0.1.0\nname = "{name}"\nmethod = "trapo"\nseed = {seed}\nsteps = {steps}\n'
        f'[data]\ngrader = "math"\nextraction = "announced"\ntruncated = "wrong"\n[optim]\nlr = {lr}\n[hapo]\ngate = "confidence"\nturn_off_epoch = 1.5\n'
    )


def line(step, steps, draw, extinct):
    t = step / steps
    reward = 0.1 + 0.75 / (1 + math.exp(-10 * (t - 0.35))) + draw.gauss(0, 0.03)
    beta = max(0.0, 0.6 - 1.2 * t + draw.gauss(0, 0.05)) if step < extinct else 0.0
    groups = 128
    fail, solved = round(groups * (1 - reward) * 0.5), round(groups * reward * 0.4)
    noise = lambda mean: mean * math.exp(draw.gauss(0, 0.1))
    return {
        "step": step, "epoch": step / 62, "reward/mean": reward + beta / 8, "reward/policy_only": reward,
        "groups/all_fail": fail, "groups/all_solved": solved, "groups/partially_solved": groups - fail - solved,
        "groups/without_signal": solved, "groups/dropped": 0, "gate/threshold": 0.05 + 0.1 / (1 + math.exp(10 * (step / extinct * 1.5 - 1.5))),
        "gate/success_limit": 0 if step < extinct else -1, "gate/beta": beta, "gate/beta_trajectories": beta / 8,
        "gate/open_no_teacher": 3, "response_length/mean": noise(900 + 600 * t), "response_length/p95": noise(2400),
        "response_length/truncated": noise(0.02), "loss": draw.gauss(0, 0.02), "policy/loss": draw.gauss(0, 0.02),
        "teacher/loss": draw.gauss(-0.05, 0.01), "teacher/token_share": beta / 4, "teacher/mean_prob": 0.4 + 0.4 * t,
        "teacher/grad_norm": noise(0.1), "policy/clip_fraction": noise(0.004), "policy/ratio_mean": noise(1.0),
        "policy/ratio_max": noise(2.0), "grad_norm": noise(0.3), "lr": 5e-6, "policy/entropy": noise(0.5 - 0.3 * t),
        "teacher/entropy": noise(0.2), "entropy/all": noise(0.45 - 0.25 * t), "sampler/logprob_gap_max": 0,
        "verify/correct": round(1024 * reward), "verify/wrong": 1024 - round(1024 * reward), "verify/unparsable": 0,
        "verify/ms": noise(4.0), "time/sample": noise(30.0), "time/verify": noise(0.05), "time/train": noise(18.0),
        "time/step": noise(50.0), "tokens_per_second/sample": noise(4e4), "tokens_per_second/train": noise(6e4), "memory/rss": 4e10,
        **({"policy/kl_to_initial": noise(0.02 * t)} if step % 10 == 0 else {}),
    }


def rollout(step, prompt, slot, role, injected, completion, verdict, reason=None):
    it = {
        "step": step, "prompt_id": prompt, "id": f"problem-{prompt}", "problem": f"What is {prompt} + 2?", "prompt_tokens": [1, 2, 3],
        "answer": str(prompt + 2), "role": role, "slot": slot, "injected": injected, "completion": completion,
        "tokens": list(range(20)), "log_probs": [-0.5] * 20, "ended": True, "verdict": verdict,
    }
    return {**it, "reason": reason} if reason else it


def write_rollouts(folder, step, lines):
    (folder / "rollouts").mkdir(exist_ok=True)
    text = "".join(json.dumps(it, ensure_ascii=False) + "\n" for it in lines)
    (folder / "rollouts" / f"step-{step:06}.jsonl.zst").write_bytes(zstd_stored(text.encode()))


def make_run(folder, name, seed, steps, lr):
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed * 1000 + lr)
    extinct = max(2, steps // 4)
    (folder / "recipe.toml").write_text(recipe(name, seed, steps, lr))
    gate = {"gate": "confidence", "group_size": 8, "success_limit": 2, "gamma0": 0.35, "turn_off_epoch": 1.5, "steepness": 10, "steps_per_epoch": 62, "extinct_at_step": extinct,
            "rungs": [{"successes": s, "closes_at_epoch": 1.5 - s / 2, "first_closed_step": max(1, extinct - extinct // 4 * s)} for s in range(3)], "steps": []}
    (folder / "gate.json").write_text(json.dumps(gate))
    with open(folder / "metrics.jsonl", "w") as file:
        for step in range(1, steps + 1):
            file.write(json.dumps(line(step, steps, draw, extinct)) + "\n")
    for step in range(100, steps + 1, 100):
        lines = []
        for prompt in range(32):
            injected = prompt % 3 == 0
            for slot in range(8):
                text = " ".join(draw.choice(["so", "then", "add", "carry", "the", "sum", "is", str(draw.randrange(1000))]) for _ in range(300))
                right = not injected and draw.random() < 0.5
                role = "replaced" if injected and slot == 0 else "policy"
                lines.append(rollout(step, prompt, slot, role, injected, f"{text} \\boxed{{{prompt + 2 if right else prompt}}}", "correct" if right else "wrong"))
                if role == "replaced":
                    lines.append(rollout(step, prompt, 0, "teacher", True, f"Two more: \\boxed{{{prompt + 2}}}", "correct"))
        write_rollouts(folder, step, lines)


def make_hostile(folder):
    make_run(folder, '<img src=x onerror=alert(1)>', 9, 3, 5)
    lines = [rollout(3, 3, n, "policy", False, text, "wrong") for n, text in enumerate(HOSTILE.values())]
    lines += [rollout(3, 4, 0, "policy", False, "no box", "unparsable", "<b>no answer found</b>")]
    lines[0]["problem"] = HOSTILE["script"] + HOSTILE["rtl"]
    for it in lines[1:8]:
        it["problem"] = lines[0]["problem"]
    write_rollouts(folder, 3, lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    for n in range(args.runs):
        make_run(args.dir / f"run-{n}", f"run-{n}", n % 2, args.steps, n // 2 + 1)
    make_hostile(args.dir.parent / f"{args.dir.name}-hostile")


if __name__ == "__main__":
    main()
