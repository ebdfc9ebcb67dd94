"""Problems of MATH's levels 3 to 5 without the benchmarks', the teacher's traces, and both as verl reads them."""

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paper_size.rows import ROOT, Paper, call, free_port, served

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."
BENCHMARKS = {
    "math500": ("math", 500), "olympiad": ("olympiad_bench", 675), "minerva": ("minerva", 272), "aime24": ("aime", 30),
    "amc": ("amc", 83), "aime25": ("aime25", 30),
}  # fmt: skip
"""Each with its `data_source` in LUFFY's file, and its number of problems."""
SOURCE = (
    "expected --source FILE: simplelr_qwen_level3to5/train.parquet of huggingface.co/datasets/hkust-nlp/SimpleRL-Zoo-"
    "Data, which the paper follows (add --all-levels where its rows have no level), or MATH itself"
)
SERVER = "vllm serve {model} --port {port} --tensor-parallel-size {gpus}"
LEAST_NUMBERS = 3
HELD_OUT = 256

Row = dict[str, Any]


def data(paper: Paper) -> None:
    """The problems, with the number that is left after each step."""
    if paper.is_mini:
        return prepare(paper)
    if paper.problems.exists():
        return print(f"{paper.problems} is there: {sum(1 for _ in rows_of(paper.problems))} problems")
    if not paper.args.source:
        sys.exit(f"scripts/paper: {SOURCE}")
    paper.problems.parent.mkdir(parents=True, exist_ok=True)
    benchmarks(paper)
    rows: list[Row] = []
    for number, source in enumerate(paper.args.source):
        rows += [{**it, "id": f"{number}-{it['id']}"} for it in converted(paper, Path(source).resolve())]
    print(f"{len(rows):6} rows in {len(paper.args.source)} sources")
    if any("level" in it for it in rows):
        whole = paper.problems.with_suffix(".all.jsonl")
        write(whole, rows)
        rows = converted(paper, whole, "--where", "level=3..5")
        whole.unlink()
    elif not paper.args.all_levels:
        sys.exit("scripts/paper: no row has a level: --all-levels, if the sources hold levels 3 to 5 alone")
    rows = list({text_of(it["problem"]): it for it in rows}.values())
    print(f"{len(rows):6} problems of levels 3 to 5, each once")
    tested = [it for name in BENCHMARKS for it in rows_of(paper.benchmarks / f"{name}.jsonl")]
    for what, key in (("text", lambda it: text_of(it["problem"])), ("numbers and answer", numbers_of)):
        known = {key(it) for it in tested} - {None}
        rows = [it for it in rows if key(it) not in known]
        print(f"{len(rows):6} left without those of the six benchmarks by {what}")
    print("The paper has 8k; MATH's training split has about 5.6k of these levels, more are of its test split.")
    write(paper.problems, rows)


def benchmarks(paper: Paper) -> None:
    """The six files, out of LUFFY's where that is given; refused unless each has its number of problems."""
    given = paper.args.benchmarks
    if given and Path(given).is_file():
        paper.benchmarks.mkdir(parents=True, exist_ok=True)
        for name, (source, _) in BENCHMARKS.items():
            file = paper.benchmarks / f"{name}.jsonl"
            if not file.exists():
                where = f"data_source={source}"
                call([paper.hapo, "data", "convert", given, "--where", where, "--to", "own", "-o", file])
    if missing := list(missing_benchmarks(paper)):
        sys.exit(f"scripts/paper: {'; '.join(missing)}: --benchmarks FOLDER, or LUFFY's valid.all.parquet")


def missing_benchmarks(paper: Paper) -> Iterator[str]:
    for name, (_, problems) in BENCHMARKS.items():
        file = paper.benchmarks / f"{name}.jsonl"
        found = len({it["problem"] for it in rows_of(file)}) if file.exists() else 0
        if found != problems:
            yield f"{file}: expected {problems} problems, got {found}"


def teacher(paper: Paper) -> None:
    """One attempt at each problem, kept where it is correct, as in the paper."""
    if paper.is_mini:
        return print("the built-in task has its traces")
    if not paper.problems.exists():
        sys.exit(f"scripts/paper: {paper.problems}: expected the problems: scripts/paper data")
    if paper.traces.exists():
        return print(f"{paper.traces} is there")
    paper.name_end()
    paper.traces.parent.mkdir(parents=True, exist_ok=True)
    problems = sum(1 for _ in rows_of(paper.problems))
    print(f"{problems} requests of at most 8192 tokens of answer and thought: {problems * 8192 / 1e6:.0f}M at most")
    name, port = paper.args.teacher_model, free_port()
    command = [
        paper.hapo, "teacher", "--input", paper.problems, "--model", name, "--attempts", "1", "--rule", "first-correct",
        "--temperature", "1", "--max-tokens", "8192", "--concurrency", "256", "--tokenizer", paper.model,
        "--max-trace-tokens", "8192", "--only-admitted", "--grader", "math",
        "--extra", f"reasoning_effort={paper.args.effort}",
        # The paper's traces are the answers alone, without a thought.
        "--extra", "include_reasoning=false", "-o", paper.traces, *paper.args.teacher_option,
    ]  # fmt: skip
    if paper.args.endpoint:
        call([*command, "--endpoint", paper.args.endpoint])
        return
    server = paper.args.teacher_server.format(model=name, port=port, gpus=paper.args.gpus)
    with served(server, port) as address:
        call([*command, "--endpoint", address])


