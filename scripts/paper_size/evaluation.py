"""Checkpoints by the paper's protocol, each completion graded in two ways, and the tables beside the paper's."""

import json
from pathlib import Path
from typing import Any

from paper_size.data import benchmarks, instruction
from paper_size.rows import TABLE_1, TABLE_2, Paper, call, free_port, has_weights, served

SERVER = (
    "vllm serve {model} --served-model-name {name} --port {port} --generation-config vllm --max-model-len {tokens} "
    "--data-parallel-size {gpus}"
)
CONTEXT = 2048 + 8192
"""The longest problem of the six has fewer than 2048 tokens."""
GRADINGS = {
    "any": "the paper's way: an answer anywhere, also of completions that were cut off (--extraction any --truncated "
    "grade)",
    "announced": "ours: a boxed or announced answer of a completion that ended (--extraction announced --truncated "
    "wrong)",
}
COLUMNS = {
    "math500": "MATH-500", "olympiad": "Olympiad", "minerva": "Minerva", "aime24": "AIME24", "amc": "AMC",
    "aime25": "AIME25",
}  # fmt: skip
PAPER: dict[str, dict[str, list[float]]] = {
    "3b": {
        "base": [24.40, 11.11, 11.76, 3.13, 14.50, 1.56, 11.08],
        "grpo": [63.80, 25.78, 27.21, 4.27, 31.25, 1.67, 25.66],
        "sft": [44.40, 16.44, 11.76, 1.25, 18.90, 0.83, 15.59],
        "sft-grpo": [56.20, 23.56, 25.37, 1.46, 28.99, 1.67, 22.87],
        "luffy": [63.60, 26.81, 26.80, 5.62, 32.34, 1.67, 26.15],
        "luffy-hapo": [66.60, 28.15, 27.94, 7.08, 33.28, 2.92, 27.66],
        "srft": [61.80, 28.44, 25.37, 5.94, 30.50, 3.23, 25.88],
        "srft-hapo": [64.20, 28.59, 28.70, 4.17, 33.43, 2.71, 26.96],
        "trapo": [60.60, 26.81, 24.63, 4.17, 30.31, 2.71, 24.87],
        "hapo-table1": [67.00, 31.56, 30.88, 5.62, 35.32, 3.02, 28.90],
        "hindsight": [54.40, 26.07, 27.94, 3.33, 28.84, 2.19, 23.80],
        "hapo-method": [66.80, 29.63, 27.57, 5.31, 33.09, 3.44, 27.64],
    },
    "7b": {
        "base": [28.40, 16.00, 5.88, 4.90, 19.09, 1.25, 12.59],
        "grpo": [73.60, 38.07, 29.04, 18.44, 47.82, 5.31, 35.38],
        "sft": [45.80, 17.93, 18.38, 3.44, 20.44, 1.04, 17.84],
        "sft-grpo": [53.60, 23.70, 23.53, 4.06, 25.56, 3.13, 22.26],
        "luffy": [76.20, 38.37, 34.56, 12.40, 46.08, 6.67, 35.71],
        "luffy-hapo": [75.80, 40.74, 33.82, 13.23, 46.95, 8.96, 36.58],
        "srft": [70.60, 33.93, 32.72, 13.96, 43.49, 7.50, 33.70],
        "srft-hapo": [77.20, 39.70, 34.56, 15.21, 48.72, 13.96, 38.22],
        "trapo": [73.20, 35.56, 29.78, 10.42, 42.85, 8.44, 33.37],
        "hapo-table1": [74.00, 41.93, 34.56, 12.71, 45.37, 7.92, 36.08],
    },
}
"""Percent, by the columns and their mean. Table 2 is of 3B alone; each of its readings has the same printed row."""
SAME_ROW = {"gated-m0": "hapo-table1", "annealed-03": "hapo-method"}


def evaluate(paper: Paper) -> None:
    """Asks a server of each checkpoint, the base model's too, and grades the record in both ways."""
    from hapo import ends

    if paper.is_mini:
        suite = ["--suite", "mini6"]
    else:
        benchmarks(paper)
        suite = ["--suite", "math6", "--data", str(paper.benchmarks), "--concurrency", "512"]
    paper.name_end()
    for name in paper.rows:
        model, record = paper.checkpoint(name), paper.out / f"{name}.announced.jsonl"
        if (paper.out / f"{name}.any.jsonl").exists():
            print(f"{name}: evaluated", flush=True)
            continue
        if not has_weights(model):
            print(f"{name}: not trained yet", flush=True)
            continue
        ends.read(str(model)).check()
        port = free_port()
        command = paper.args.server.format(model=model, name=name, port=port, tokens=CONTEXT, gpus=paper.args.gpus)
        with served(command, port) as address:
            call([
                paper.hapo, "eval", "--endpoint", address, "--model", name, "--instruction", instruction(paper),
                "--grader", "math",
                "--extraction", "announced", "--truncated", "wrong", "--out", record, *suite, *paper.args.eval_option,
            ])  # fmt: skip
        grade_again(paper, record, paper.out / f"{name}.any.jsonl")
        tables_of(paper, "any", [name])


