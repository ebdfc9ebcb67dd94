"""The options ``+hapo.*``, and what of verl's cannot go with them: all of it is looked at before Ray starts."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import hapo
from hapo import ends
from hapo._decide import number_or_word

TESTED = "0.9"
"""The minor version of verl that the tests run."""

MODE = "hapo_sync"
TEACHER = "hapo_teacher_ids"
RESERVED = ("teacher_ids", "teacher_logprobs")
"""Columns that verl's own distillation takes."""

NORMALISERS = {
    "token-mean": "token-mean",
    "token-sum": "token-mean",
    "seq-mean-token-sum": "constant",
    "seq-mean-token-sum-norm": "constant",
    "seq-mean-token-mean": "sequence-mean",
}
"""verl's modes of aggregation and what they are called here; the divisor says the rest."""

REFUSED_SECTIONS = {
    "srft": "weights by a step's entropy are not in verl's loss, `hapo train` has them",
    "trapo": "prefixes that the policy continues are no rollouts of verl, `hapo train` has them",
    "injection": "the teacher's trajectory alone enters a group of verl, `hapo train` has the others",
}
"""Keys of a recipe that verl's part does not have, by their first word."""


@dataclass(frozen=True)
class Settings:
    """The options, by the words of a recipe; ``teacher.d`` is written ``+hapo.teacher.d``."""

    method: str = "luffy"
    gate: str = "confidence"
    turn_off_epoch: Any = None
    success_limit: int | None = None
    gamma0: Any = None
    annealing: str = "sigmoid"
    steepness: Any = None
    success_at: float = 1.0
    wrong: float = 0.0
    slot: str = "lowest-reward"
    teacher_weight: Any = "one"
    teacher_d: float = 0.1
    advantage_group: str = "mixed"
    truncated: str = "wrong"
    seed: int = 0
    run_dir: str | None = None
    rollouts_every: int = 1

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Settings:
        """Those of a configuration of verl; ValueError names what is none."""
        names = {it.name for it in fields(cls)}
        given = dict(_flat(config.get("hapo") or {}))
        for key in given:
            if (section := key.partition(".")[0]) in REFUSED_SECTIONS:
                raise ValueError(f"hapo.{key}: {REFUSED_SECTIONS[section]}")
            if key.replace(".", "_") not in names or (key not in names and key not in NESTED):
                known = sorted({NAMES.get(it, it) for it in names})
                raise ValueError(f"hapo.{key}: expected one of {', '.join(known)}")
        it = cls(**{key.replace(".", "_"): value for key, value in given.items()})
        it._check()
        return it

    def _check(self) -> None:
        with _named():
            refusal = hapo.method_refusal(self.method)
        if refusal:
            raise ValueError(f"hapo.method: {refusal}, got {self.method!r}")
        if self.truncated not in ("wrong", "mask", "grade"):
            raise ValueError(f"hapo.truncated: expected wrong, mask or grade, got {self.truncated!r}")
        if not math.isfinite(self.wrong) or self.wrong >= self.success_at:
            raise ValueError(
                f"hapo.wrong: expected a finite reward below success_at = {self.success_at}, got {self.wrong}"
            )
        if self.gate != "own":
            with _named():
                hapo.Schedule(2, 1, gate=self.gate, annealing="off")
        if self.gamma0 is not None and self.success_limit is not None:
            raise ValueError("hapo.gamma0: expected it alone, success_limit says the same by a number")

    @property
    def is_gated(self) -> bool:
        """Whether the gate is HAPO's; ``gate=own`` is the method's own: the teacher in a fixed slot."""
        return self.gate != "own" and hapo.method_has_teacher(self.method)

    @property
    def has_teacher(self) -> bool:
        return hapo.method_has_teacher(self.method)

    def schedule(self, group_size: int, steps_per_epoch: int) -> hapo.Schedule | None:
        """The gate over the run; none for a method without HAPO's."""
        if not self.is_gated:
            return None
        with _named():
            return hapo.Schedule(
                group_size,
                max(steps_per_epoch, 1),
                gate=self.gate,
                success_limit=self.success_limit or 0,
                gamma0=self.gamma0,
                annealing=self.annealing,
                turn_off_epoch=self.turn_off_epoch,
                steepness=self.steepness,
            )

    def build(self, group_size: int, schedule: hapo.Schedule | None, *, std: bool) -> hapo.Method:
        """The method with its gate."""
        with _named():
            return hapo.Method(
                self.method,
                group_size,
                schedule=schedule,
                slot=self.slot,
                teacher={"weight": number_or_word(self.teacher_weight), "d": self.teacher_d},
                advantage={"group": self.advantage_group, "std": std},
            )


