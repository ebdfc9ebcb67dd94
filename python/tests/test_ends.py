"""One end token, whatever the three places say."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT

pytest.importorskip("transformers")

from hapo import ends

BASE = ROOT / "testdata/fixtures/models/qwen-shaped"


def test_a_base_models_folder_is_refused_with_the_three_places() -> None:
    found = ends.read(str(BASE))
    assert (found.answer, found.text, found.eos_token, found.stops) == (
        2002,
        "<|im_end|>",
        "<|endoftext|>",
        [2002, 2000],
    )
    with pytest.raises(ValueError, match="expected one end token") as refused:
        found.check()
    for place in (
        r"the chat template ends answers with <|im_end|> (2002)", "the tokenizer's eos_token is <|endoftext|> (2000)",
        f"[2000] in generation_config.json and [2000] in config.json: `python -m hapo.ends {BASE} OUT`",
    ):  # fmt: skip
        assert place in str(refused.value)


def test_a_folder_that_names_it_is_written_beside_the_models(tmp_path) -> None:
    out = tmp_path / "named"
    command = [sys.executable, "-m", "hapo.ends", BASE]
    for _ in range(2):
        told = subprocess.run([*command, out], capture_output=True, text=True, check=True)
        assert told.stdout == f"{out} ends answers with <|im_end|> (2002)\n"
    found = ends.read(str(out))
    found.check()
    assert (found.eos_token, found.files["config.json"]) == ("<|im_end|>", [2002, 2000])
    assert (out / "model.safetensors").is_symlink()
    given = {it: json.loads((BASE / it).read_text()) for it in ("config.json", "generation_config.json")}
    for file, fields in given.items():
        assert json.loads((out / file).read_text()) == {**fields, "eos_token_id": [2002, 2000]}
    assert json.loads((BASE / "tokenizer_config.json").read_text())["eos_token"] == "<|endoftext|>"
    same = subprocess.run([*command, BASE], capture_output=True, text=True)
    assert same.returncode == 2
    assert "expected another folder than the model's" in same.stderr


@pytest.mark.parametrize("missing", ["generation_config.json", "both", "template"])
def test_what_a_folder_does_not_say_is_read_where_engines_read_it(tmp_path, missing) -> None:
    model = tmp_path / "model"
    shutil.copytree(BASE, model)
    if missing == "template":
        file = model / "tokenizer_config.json"
        fields = json.loads(file.read_text())
        del fields["chat_template"]
        file.write_text(json.dumps(fields))
        assert ends.read(str(model)).answer == 2000
        ends.read(str(model)).check()
        return
    (model / "generation_config.json").unlink()
    config = json.loads((model / "config.json").read_text())
    if missing == "both":
        del config["eos_token_id"]
        (model / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match="eos_token_id is in no file"):
            ends.read(str(model)).check()
    else:
        (model / "config.json").write_text(json.dumps({**config, "eos_token_id": [2000, 2002]}))
        ends.read(str(model)).check()
    assert ends.name(model, tmp_path / "named").files["generation_config.json"] == [2002]