def grade_again(paper: Paper, record: Path, to: Path) -> None:
    """The same completions by the paper's way."""
    head, *lines = [json.loads(it) for it in record.read_text(encoding="utf-8").splitlines()]
    head["settings"] |= {"extraction": "any", "truncated": "grade"}
    asked = [
        {"gold": gold, "pred": it["text"]}
        for line in lines
        for it in line["answers"]["completions"]
        for gold in golds(line["answers"]["gold"])
    ]
    rows, graded = to.with_suffix(".rows"), to.with_suffix(".graded")
    rows.write_text("".join(json.dumps(it) + "\n" for it in asked), encoding="utf-8")
    call(
        [paper.hapo, "grade", rows, "--grader", "math", "--extraction", "any", "--out", graded],
        capture_output=True,
        text=True,
    )
    verdicts = map(json.loads, graded.read_text(encoding="utf-8").splitlines())
    for line in lines:
        for it in line["answers"]["completions"]:
            of_golds = [next(verdicts) for _ in golds(line["answers"]["gold"])]
            first, *_ = sorted(of_golds, key=lambda verdict: verdict["verdict"] != "correct")
            kept = {key: it[key] for key in ("text", "tokens", "ended")}
            it.clear()
            it.update(kept, verdict=first["verdict"] or "unparsable")
            if it["verdict"] == "unparsable":
                it["reason"] = first["reason"]
    aside = to.with_suffix(".aside")
    aside.write_text("".join(json.dumps(it, ensure_ascii=False) + "\n" for it in [head, *lines]), encoding="utf-8")
    aside.rename(to)
    rows.unlink()
    graded.unlink()


def golds(text: str) -> list[str]:
    """A row's gold answers: a text that is a list of them, or one."""
    try:
        found = json.loads(text)
    except ValueError:
        return [text]
    return [str(it) for it in found] if isinstance(found, list) and found else [text]


def tables(paper: Paper) -> None:
    for grading, words in GRADINGS.items():
        print(f"# Graded {words}\n")
        print("## Table 1\n")
        tables_of(paper, grading, list(TABLE_1), TABLE_1)
        for reading, names in TABLE_2.items():
            print(f"## Table 2, {reading}\n")
            tables_of(paper, grading, list(names), names)


def tables_of(paper: Paper, grading: str, rows: list[str], names: dict[str, str] | None = None) -> None:
    """Scores in percent, the paper's in brackets, and differences to the host with their 95 % intervals."""
    names = {it: (names or {}).get(it, it) for it in rows if (paper.out / f"{it}.{grading}.jsonl").exists()}
    if not names:
        return print("nothing evaluated yet\n")
    files = [f"{name}={paper.out}/{row}.{grading}.jsonl" for row, name in names.items()]
    told = call([paper.hapo, "eval", "--compare", *files, "--layout", "json"], capture_output=True, text=True)
    found = json.loads(told)
    columns = found["benchmarks"]
    if not columns:
        return print("no benchmark is evaluated whole\n")
    print("\n| |", " | ".join(COLUMNS.get(it, it) for it in columns), "| mean |")
    print("|---" * (len(columns) + 2) + "|")
    differences = []
    for (row, name), scored in zip(names.items(), found["rows"], strict=True):
        theirs = PAPER.get(paper.args.size, {}).get(SAME_ROW.get(row, row))
        by_column = dict(zip([*COLUMNS, "mean"], theirs or [], strict=False))
        cells = [*zip(columns, scored["cells"], strict=True), ("mean", scored["average"])]
        print(f"| {name} |", " | ".join(cell(it, by_column.get(column)) for column, it in cells), "|")
        delta = (scored["average"] or {}).get("delta")
        if delta:
            paper_s = PAPER.get(paper.args.size, {}).get(row_of(names, scored["base"]))
            printed = f"; the paper: {theirs[-1] - paper_s[-1]:+.2f}" if theirs and paper_s else ""
            differences.append(f"- {name} − {scored['base']}: {interval(delta)}{printed}")
    print("", *differences, "", sep="\n", flush=True)


def row_of(names: dict[str, str], name: str) -> str:
    row = next(it for it, printed in names.items() if printed == name)
    return SAME_ROW.get(row, row)


def cell(found: Any, theirs: float | None) -> str:
    ours = "" if found is None else f"{100 * found['score']['mean']:.2f}"
    return ours if theirs is None else f"{ours} ({theirs:.2f})"


def interval(it: Any) -> str:
    low, high = (100 * it[key] for key in ("low", "high"))
    return f"{100 * it['mean']:+.2f} [{low:+.2f}, {high:+.2f}]"
