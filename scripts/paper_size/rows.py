"""The rows of the paper's tables and figures, and where their files are."""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomllib

ROOT = Path(__file__).resolve().parents[2]
Recipe = dict[str, Any]

TABLE_1 = {
    "base": "Qwen2.5", "grpo": "GRPO", "sft": "SFT", "sft-grpo": "SFT-GRPO", "luffy": "LUFFY",
    "luffy-hapo": "LUFFY-HAPO", "srft": "SRFT", "srft-hapo": "SRFT-HAPO", "trapo": "TRAPO",
    "hapo-table1": "TRAPO-HAPO",
}  # fmt: skip
HINDSIGHT = {"trapo": "TRAPO", "hindsight": "+ Hindsight"}
TABLE_2 = {
    "the appendix's γ0 = 0.3": {
        **HINDSIGHT, "hapo-table1": "+ Hindsight + Gating", "annealed-03": "+ Hindsight + Gating + Annealing",
    },
    "the text's m = 0": {
        **HINDSIGHT, "gated-m0": "+ Hindsight + Gating", "hapo-method": "+ Hindsight + Gating + Annealing",
    },
}  # fmt: skip
"""Two readings: §5.3 says that the gate is Eq. 8 with m = 0, the appendix that γ0 = 0.3."""
FIGURE_2 = {"LUFFY": ("luffy", "luffy-hapo"), "SRFT": ("srft", "srft-hapo"), "TRAPO": ("trapo", "hapo-table1")}
FIGURE_3 = {"without annealing": "stability-open", "with annealing": "stability-annealed"}
FIGURE_5 = {
    host: {"host": host.lower(), "γ0 = 0.3": with_hapo, **{f"γ0 = {it}": f"{host.lower()}-gamma0-{it}" for it in
           ("0.5", "0.7")}}
    for host, (_, with_hapo) in FIGURE_2.items()
}  # fmt: skip
GROUPS = {
    "table1": [*TABLE_1],
    "table2": [row for reading in TABLE_2.values() for row in reading],
    "figure2": [row for rows in FIGURE_2.values() for row in rows],
    "figure3": [*FIGURE_3.values()],
    "figure5": [row for rows in FIGURE_5.values() for row in rows.values()],
}
PAPERS_PROMPTS = 8000
"""The recipes' steps are for so many."""


