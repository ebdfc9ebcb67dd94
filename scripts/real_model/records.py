"""The records of scripts/real_model/arms.sh, dates.sh or teacher.sh, and the table that is made of them.

    python3 scripts/real_model/records.py FOLDER > docs/results/real-json.runs.jsonl
    python3 scripts/real_model/records.py docs/results/real-json.runs.jsonl
    python3 scripts/real_model/records.py FOLDER search      # each arm's best setting, of teacher.sh

FOLDER is what the script wrote into. A line is a step of a run, the score of a model, or one of ten transcripts.
"""

import json
import math
import pathlib
import statistics
import sys

ARMS = {"grpo": "GRPO", "hapo": "HAPO", "trapo": "TRAPO", "sft": "SFT", "sft-grpo": "SFT, then GRPO"}
ARMS |= {"few": "SFT 3 steps, then GRPO"}
# The folders of an arm's runs, as far as they are there.
TWO = ["first-{}", "then-{}", "sft-grpo-{}/sft", "sft-grpo-{}/grpo"]
FEW = ["few-{}/sft", "few-{}/grpo"]
RUNS = {arm: [f"{arm}-{{}}"] for arm in ARMS} | {"sft-grpo": TWO, "few": FEW}
KEYS = ["step", "reward/policy_only", "gate/beta", "teacher/distinct", "response_length/truncated", "time/step"]
GROUPS = 8
# Student's t for 95 % by the number of seeds.
STUDENT = {2: 12.7062, 3: 4.3027, 4: 3.1824, 5: 2.7764}


def lines(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def records(folder: pathlib.Path) -> list[dict]:
    found = [{"model": "base", **score(folder, "base")}]
    for arm, runs in RUNS.items():
        for seed in range(max(STUDENT)):
            if not (folder / f"scores/{arm}-{seed}.json").exists():
                continue
            for run in runs:
                metrics = folder / run.format(seed) / "metrics.jsonl"
                for step in lines(metrics) if metrics.exists() else []:
                    kept = {key: step[key] for key in KEYS if key in step}
                    found.append({"arm": arm, "run": run.replace("-{}", ""), "seed": seed, **kept})
            found.append({"model": arm, "seed": seed, **score(folder, f"{arm}-{seed}")})
    answers = [answers_of(folder, name) for name in ("base", "grpo-0", "hapo-0")]
    for problem in list(answers[0])[:10]:
        texts = [it[problem] for it in answers]
        found.append({"id": problem, "base": texts[0], "grpo": texts[1], "hapo": texts[2]})
    return found


def score(folder: pathlib.Path, name: str) -> dict:
    [it] = json.loads((folder / f"scores/{name}.json").read_text())
    return {key: it[key] for key in ("average", "pass_at", "truncated", "length")}


def answers_of(folder: pathlib.Path, name: str) -> dict[str, list]:
    rows = [it["answers"] for it in lines(folder / f"scores/{name}.jsonl")[1:]]
    first = {it["id"]: it["completions"][0] for it in rows}
    return {name: [first[name]["text"], first[name]["verdict"]] for name in sorted(first)}


def table(rows: list[dict]) -> None:
    base = next(it for it in rows if it.get("model") == "base")
    print("| | correct, by seed | mean | cut off | teacher's answers used |\n|---|---|---|---|---|")
    mean, by_arm = base["average"], {}
    print(f"| before | {mean['mean']:.3f} [{mean['low']:.3f}, {mean['high']:.3f}] | | {base['truncated']:.2f} | |")
    for arm, label in ARMS.items():
        scores = [it for it in rows if it.get("model") == arm]
        if not scores:
            continue
        each = ", ".join(f"{it['average']['mean']:.3f}" for it in scores)
        seeds = by_arm[arm] = [it["average"]["mean"] for it in scores]
        cut = statistics.mean(it["truncated"] for it in scores)
        print(f"| {label} | {each} | {over_seeds(seeds)} | {cut:.2f} | {used(rows, arm)} |")
    for arm in ("grpo", "trapo", "sft", "sft-grpo", "few"):
        if arm in by_arm and "hapo" in by_arm:
            apart = [ours - other for ours, other in zip(by_arm["hapo"], by_arm[arm])]
            print(f"\nHAPO over {ARMS[arm]}: {over_seeds(apart, signed=True)}")


def over_seeds(values: list[float], signed: bool = False) -> str:
    """The mean with its 95 % interval over three or five seeds, by Student's t; a share's is cut at 0 and 1."""
    mean = statistics.mean(values)
    if len(values) not in STUDENT:
        return f"{mean:.3f}"
    half = STUDENT[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    if signed:
        return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"
    return f"{mean:.3f} [{max(0, mean - half):.3f}, {min(1, mean + half):.3f}]"


def used(rows: list[dict], arm: str) -> str:
    """Answers of the teacher that enter a run, by seed: every prompt of imitation, every open group of the gate."""
    counts = []
    for seed in sorted({it["seed"] for it in rows if it.get("model") == arm}):
        steps = [it for it in rows if it.get("arm") == arm and it["seed"] == seed]
        imitated = sum(it["run"] in ("sft", "first", "sft-grpo/sft", "few/sft") for it in steps)
        counts.append(GROUPS * imitated + round(sum(GROUPS * it.get("gate/beta", 0) for it in steps)))
    return ", ".join(map(str, counts))


def chosen(folder: pathlib.Path) -> None:
    """The setting with the highest score on the development problems; a tie goes to the first by name."""
    best: dict[str, tuple[float, str]] = {}
    for path in sorted(folder.glob("scores/search-*.json")):
        name = path.stem.removeprefix("search-")
        arm = max((it for it in ARMS if name.startswith(f"{it}-")), key=len)
        setting = name.removeprefix(f"{arm}-")
        mean = score(folder, path.stem)["average"]["mean"]
        print(f"{arm} {setting}: {mean:.3f}", file=sys.stderr)
        if arm not in best or mean > best[arm][0]:
            best[arm] = mean, setting
    for arm, (_, setting) in best.items():
        print(arm, setting)


def main() -> None:
    path = pathlib.Path(sys.argv[1])
    if sys.argv[2:] == ["search"]:
        chosen(path)
    elif path.is_dir():
        for it in records(path):
            print(json.dumps(it))
    else:
        table(lines(path))


if __name__ == "__main__":
    main()
