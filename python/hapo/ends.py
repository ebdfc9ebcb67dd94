"""The token that ends an answer: one, in the chat template, the tokenizer and the model's files.

``python -m hapo.ends MODEL OUT`` writes a folder that names the chat template's in all of them, beside links to the
weights.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILES = ("generation_config.json", "config.json")
"""Engines stop by the first that names an ``eos_token_id``."""


def end_of_turn(tokenizer: Any) -> int:
    """The special token that the chat template writes behind an answer, else the tokenizer's end token."""
    if getattr(tokenizer, "chat_template", None):
        answer = "the answer"
        turns = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": answer}]
        text = tokenizer.apply_chat_template(turns, tokenize=False)
        behind = text[text.rfind(answer) + len(answer) :].lstrip() if answer in text else ""
        ids = tokenizer(behind, add_special_tokens=False)["input_ids"]
        if ids and not tokenizer.decode(ids[:1], skip_special_tokens=True):
            return int(ids[0])
    return int(tokenizer.eos_token_id)


@dataclass(frozen=True)
class Ends:
    """What the three places say; ``files`` has the ids of each file that names some."""

    model: str
    answer: int
    text: str
    eos_token: str | None
    eos_token_id: int | None
    files: dict[str, list[int]]

    @property
    def stops(self) -> list[int]:
        """Where an engine stops, the end of an answer first."""
        others = [*next(iter(self.files.values()), []), self.eos_token_id]
        return list(dict.fromkeys(it for it in (self.answer, *others) if it is not None))

    def check(self) -> None:
        """ValueError where an engine would not stop at the end of an answer."""
        if self.answer in next(iter(self.files.values()), []):
            return
        named = " and ".join(f"{it} in {name}" for name, it in self.files.items()) or "in no file"
        raise ValueError(
            f"{self.model}: expected one end token, got three answers: the chat template ends answers with "
            f"{self.text} ({self.answer}), the tokenizer's eos_token is {self.eos_token} ({self.eos_token_id}), "
            f"eos_token_id is {named}: `python -m hapo.ends {self.model} OUT` writes a folder that names {self.text}, "
            f"or put {self.answer} first into eos_token_id of both files"
        )


def read(model: str, tokenizer: Any = None, chat_template: str | None = None) -> Ends:
    """The ends of a folder, or of a model of the hub."""
    from transformers import AutoTokenizer
    from transformers.utils import cached_file

    tokenizer = AutoTokenizer.from_pretrained(model) if tokenizer is None else tokenizer
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    files = {}
    for name in FILES:
        path = cached_file(model, name, _raise_exceptions_for_missing_entries=False)
        ends = None if path is None else json.loads(Path(path).read_text(encoding="utf-8")).get("eos_token_id")
        if ends is not None:
            files[name] = ends if isinstance(ends, list) else [ends]
    answer = end_of_turn(tokenizer)
    text = str(tokenizer.convert_ids_to_tokens(answer))
    return Ends(model, answer, text, tokenizer.eos_token, tokenizer.eos_token_id, files)


def name(model: Path, out: Path) -> Ends:
    """Writes a folder whose files name the end of an answer first; what else the model has is linked."""
    found = read(str(model))
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(it.resolve() for it in model.iterdir() if it.is_file()):
        target = out / path.name
        target.unlink(missing_ok=True)
        os.symlink(path, target)
    for file in FILES:
        old = [it for it in found.files.get(file, []) if it != found.answer]
        _change(out / file, "eos_token_id", [found.answer, *old] if old else found.answer)
    # verl writes the tokenizer's into the config.json of what it trained.
    _change(out / "tokenizer_config.json", "eos_token", found.text)
    if (out / "special_tokens_map.json").exists():
        _change(out / "special_tokens_map.json", "eos_token", found.text)
    named = read(str(out))
    named.check()
    return named


def _change(path: Path, key: str, value: Any) -> None:
    """A field of a JSON file that may be a link, or not be there."""
    fields = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.unlink(missing_ok=True)
    path.write_text(json.dumps({**fields, key: value}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hapo.ends", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    if not (args.model / "config.json").is_file():
        parser.error(f"{args.model}: expected a model's folder")
    if args.out.resolve() == args.model.resolve():
        parser.error(f"{args.out}: expected another folder than the model's")
    try:
        found = name(args.model, args.out)
    except (OSError, ValueError) as problem:
        sys.exit(f"hapo.ends: {problem}")
    print(f"{args.out} ends answers with {found.text} ({found.answer})")


if __name__ == "__main__":
    main()
