#!/usr/bin/env python3
"""Packs planted runs into testdata/doctor/records.jsonl.zst: of each what `hapo doctor` reads, one file a line.

    records.py trl=OUT_OF_PLANT_TRL verl=OUT_OF_PLANT_VERL hapo=FOLDER_OF_RUNS

Of twenty steps' completions four are kept. Needs the program zstd.
"""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = {"0", "1", "7", "14", "20"}
FILES = re.compile(
    r"(train|eval|val)\.(jsonl|parquet)|trainer_state\.json|training_args\.bin|tokenizer.*\.json|generation_config\.json"
    r"|chat_template\.jinja|metrics\.jsonl|config\.yaml|recipe\.toml|start\.json|completions_\d+\.parquet|\d+\.jsonl"
    r"|step-\d+\.jsonl\.zst"
)
NUMBERS = re.compile(r"timing|perf|global_seqlen|training/(off_policy|num_turns)|non_aborted|num_turns")
"""verl's numbers of speed and of what it balances: nobody asks for them."""


def wanted(path: Path) -> bool:
    number = re.search(r"(\d+)(\.jsonl|\.parquet|\.jsonl\.zst)$", path.name)
    is_last = "checkpoint-" not in str(path) or "checkpoint-20" in str(path)
    is_ours = "checkpoints" not in path.parts
    is_kept = number is None or str(int(number[1])) in KEPT
    return bool(FILES.fullmatch(path.name)) and is_last and is_ours and is_kept


def trimmed(text: str) -> str:
    """Lines of verl's file logger without the numbers that nobody asks for."""
    lines = [json.loads(it) for it in text.splitlines()]
    for it in lines:
        it["data"] = {name: value for name, value in it["data"].items() if not NUMBERS.search(name)}
    return "".join(json.dumps(it) + "\n" for it in lines)


def without_folder(data: bytes, run: str) -> bytes:
    """Without the folder of the machine that a run was in; as long as before, since a pickle has lengths."""

    def unnamed(found: re.Match[bytes]) -> bytes:
        return b"/" + b"r" * (len(found[1]) - 2) + b"/" + run.encode()

    return re.sub(rb"(/[\w./-]+/)" + re.escape(run.encode()), unnamed, data)


def repacked(path: Path, run: str) -> bytes:
    """The same of an archive, whose files have checksums."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for it in old.namelist():
            new.writestr(zipfile.ZipInfo(it), without_folder(old.read(it), run))
    return out.getvalue()


def lines(framework: str, folder: Path) -> Iterator[str]:
    for path in sorted(it for it in folder.rglob("*") if it.is_file() and wanted(it)):
        name = f"{framework}/{path.relative_to(folder)}"
        run = path.relative_to(folder).parts[0]
        data = repacked(path, run) if path.suffix == ".bin" else without_folder(path.read_bytes(), run)
        try:
            text = data.decode()
            if framework == "verl" and path.name == "metrics.jsonl":
                text = trimmed(text)
            yield json.dumps({"path": name, "text": text})
        except UnicodeDecodeError:
            yield json.dumps({"path": name, "base64": base64.b64encode(data).decode()})


def main(arguments: list[str]) -> None:
    out = ROOT / "testdata/doctor/records.jsonl.zst"
    out.parent.mkdir(exist_ok=True)
    named = [it.split("=", 1) for it in arguments]
    text = "".join(it + "\n" for framework, folder in named for it in lines(framework, Path(folder)))
    subprocess.run(["zstd", "-19", "--long=25", "-q", "-f", "-o", str(out)], input=text.encode(), check=True)
    print(f"{out}: {len(text.splitlines())} files, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