class Paper:
    """What was asked for. Every path is made absolute here: verl's commands run in other folders."""

    def __init__(self, args: Any) -> None:
        self.args = args
        if "model.path" in self.overrides():
            sys.exit("scripts/paper: --set model.path: expected --model DIR, a second stage has a model of its own")
        self.is_mini = args.size == "mini"
        self.out = Path(args.out or f"runs/paper-{args.size}").resolve()
        self.hapo = str(Path(args.hapo).resolve()) if os.sep in args.hapo else args.hapo
        if shutil.which(self.hapo) is None:
            hint = "install the wheel, or name it with --hapo target/release/hapo"
            sys.exit(f"scripts/paper: no command {self.hapo}: {hint}")
        self.folder = ROOT / "recipes" / ("mini" if self.is_mini else f"paper/{args.size}")
        self.rows = {name: self.stages(name) for name in self.names()}
        grpo = self.recipe("grpo")[0]
        base = args.model or grpo["model.path"]
        self.base = ROOT / "models/base" if base == "builtin:base" else Path(base).resolve()
        self.model = self.out / "model"
        """The base model with its end token named in its files."""
        self.benchmarks = self.out / "benchmarks"
        if args.benchmarks and Path(args.benchmarks).is_dir():
            self.benchmarks = Path(args.benchmarks).resolve()
        folder = self.out / "data"
        self.problems = folder / "problems.jsonl"
        self.traces = folder / "traces.jsonl" if self.is_mini else Path(grpo["data.train"]).resolve()
        self.trained, self.held_out = folder / "train.parquet", folder / "held-out.parquet"
        self.pairs = folder / "pairs.parquet"
        """What imitation reads."""

    def names(self) -> list[str]:
        asked = (self.args.rows or "table1,table2").split(",")
        return list(dict.fromkeys(row for it in asked for row in GROUPS.get(it, [it])))

    def recipe(self, name: str) -> list[Recipe]:
        """A recipe's stages by flat keys, without the defaults."""
        file = self.folder / f"{name}.toml"
        if not file.is_file():
            known = sorted(it.stem for it in self.folder.glob("*.toml"))
            sys.exit(f"scripts/paper: {name}: expected a row of {self.folder}: {', '.join(known)}")
        recipe = tomllib.loads(file.read_text())
        stages = recipe.pop("stage", [{}])
        # What the file says of these itself; the defaults have more.
        given = {"given": {it: recipe.get(it) for it in ("hapo", "srft", "trapo")}}
        return [{**given, **dict(flat(recipe)), **dict(flat(it)), **self.overrides()} for it in stages]

    def stages(self, name: str) -> list[Recipe]:
        """A row's stages; `base` is evaluated only."""
        return [] if name == "base" else [{**self.defaults(), **it} for it in self.recipe(name)]

    def defaults(self) -> Recipe:
        if not hasattr(self, "known"):
            told = subprocess.run([self.hapo, "recipe", "--json"], check=True, capture_output=True, text=True)
            keys = [it for it in json.loads(told.stdout) if it["default"] not in ("", "required")]
            self.known = tomllib.loads("".join(f"{json.dumps(it['key'])} = {it['default']}\n" for it in keys))
        return self.known

    def overrides(self) -> Recipe:
        return {key: literal(value) for key, value in (it.split("=", 1) for it in self.args.set)}

    def steps(self, recipe: Recipe) -> int:
        """As many epochs as the paper's, of the data there are."""
        steps, batch = int(recipe["steps"]), int(recipe["sampling.prompts_per_step"])
        data = self.pairs if recipe["method"] == "sft" else self.trained
        if self.is_mini or "steps" in self.overrides() or not data.exists():
            return steps
        return max(round(steps * batch / PAPERS_PROMPTS) * (count(data) // batch), 1)

    def stage(self, name: str, number: int) -> Path:
        return self.out / name / f"stage-{number + 1}"

    def checkpoint(self, name: str, number: int | None = None) -> Path:
        """The weights after a stage's last step, as transformers reads them."""
        if not self.rows[name]:
            return self.model
        number = len(self.rows[name]) - 1 if number is None else number
        recipe = self.rows[name][number]
        step = self.stage(name, number) / "checkpoints" / f"global_step_{self.steps(recipe)}"
        return step / "huggingface" if recipe["method"] == "sft" else step / "actor" / "huggingface"

    def name_end(self) -> None:
        """Decides the end token of everything that follows, once."""
        if has_weights(self.model):
            return
        if not (self.base / "config.json").is_file():
            sys.exit(f"scripts/paper: {self.base}: expected the base model's folder: --model DIR")
        call([sys.executable, "-m", "hapo.ends", self.base, self.model])


def flat(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The keys of a recipe as `section.key`."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def literal(text: str) -> Any:
    """A value of --set as TOML; what is none is a text."""
    try:
        return tomllib.loads(f"it = {text}")["it"]
    except tomllib.TOMLDecodeError:
        return text


def count(parquet: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.ParquetFile(parquet).metadata.num_rows)


def has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def call(command: Sequence[Any], **keywords: Any) -> str:
    """Runs a command to its end; with `capture_output` gives what it printed."""
    shown = shlex.join(map(str, command))
    print(f"$ {shown[:200]}", flush=True)
    told = subprocess.run([str(it) for it in command], **keywords)
    if told.returncode != 0:
        sys.exit(f"scripts/paper: ended with {told.returncode}: {shown}\n{told.stderr or ''}")
    return told.stdout or ""


@contextmanager
def served(command: str, port: int) -> Iterator[str]:
    """A server for as long as it is used; its address."""
    address = f"http://127.0.0.1:{port}/v1"
    print(f"$ {command}", flush=True)
    with subprocess.Popen(shlex.split(command)) as server:
        try:
            wait_for(f"{address}/models", server)
            yield address
        finally:
            server.terminate()


def free_port() -> int:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return int(it.getsockname()[1])


def wait_for(address: str, server: "subprocess.Popen[bytes]", seconds: int = 3600) -> None:
    for _ in range(seconds):
        if server.poll() is not None:
            sys.exit(f"scripts/paper: the server ended with {server.returncode}")
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(1)
    sys.exit(f"scripts/paper: {address}: no answer in {seconds} s")