NESTED = ("teacher.weight", "teacher.d", "advantage.group")
NAMES = {it.replace(".", "_"): it for it in NESTED}
OPTIONS = {"name": "method"}
"""The options by the names of the core's arguments."""


def check(config: Any) -> Settings:
    """The settings of a run that can be started; ValueError or ModuleNotFoundError says what is in its way."""
    check_packages()
    settings = Settings.of(config)
    for key, bad, why in _refusals(settings):
        value = _at(config, key)
        if value is not None and bad(value):
            raise ValueError(f"{key}: {why}, got {value!r}")
    actor = config["actor_rollout_ref"]["actor"]
    if actor["loss_agg_mode"] == "seq-mean-token-sum-norm" and actor.get("loss_scale_factor") is None:
        raise ValueError(
            "actor_rollout_ref.actor.loss_scale_factor: expected the longest response, "
            "without it verl divides by the longest of each micro-batch"
        )
    if settings.truncated == "mask" and actor["loss_agg_mode"].startswith("seq-") and not one_update(config):
        raise ValueError(
            "hapo.truncated: mask counts no sequence that is masked, verl divides each mini-batch by all of its own: "
            "expected loss_agg_mode=token-mean, or ppo_mini_batch_size equal to data.train_batch_size"
        )
    group_size = config["actor_rollout_ref"]["rollout"]["n"]
    schedule = settings.schedule(group_size, 1)
    settings.build(group_size, schedule, std=bool(config["algorithm"].get("norm_adv_by_std_in_grpo", True)))
    found = model_ends(config)
    if settings.has_teacher:
        check_columns(_files(config["data"]["train_files"]), config["data"]["max_response_length"], found)
    return settings


def one_update(config: Any) -> bool:
    """Whether a step's rows are one mini-batch."""
    return bool(config["actor_rollout_ref"]["actor"]["ppo_mini_batch_size"] == config["data"]["train_batch_size"])


def check_packages() -> None:
    """verl and what its default trainer needs and does not ask for."""
    for module, package in (("verl", "verl"), ("transfer_queue", "TransferQueue"), ("cachetools", "cachetools")):
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(f"{package}: expected it to be installed: pip install 'hapo[verl]'", name=module)
    version = importlib.metadata.version("verl")
    if re.match(rf"{re.escape(TESTED)}\b", version) is None:
        warnings.warn(f"verl {version} is not tested, expected {TESTED}.*", stacklevel=3)


