"""The records of scripts/real_model/arms.sh, dates.sh or teacher.sh, and the table that is made of them.

    python3 scripts/real_model/records.py FOLDER > docs/results/real-json.runs.jsonl
    python3 scripts/real_model/records.py docs/results/real-json.runs.jsonl
    python3 scripts/real_model/records.py FOLDER search      # each arm's best setting, of teacher.sh

FOLDER is what the script wrote into. A line is a step of a run, the score of a model, or one of ten transcripts.
"""

import json
import math
import pathlib
import re
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
    found = [{"model": "base", **score(folder, "base"), **by_steps(folder, "base")}]
    for arm, runs in RUNS.items():
        for seed in range(max(STUDENT)):
            if not (folder / f"scores/{arm}-{seed}.json").exists():
                continue
            for run in runs:
                metrics = folder / run.format(seed) / "metrics.jsonl"
                for step in lines(metrics) if metrics.exists() else []:
                    kept = {key: step[key] for key in KEYS if key in step}
                    found.append({"arm": arm, "run": run.replace("-{}", ""), "seed": seed, **kept})
            name = f"{arm}-{seed}"
            found.append({"model": arm, "seed": seed, **score(folder, name), **by_steps(folder, name)})
    for path in sorted(folder.glob("scores/search-*.json")):
        found.append({"search": path.stem.removeprefix("search-"), **score(folder, path.stem)})
    names = [it for it in ("base", "grpo-0", "hapo-0") if (folder / f"scores/{it}.jsonl").exists()]
    answers = {name.removesuffix("-0"): answers_of(folder, name) for name in names}
    for problem in list(answers["base"])[:10]:
        found.append({"id": problem, **{name: texts[problem] for name, texts in answers.items()}})
    return found


def score(folder: pathlib.Path, name: str) -> dict:
    [it] = json.loads((folder / f"scores/{name}.json").read_text())
    return {key: it[key] for key in ("average", "pass_at", "truncated", "length")}


def by_steps(folder: pathlib.Path, name: str) -> dict:
    """Of word problems, the share that is right by the operations that the program's own solution takes."""
    if not folder.name.startswith("story-"):
        return {}
    problems = lines(folder.parent / "story/held-out.jsonl")
    steps = {it["id"]: "".join(re.findall(r" ([-+*]) ", it["teacher"])) for it in problems}
    verdicts: dict[str, list[bool]] = {}
    for problem, (_, verdict) in answers_of(folder, name).items():
        verdicts.setdefault(steps[problem], []).append(verdict == "correct")
    return {"by_steps": {it: statistics.mean(verdicts[it]) for it in sorted(verdicts)}}


def answers_of(folder: pathlib.Path, name: str) -> dict[str, list]:
    rows = [it["answers"] for it in lines(folder / f"scores/{name}.jsonl")[1:]]
    first = {it["id"]: it["completions"][0] for it in rows}
    return {name: [first[name]["text"], first[name]["verdict"]] for name in sorted(first)}


def table(rows: list[dict]) -> None:
    base = next(it for it in rows if it.get("model") == "base")
    with_distinct = any("teacher/distinct" in it for it in rows)
    head = ["", "correct, by seed", "mean", "cut off", "teacher's answers used"] + ["different ones"] * with_distinct
    print(row_of(head) + "\n" + "|---" * len(head) + "|")
    mean, by_arm = base["average"], {}
    first = f"{mean['mean']:.3f} [{mean['low']:.3f}, {mean['high']:.3f}]"
    print(row_of(["before", first, "", f"{base['truncated']:.2f}", ""] + [""] * with_distinct))
    for arm, label in ARMS.items():
        scores = [it for it in rows if it.get("model") == arm]
        if not scores:
            continue
        by_arm[arm] = {it["seed"]: it["average"]["mean"] for it in scores}
        seeds = list(by_arm[arm].values())
        cut = statistics.mean(it["truncated"] for it in scores)
        each = ", ".join(f"{it:.3f}" for it in seeds)
        cells = [label, each, over_seeds(seeds), f"{cut:.2f}", used(rows, arm)]
        print(row_of(cells + [distinct(rows, arm)] * with_distinct))
    ours = by_arm.pop("hapo", {})
    apart = {arm: [ours[it] - theirs[it] for it in ours if it in theirs] for arm, theirs in by_arm.items()}
    by_p = sorted((it for it in apart if len(apart[it]) > 1), key=lambda it: p_value(apart[it]))
    holm = 0.0
    for place, arm in enumerate(by_p):
        p = p_value(apart[arm])
        holm = max(holm, min(1, (len(by_p) - place) * p))
        print(f"\nHAPO over {ARMS[arm]}: {over_seeds(apart[arm], signed=True)}, p = {p:.3f}, Holm's {holm:.3f}")
    if "by_steps" not in base:
        return
    print("\n" + row_of(["operations", *base["by_steps"]]) + "\n" + "|---" * (1 + len(base["by_steps"])) + "|")
    for arm, label in {"base": "before", **ARMS}.items():
        scores = [it["by_steps"] for it in rows if it.get("model") == arm]
        if scores:
            print(row_of([label] + [f"{statistics.mean(it[step] for it in scores):.2f}" for step in scores[0]]))


def row_of(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def over_seeds(values: list[float], signed: bool = False) -> str:
    """The mean with its 95 % interval over three or five seeds, by Student's t; a share's is cut at 0 and 1."""
    mean = statistics.mean(values)
    if len(values) not in STUDENT:
        return f"{mean:.3f}"
    half = STUDENT[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    if signed:
        return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"
    return f"{mean:.3f} [{max(0, mean - half):.3f}, {min(1, mean + half):.3f}]"


def p_value(apart: list[float]) -> float:
    """Student's t, two-sided, that the mean is 0: the density's area beyond it, by Simpson's rule."""
    freedom, spread = len(apart) - 1, statistics.stdev(apart) if len(apart) > 1 else 0
    if spread == 0:
        return 0.0 if any(apart) and freedom else 1.0
    t = abs(statistics.mean(apart)) * math.sqrt(len(apart)) / spread
    scale = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(math.pi * freedom)
    density = [scale * (1 + (t * it / 1000) ** 2 / freedom) ** (-(freedom + 1) / 2) for it in range(1001)]
    inside = (density[0] + density[-1] + 4 * sum(density[1:-1:2]) + 2 * sum(density[2:-1:2])) * t / 3000
    return max(0.0, 1 - 2 * inside)


def distinct(rows: list[dict], arm: str) -> str:
    """Different answers of the teacher that a run was shown, by seed."""
    of_arm = [it for it in rows if it.get("arm") == arm]
    seeds = sorted({it["seed"] for it in of_arm})
    return ", ".join(str(max(it.get("teacher/distinct", 0) for it in of_arm if it["seed"] == seed)) for seed in seeds)


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
