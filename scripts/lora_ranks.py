"""Adapters of rank 1, 8 and 32 against all weights on the built-in task, three seeds each.

    python scripts/lora_ranks.py --hapo target/release/hapo --out runs/lora-ranks

Runs recipes/quickstart/trapo-hapo.toml over 60 steps. The learning rate of each arm is the best of three (of
four or five where the best one lies at the end of the grid) by pass@1 on the development split with a seed of
its own; then three seeds are run at that rate and evaluated on the held-out split. What is already there is not
run again, and a run that was cut off resumes.
"""

import argparse
import json
import shutil
import statistics
import subprocess
from pathlib import Path

RECIPE = "recipes/quickstart/trapo-hapo.toml"
STEPS = 60
LEVELS = "multiply:6,add:5,linear:4"
SEARCH_SEED = 100
SEEDS = (0, 1, 2)
GRIDS: dict[str, tuple[int, list[float]]] = {
    "all weights": (0, [3e-5, 1e-4, 3e-4]),
    "rank 1": (1, [3e-4, 1e-3, 3e-3]),
    "rank 8": (8, [3e-4, 1e-3, 3e-3]),
    "rank 32": (32, [3e-4, 1e-3, 3e-3]),
}


def train(hapo: str, out: Path, rank: int, rate: float, seed: int) -> Path:
    """A finished run's folder."""
    folder = out / f"rank-{rank}-rate-{rate:g}-seed-{seed}"
    if (folder / "done").exists():
        return folder
    command = [hapo, "train", RECIPE, "--run-dir", str(folder), "--quiet", "--no-preflight"]
    for key, value in {"steps": STEPS, "seed": seed, "optim.lr": rate}.items():
        command += ["--set", f"{key}={value}"]
    if rank:
        command += ["--set", f"lora.rank={rank}", "--unset", "model.dtype"]
    if any((folder / "checkpoints").glob("step-*")):
        command.append("--resume")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (folder / "done").touch()
    return folder


def evaluate(hapo: str, folder: Path, rank: int, split: str) -> float:
    """pass@1 over the three levels that are trained, four draws of 200 problems each."""
    record = folder / f"{split}.json"
    if not record.exists():
        last = sorted((folder / "checkpoints").glob("step-*"))[-1]
        model = ["builtin:base", "--adapter", str(last)] if rank else [str(last)]
        command = [hapo, "eval", "--model", *model, "--suite", LEVELS, "--split", split, "--k", "4", "--json"]
        record.write_text(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return statistics.mean(level["average"]["mean"] for level in json.loads(record.read_text()))


def best_rate(hapo: str, out: Path, rank: int, grid: list[float]) -> tuple[float, dict[float, float]]:
    scores: dict[float, float] = {}

    def score(rate: float) -> None:
        scores[rate] = evaluate(hapo, train(hapo, out, rank, rate, SEARCH_SEED), rank, "development")

    for rate in grid:
        score(rate)
    for _ in range(2):
        best = max(scores, key=lambda rate: scores[rate])
        if best == max(scores):
            score(float(f"{best * 10**0.5:.0e}"))
        elif best == min(scores):
            score(float(f"{best / 10**0.5:.0e}"))
        else:
            break
    return max(scores, key=lambda rate: scores[rate]), dict(sorted(scores.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hapo", default="target/release/hapo")
    parser.add_argument("--out", type=Path, default=Path("runs/lora-ranks"))
    arguments = parser.parse_args()
    print("| arm | learning rate (development score of each) | held-out, seeds 0, 1, 2 | mean |")
    print("|---|---|---|---|")
    for name, (rank, grid) in GRIDS.items():
        rate, searched = best_rate(arguments.hapo, arguments.out, rank, grid)
        folders = [train(arguments.hapo, arguments.out, rank, rate, seed) for seed in SEEDS]
        scores = [evaluate(arguments.hapo, folder, rank, "held-out") for folder in folders]
        tried = ", ".join(f"{r:g}: {s:.3f}" for r, s in searched.items())
        seeds = ", ".join(f"{score:.3f}" for score in scores)
        print(f"| {name} | **{rate:g}** ({tried}) | {seeds} | {statistics.mean(scores):.3f} |", flush=True)


if __name__ == "__main__":
    main()
