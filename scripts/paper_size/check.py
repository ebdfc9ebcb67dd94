"""What a run would lack, before a GPU is used: one line each."""

import importlib.metadata
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from paper_size import train
from paper_size.data import missing_benchmarks
from paper_size.rows import Paper, count, has_weights

VERSIONS = {"verl": "0.9.1", "vllm": "0.24.0", "torch": "2.11.0", "transformers": "5.9.0", "flash-attn": "2.8.3"}
LOOKED_UP = "2026-11-27"
"""verl 0.9.1 asks for these of vLLM, torch, transformers and flash-attn in its extras `vllm` and `fsdp` (PyPI)."""
RESPONSE = 1000
"""Mean tokens of a response for the second estimate."""

Finding = tuple[bool, str]


def check(paper: Paper) -> None:
    missing = 0
    for looked_at in (packages, gpus, end_token, data, benchmarks, paths, hours, disk):
        for is_there, line in looked_at(paper):
            missing += not is_there
            print(f"{'ok     ' if is_there else 'MISSING'} {line}", flush=True)
    if missing:
        sys.exit(f"scripts/paper: {missing} missing")


def packages(_: Paper) -> Iterator[Finding]:
    for package, wanted in VERSIONS.items():
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found = "none"
        goes_together = found.split("+")[0] == wanted or found.startswith(f"{wanted}.post")
        yield goes_together, f"{package} {found}: {wanted} goes with verl {VERSIONS['verl']} (PyPI, {LOOKED_UP})"


def gpus(paper: Paper) -> Iterator[Finding]:
    told = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True) if shutil.which("nvidia-smi") else None
    found = told.stdout.count("GPU ") if told else 0
    yield found >= paper.args.gpus, f"{found} GPUs of {paper.args.gpus}"


def end_token(paper: Paper) -> Iterator[Finding]:
    if not (paper.base / "config.json").is_file() or not has_weights(paper.base):
        return (yield False, f"{paper.base}: no model's folder with weights (--model)")
    try:
        from hapo import ends

        paper.name_end()
        found = ends.read(str(paper.model))
        found.check()
    except (ImportError, OSError, ValueError) as problem:
        return (yield False, f"end token: {problem}")
    yield True, f"one end token, {found.text} ({found.answer}), in {paper.model}, from which all take it"


def data(paper: Paper) -> Iterator[Finding]:
    if not paper.is_mini:
        for file, step in ((paper.problems, "data"), (paper.traces, "teacher")):
            lines = sum(1 for _ in file.open(encoding="utf-8")) if file.exists() else 0
            yield lines > 0, f"{file}: {lines} rows (scripts/paper {step})"
    if paper.pairs.exists():
        yield True, f"{count(paper.trained)} prompts, {count(paper.pairs)} pairs, {count(paper.held_out)} held out"


def benchmarks(paper: Paper) -> Iterator[Finding]:
    missing = [] if paper.is_mini else list(missing_benchmarks(paper))
    yield from ((False, it) for it in missing)
    if not missing:
        yield True, "the six benchmarks with their numbers of problems"


def paths(paper: Paper) -> Iterator[Finding]:
    for name, stages in paper.rows.items():
        for number in range(len(stages)):
            values = [it.partition("=")[2] for it in train.command(paper, name, number)]
            relative = [it for it in values if "/" in it and "://" not in it and not Path(it).is_absolute()]
            yield not relative, f"{name}, stage {number + 1}: {', '.join(relative) or 'every path is absolute'}"


def hours(paper: Paper) -> Iterator[Finding]:
    total = 0.0
    for name, stages in paper.rows.items():
        if not stages:
            continue
        longest, likely = planned(paper, name, []), planned(paper, name, ["--response-tokens", str(RESPONSE)])
        if isinstance(longest, str) or isinstance(likely, str):
            yield False, f"{name}: hapo plan has no estimate: {longest}"
            continue
        total += likely
        yield True, f"{name}: {likely:.1f} hours at {RESPONSE} tokens a response, at most {longest:.1f}"
    yield True, f"{total:.0f} hours for {len(paper.rows)} rows on {paper.args.gpus} {paper.args.device}, by hapo plan"


def planned(paper: Paper, name: str, more: list[str]) -> float | str:
    """Hours of a row, if so many GPUs are so many times as fast as one; what `hapo plan` says where it has none."""
    file = paper.folder / f"{name}.toml"
    given = [part for it in paper.args.set for part in ("--set", it)]
    sized = ["--device", paper.args.device, "--compute", "bf16", "--model", str(paper.base)]
    command = [paper.hapo, "plan", str(file), *sized, "--json", *given, *more]
    told = subprocess.run(command, capture_output=True, text=True)
    if told.returncode != 0:
        return told.stderr.splitlines()[0]
    seconds = [
        (it["sampling_seconds"] + it["training_seconds"]) * paper.steps(stage)
        for it, stage in zip(json.loads(told.stdout), paper.rows[name], strict=True)
    ]
    return float(sum(seconds)) / 3600 / float(paper.args.gpus)


def disk(paper: Paper) -> Iterator[Finding]:
    """Two checkpoints of every stage: weights in bf16 and f32, and two moments in f32."""
    weights = sum(it.stat().st_size for it in paper.base.glob("*.safetensors"))
    wanted = sum(2 * 7 * weights for stages in paper.rows.values() for _ in stages)
    paper.out.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(paper.out).free
    yield free > wanted, f"{wanted / 1e9:.0f} GB for the checkpoints in {paper.out}, {free / 1e9:.0f} GB free"