def prepare(paper: Paper) -> None:
    """The rows that verl trains on, the pairs that imitation reads, and the part that is held out, once."""
    if paper.pairs.exists():
        return
    if not paper.is_mini and not paper.traces.exists():
        sys.exit(f"scripts/paper: {paper.traces}: expected the traces: scripts/paper teacher")
    paper.name_end()
    paper.trained.parent.mkdir(parents=True, exist_ok=True)
    if paper.is_mini:
        made(paper, paper.traces)
    rows = for_verl(paper, paper.traces)
    if paper.is_mini:
        other = paper.traces.with_name("held-out.jsonl")
        made(paper, other, "--set", "seed=1", "--set", "data.prompts=64")
        held_out = for_verl(paper, other)
    else:
        by_hash = sorted(rows, key=lambda it: hashlib.sha256(it["prompt"][-1]["content"].encode()).digest())
        size = min(HELD_OUT, len(rows) // 20)
        held_out, rows = by_hash[:size], [it for it in rows if it not in by_hash[:size]]
    print(f"{len(rows)} prompts to train on, {len(held_out)} held out")
    pairs = [
        {"messages": [*it["prompt"], {"role": "assistant", "content": next(filter(None, it["target"]))["content"]}]}
        for it in rows
        if it.get("target") and it.get("hapo_teacher_ids")
    ]
    if not pairs:
        sys.exit(f"scripts/paper: {paper.traces}: no row has a solution that is correct and fits")
    table(paper.held_out, held_out)
    table(paper.trained, rows)
    table(paper.pairs, pairs)


def made(paper: Paper, file: Path, *more: str) -> None:
    """The built-in task's problems."""
    given = [part for it in paper.args.set for part in ("--set", it)]
    call([paper.hapo, "data", "make", ROOT / "recipes/mini/grpo.toml", *given, *more, "-o", file])


def for_verl(paper: Paper, file: Path) -> list[Row]:
    """Rows with their admitted teacher's tokens, and the instruction behind each problem, as `hapo eval` asks."""
    import pyarrow.parquet as pq

    recipe = paper.recipe("grpo")[0]
    aside = paper.trained.with_name(f"{file.stem}.verl.parquet")
    longest = str(recipe["sampling.max_new_tokens"])
    call([
        paper.hapo, "data", "convert", file, "--to", "verl", "-o", aside, "--model", paper.model,
        "--max-response", longest, "--grader", "math",
    ])  # fmt: skip
    rows: list[Row] = pq.read_table(aside).to_pylist()
    aside.unlink()
    for row in rows:
        if instruction(paper):
            row["prompt"][-1]["content"] += f"\n{instruction(paper)}"
    return rows


def instruction(paper: Paper) -> str:
    return "" if paper.is_mini else INSTRUCTION


def converted(paper: Paper, file: Path, *more: str) -> list[Row]:
    """A file's rows in the native layout."""
    aside = paper.problems.with_suffix(".aside.jsonl")
    call([paper.hapo, "data", "convert", file, "--to", "own", "-o", aside, *more])
    rows = list(rows_of(aside))
    aside.unlink()
    return rows


def text_of(problem: str) -> str:
    """A problem's letters and digits: what stands between them differs among copies."""
    return re.sub(r"[^a-z0-9]", "", problem.lower())


def numbers_of(row: Row) -> tuple[str, ...] | None:
    """A problem's numbers in their order, and its answer: the same problem in other words has the same."""
    numbers = re.findall(r"\d+(?:\.\d+)?", row["problem"])
    return (*numbers, text_of(str(row["answer"]))) if len(numbers) >= LEAST_NUMBERS else None


def rows_of(file: Path) -> Iterator[Row]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def write(file: Path, rows: list[Row]) -> None:
    aside = file.with_suffix(".aside")
    aside.write_text("".join(json.dumps(it, ensure_ascii=False) + "\n" for it in rows), encoding="utf-8")
    shutil.move(aside, file)


def table(file: Path, rows: list[Row]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    aside = file.with_suffix(".aside")
    pq.write_table(pa.Table.from_pylist(rows), aside)
    shutil.move(aside, file)
