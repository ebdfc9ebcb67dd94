"""What transformers and PEFT make of the folders that `hapo train` and `hapo merge` leave behind: where they stop.

For each case a model with the shape of a Qwen2.5 base is trained on two answers and handed to the real packages, which
read their settings from the folder alone. The tokens must be those of `hapo generate`; expected.json records them.

usage: make_reference.py HAPO, in an environment of requirements.txt
"""

import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

HERE = Path(__file__).resolve().parent
BASE = HERE.parent / "fixtures" / "models" / "qwen-shaped"
PROBLEMS = ["12*7=?", "What is 3+4?"]
LIMIT = 24
CASES = [
    {"name": f"{template}{'' if keeps else ', no chat template'}{', lora' if lora else ''}", "template": template,
     "keeps_chat_template": keeps, "lora": lora}
    for template, keeps, lora in [
        ("qwen-boxed", True, False), ("chatml", True, False), ("chat", True, False), ("qwen-boxed", False, False),
        ("chatml", False, False), ("r1", False, False), ("abel", False, False), ("chat", True, True),
        ("qwen-boxed", False, True),
    ]
]  # fmt: skip


def run(hapo: str, *arguments: str) -> str:
    return subprocess.run([hapo, *arguments], check=True, capture_output=True, text=True).stdout


def generated(hapo: str, model: str, template: str, adapter: list[str]) -> list[list[int]]:
    sampling = ["--temperature", "0", "--max-tokens", str(LIMIT), "--json", "--template", template]
    lines = [run(hapo, "generate", "--model", model, *adapter, *sampling, it) for it in PROBLEMS]
    return [json.loads(it)["tokens"] for it in lines]


def stops(model: Any, prompt: list[int], settings: GenerationConfig | None = None) -> list[int]:
    """The tokens that transformers adds, by the folder's settings alone but for the limit."""
    import torch

    ids = torch.tensor([prompt])
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), generation_config=settings, do_sample=False, max_new_tokens=LIMIT
    )
    return made[0, len(prompt) :].tolist()


def record(hapo: str, case: dict[str, Any], folder: Path) -> dict[str, Any]:
    base, run_dir = folder / "base", folder / "run"
    shutil.copytree(BASE, base)
    if not case["keeps_chat_template"]:
        path = base / "tokenizer_config.json"
        fields = json.loads(path.read_text())
        del fields["chat_template"]
        path.write_text(json.dumps(fields))
    lora = ["--set", "lora={ rank = 16, alpha = 32.0 }"] if case["lora"] else []
    sets = ["--set", f'model.path="{base}"', "--set", f'data.template="{case["template"]}"', *lora]
    sets += ["--set", f'data.train="{HERE / "data.jsonl"}"']
    run(hapo, "train", str(HERE / "recipe.toml"), "--run-dir", str(run_dir), "--quiet", *sets)
    whole = checkpoint = max((run_dir / "checkpoints").glob("step-*"))
    if case["lora"]:
        whole = folder / "merged"
        run(hapo, "merge", "--model", str(base), "--adapter", str(checkpoint), "-o", str(whole))
    tokens = generated(hapo, str(whole), case["template"], [])
    tokenizer = AutoTokenizer.from_pretrained(whole)
    model = AutoModelForCausalLM.from_pretrained(whole, dtype="float32")
    prompts = prompts_of(hapo, case["template"], whole)
    assert [stops(model, it) for it in prompts] == tokens, case["name"]
    ends = model.generation_config.eos_token_id
    stopping = ends if isinstance(ends, list) else [ends]
    assert all(it[-1] in stopping and len(it) < LIMIT for it in tokens), (case["name"], tokens)
    assert model.config.eos_token_id == ends
    chats = [
        tokenizer.apply_chat_template([{"role": "user", "content": it}], add_generation_prompt=True, return_dict=False)
        for it in PROBLEMS
    ]
    chatted = [stops(model, it) for it in chats]
    assert all(it[-1] == tokens[0][-1] and len(it) < LIMIT for it in chatted), (case["name"], chatted)
    if not case["keeps_chat_template"]:
        assert chats == prompts, case["name"]
        assert tokenizer.eos_token_id == tokens[0][-1], case["name"]
    if case["lora"]:
        adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype="float32"), checkpoint)
        settings = GenerationConfig.from_pretrained(checkpoint)
        assert [stops(adapted, it, settings) for it in prompts] == tokens, case["name"]
        assert generated(hapo, str(base), case["template"], ["--adapter", str(checkpoint)]) == tokens
    assert model.generation_config.max_new_tokens == 2048, "a sampling default is lost"
    return {**case, "prompts": prompts, "tokens": tokens, "eos_token_id": ends, "eos_token": tokenizer.eos_token,
            "chats": chats, "chatted": chatted}  # fmt: skip


def prompts_of(hapo: str, template: str, model: Path) -> list[list[int]]:
    """The tokens that `hapo` puts a problem to the model in, from its server."""
    command = [hapo, "serve", "--model", str(model), "--template", template, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        address = next(it.split(" at ")[1].strip() for it in server.stderr if it.startswith("serving"))
        found = []
        for problem in PROBLEMS:
            body = json.dumps({"messages": [{"role": "user", "content": problem}]}).encode()
            header = {"content-type": "application/json"}
            request = urllib.request.Request(address.removesuffix("/v1") + "/tokenize", body, header)
            with urllib.request.urlopen(request) as answer:
                found.append(json.load(answer)["tokens"])
        server.terminate()
    return found


def main() -> None:
    hapo = str(Path(sys.argv[1]).resolve())
    recorded = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            recorded.append(record(hapo, case, Path(folder)))
        print(case["name"], recorded[-1]["eos_token_id"], recorded[-1]["tokens"])
    lines = ",\n".join(json.dumps(it) for it in recorded)
    (HERE / "expected.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