def model_ends(config: Any) -> ends.Ends:
    """Where answers end: verl renders prompts with the tokenizer's chat template, and its engines stop by the files."""
    from transformers import AutoTokenizer

    model = config["actor_rollout_ref"]["model"]
    path = os.path.expanduser(model["path"] or "")
    named = os.path.expanduser(model.get("tokenizer_path") or path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(named, trust_remote_code=bool(model.get("trust_remote_code")))
        found = ends.read(path, tokenizer, model.get("custom_chat_template"))
    except OSError as problem:
        line = str(problem).splitlines()[0]
        raise ValueError(
            f"actor_rollout_ref.model.path: cannot read the end token of {path!r} from {Path.cwd()}: {line}"
        ) from None
    found.check()
    return found


def check_columns(files: list[str], longest: int, found: ends.Ends) -> None:
    """Whether the data have teachers that fit the response, in a column of their own.

    A file that cannot be read here is refused: without its teachers a run would be that of another method.
    """
    for file in files:
        path = Path(os.path.expanduser(file))
        is_plain = path.suffix in (".parquet", ".json", ".jsonl") and "://" not in file and "*" not in file
        if is_plain and not path.exists():
            continue  # verl says that it is not there.
        if not is_plain or not path.is_file():
            raise ValueError(
                f"data.train_files: expected a .parquet, .json or .jsonl file on this machine, to check its column "
                f"{TEACHER}, got {file!r}: copy it here, or write it with `hapo data convert --to verl`"
            )
        names, teachers = _parquet_columns(path) if path.suffix == ".parquet" else _json_columns(path)
        for name in RESERVED:
            if name in names:
                raise ValueError(f"{path}: column {name}: verl's distillation takes it, expected {TEACHER}")
        if TEACHER not in names:
            raise ValueError(
                f"{path}: expected a column {TEACHER}: "
                "`hapo data convert --to verl --model DIR --max-response N` writes it"
            )
        for row, ids in enumerate(teachers):
            if not isinstance(ids, list | None):
                raise ValueError(f"{path}: row {row}: column {TEACHER}: expected a list of tokens, got {ids!r:.40}")
            if ids is not None and len(ids) > longest:
                raise ValueError(
                    f"{path}: row {row}: column {TEACHER}: expected at most data.max_response_length = {longest} "
                    f"tokens, got {len(ids)}"
                )
            if ids and ids[-1] != found.answer:
                raise ValueError(
                    f"{path}: row {row}: column {TEACHER}: expected {found.text} ({found.answer}) last, as the chat "
                    f"template of {found.model} ends answers, got {ids[-1]}: convert the data again with that --model"
                )


def _parquet_columns(path: Path) -> tuple[set[str], list[Any]]:
    """The names of a file's columns, and the teachers of its rows."""
    import pyarrow.parquet as parquet

    names = set(parquet.read_schema(path).names)
    return names, parquet.read_table(path, columns=[TEACHER])[TEACHER].to_pylist() if TEACHER in names else []


def _json_columns(path: Path) -> tuple[set[str], list[Any]]:
    """Those of an array of objects, or of an object a line."""
    names: set[str] = set()
    teachers = []
    with path.open(encoding="utf-8") as file:
        try:
            is_array = file.read(80).lstrip().startswith("[")
            file.seek(0)
            for row in json.load(file) if is_array else (json.loads(it) for it in file if it.strip()):
                if not isinstance(row, dict):
                    raise TypeError(f"got {type(row).__name__}")
                names.update(row)
                teachers.append(row.get(TEACHER))
        except (ValueError, TypeError) as problem:
            raise ValueError(
                f"{path}: row {len(teachers)}: expected an array of JSON objects, or one a line: {problem}"
            ) from None
    return names, teachers


def _refusals(settings: Settings) -> Iterator[tuple[str, Any, str]]:
    """Options of verl, the values that cannot be, and why."""

    def on(it: Any) -> bool:
        return bool(it)

    def another(*expected: Any) -> Any:
        return lambda it: it not in expected

    n = "actor_rollout_ref.rollout"
    actor = "actor_rollout_ref.actor"
    yield "trainer.use_v1", lambda it: not it, "expected true, the older trainer has no place for another"
    yield (
        "trainer.v1.trainer_mode",
        lambda it: it in ("colocate_async", "separate_async"),
        f"expected {MODE}, rows of several versions of the weights are untried",
    )
    yield "algorithm.filter_groups.enable", on, "expected false, it takes the failed groups away before the gate"
    yield "algorithm.use_kl_in_reward", on, "expected false, the gate counts successes by the reward"
    yield "algorithm.adv_estimator", another("grpo"), "expected grpo"
    yield "algorithm.rollout_correction.bypass_mode", on, "expected false, a teacher's row has no sampler"
    yield "distillation.enabled", on, "expected false, verl's teacher is another"
    yield f"{actor}.loss_agg_mode", another(*NORMALISERS), f"expected one of {', '.join(NORMALISERS)}"
    yield f"{n}.n", lambda it: it < 2, "expected a group of at least 2"
    yield f"{n}.temperature", another(1, 1.0), "expected 1, the teacher's tokens are taken at temperature 1"
    yield f"{n}.multi_turn.enable", on, "expected false, a teacher's text has one turn"
    yield f"{n}.enable_rollout_routing_replay", on, "expected false, a teacher's row has no routed experts"
    for engine in ("megatron", "veomni"):
        key = f"{actor}.{engine}.router_replay.mode"
        yield key, another("disabled"), "expected disabled, a teacher's row has no routed experts"
    if settings.has_teacher and settings.teacher_weight == "advantage":
        yield f"{actor}.ppo_epochs", lambda it: it > 1, "expected 1 with teacher.weight = advantage"


def _flat(it: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in it.items():
        if isinstance(value, Mapping) or hasattr(value, "items"):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _at(config: Any, key: str) -> Any:
    for part in key.split("."):
        if config is None:
            return None
        config = config.get(part)
    return config


def _files(it: Any) -> list[str]:
    return [it] if isinstance(it, str) else [str(path) for path in it]


@contextmanager
def _named() -> Iterator[None]:
    """The core's messages begin with the name of an argument: here it is an option."""
    try:
        yield
    except ValueError as problem:
        name, _, rest = str(problem).partition(":")
        place = "hapo" if name == "Schedule" else f"hapo.{OPTIONS.get(name, name)}"
        raise ValueError(f"{place}:{rest}") from None
