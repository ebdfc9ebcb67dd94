"""Compare what hapo reads of a GGUF file with what the packages gguf and transformers read of it.

    scripts/real_model/check.sh FILE.gguf [--hapo HAPO] [--tokenizer FOLDER]

Weights: bit-equal to gguf's dequantisation in f32, and its rounding in bf16. Token ids: those of FOLDER's
tokenizer.json, or llama.cpp's of the file, on 2,000 texts of this repository. Log-probabilities: transformers' of the
same file in f32. What `hapo merge --to gguf` writes is read back by gguf, and run in llama.cpp.
"""

import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator

import gguf
import llama_cpp
import numpy as np
import safetensors
import tokenizers
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = [
    "The capital of France is Paris, and the capital of Italy is Rome.",
    "Natalia sold 48 clips in April and half as many in May. How many did she sell altogether?",
    "def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return a\n",
]
# Spaces, digits, contractions, scripts, forms of Unicode, special tokens.
HARD = [
    "a  b   c    d\t\te\n\n\nf \r\n g",
    "12345678 3.14159 1,000,000 2^10 x_1",
    "I'm, you're, WE'LL, they'd've, it's 'S",
    "Zürich naïve cafe\u0301 ½ ² Ⅳ ﬁ",
    "你好，世界。こんにちは 세계 مرحبا नमस्ते שלום",
    "👩‍👩‍👧‍👦 🇨🇭 ✓ → ∑∫√ \u200b \ufeff",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|><s></s>",
]


def texts() -> list[str]:
    """Lines and pieces of the repository's own texts."""
    rng, lines = random.Random(64), []
    for pattern in ("docs/**/*.md", "crates/*/src/*.rs", "testdata/chat_templates/*.jinja"):
        for path in sorted(ROOT.glob(pattern)):
            text = path.read_text()
            lines += [text[at : at + rng.randint(1, 300)] for at in range(0, len(text), 701)]
    rng.shuffle(lines)
    return HARD + lines[: 2000 - len(HARD)]


def run(hapo: str, *arguments: str, stdin: str | None = None) -> str:
    return subprocess.run([hapo, *arguments], input=stdin, capture_output=True, text=True, check=True).stdout


class Folder:
    """The tensors of a folder, read one by one."""

    def __init__(self, folder: pathlib.Path) -> None:
        opened = [safetensors.safe_open(it, "pt") for it in sorted(folder.glob("*.safetensors"))]
        self.files = {name: file for file in opened for name in file}

    def __getitem__(self, name: str) -> np.ndarray:
        return self.files[name].get_tensor(name).float().numpy()


def dequantised(reader: gguf.GGUFReader) -> Iterator[tuple[str, np.ndarray]]:
    """Each tensor in the order and by the name of a folder."""
    architecture = str(reader.fields["general.architecture"].contents())
    heads = {kind: int(reader.fields[f"{architecture}.attention.head_count{kind}"].contents()) for kind in ("", "_kv")}
    layers = int(reader.fields[f"{architecture}.block_count"].contents())
    number = next(it for it, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    # The package has one direction: from the names of a folder.
    names = {}
    for ours, (_, theirs) in gguf.get_tensor_name_map(number, layers).mapping.items():
        if ours.startswith(("model.layers.", "model.embed_tokens", "model.norm", "lm_head")):
            names.setdefault(theirs, []).append(ours)
    for tensor in reader.tensors:
        module, kind = tensor.name.rsplit(".", 1)
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        if architecture in ("llama", "granite", "smollm3") and module.endswith(("attn_q", "attn_k")):
            count = heads["_kv" if module.endswith("attn_k") else ""]
            shape = (count, values.shape[0] // count // 2, 2, *values.shape[1:])
            values = values.reshape(shape).swapaxes(1, 2).reshape(values.shape)
        if architecture == "gemma3" and tensor.name.endswith("norm.weight"):
            values = values - np.float32(1)
        yield from ((f"{name}.{kind}", values) for name in names[module])


def check_weights(file: pathlib.Path, folder: pathlib.Path, *, rounded: bool) -> int:
    """The weights of a folder that was made of a file: all bits, or those of bf16."""
    ours, seen = Folder(folder), set()
    for name, values in dequantised(gguf.GGUFReader(file)):
        if name in ours.files:
            values = torch.from_numpy(np.array(values, dtype=np.float32))
            values = (values.bfloat16().float() if rounded else values).numpy()
            assert np.array_equal(ours[name].view(np.uint32), values.view(np.uint32)), name
            seen.add(name)
    assert seen == ours.files.keys(), seen ^ ours.files.keys()
    return sum(ours[name].size for name in seen)


def check_tokens(file: pathlib.Path, folder: pathlib.Path, reference: pathlib.Path | None) -> int:
    ours = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    if reference:
        theirs = tokenizers.Tokenizer.from_file(str(reference / "tokenizer.json"))
    else:
        theirs = LlamaCpp(file, vocab_only=True)
    total, found = 0, texts()
    assert len(found) == 2000, len(found)
    for text in found:
        got, want = (it.encode(text, add_special_tokens=False).ids for it in (ours, theirs))
        assert got == want, (text, got, want)
        total += len(got)
    return total


class LlamaCpp:
    """llama.cpp's tokenizer, called as that of tokenizers."""

    def __init__(self, file: pathlib.Path, **settings: bool) -> None:
        self.model = llama_cpp.Llama(str(file), n_ctx=512, verbose=False, **settings)

    def encode(self, text: str, *, add_special_tokens: bool) -> types.SimpleNamespace:
        ids = self.model.tokenize(text.encode(), add_bos=add_special_tokens, special=True)
        return types.SimpleNamespace(ids=ids)

    def logprobs(self, ids: list[int]) -> torch.Tensor:
        """Of each token after the first."""
        self.model.reset()
        self.model.eval(ids)
        logits = torch.tensor(self.model.scores[: len(ids) - 1])
        return torch.log_softmax(logits, -1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]


def logprobs(hapo: str, folder: pathlib.Path) -> list[tuple[list[int], torch.Tensor]]:
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = [tokenizer.encode(it, add_special_tokens=False).ids for it in TEXTS]
    lines = "".join(json.dumps({"input_ids": it}) + "\n" for it in rows)
    output = run(hapo, "logprobs", "--model", str(folder), "--input", "-", stdin=lines)
    return [
        (ids, torch.tensor(json.loads(line)["logprobs"])) for ids, line in zip(rows, output.splitlines(), strict=True)
    ]


def check_logprobs(file: pathlib.Path, rows: list[tuple[list[int], torch.Tensor]]) -> float:
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    gap = 0.0
    for ids, ours in rows:
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, :-1]
        theirs = torch.log_softmax(logits, -1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
        gap = max(gap, (ours - theirs).abs().max().item())
    return gap


def check_written(hapo: str, folder: pathlib.Path, work: pathlib.Path) -> float:
    """A file that hapo writes of a folder in bf16 has the same numbers for gguf, for hapo, and nearly for llama.cpp."""
    file, again = work / "written.gguf", work / "again"
    run(hapo, "merge", "--model", str(folder), "--to", "gguf", "-o", str(file))
    check_weights(file, folder, rounded=True)
    run(hapo, "merge", "--model", str(file), "--dtype", "bf16", "-o", str(again))
    ours, wanted = Folder(again), Folder(folder)
    assert ours.files.keys() == wanted.files.keys()
    assert all(np.array_equal(ours[name], wanted[name]) for name in ours.files)
    for path in folder.glob("*.j*"):
        assert (again / path.name).read_bytes() == path.read_bytes(), path.name
    theirs = LlamaCpp(file, logits_all=True)
    return max((theirs.logprobs(ids) - it).abs().max().item() for ids, it in logprobs(hapo, folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--hapo", default="target/release/hapo")
    parser.add_argument("--tokenizer", type=pathlib.Path)
    parser.add_argument("--largest-gap", type=float, default=1e-4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        exact, rounded = work / "f32", work / "bf16"
        run(args.hapo, "merge", "--model", str(args.file), "--dtype", "f32", "-o", str(exact))
        print(f"{check_weights(args.file, exact, rounded=False)} weights in f32: the bits of gguf's")
        print(f"{check_tokens(args.file, exact, args.tokenizer)} tokens of 2,000 texts: the same ids")
        rows = logprobs(args.hapo, exact)
        shutil.rmtree(exact)
        run(args.hapo, "merge", "--model", str(args.file), "--dtype", "bf16", "-o", str(rounded))
        check_weights(args.file, rounded, rounded=True)
        print("in bf16: their rounding")
        rough = check_written(args.hapo, rounded, work)
        print("written as GGUF and read back by both: the same weights, configuration and tokenizer")
        print(f"largest difference of log-probabilities from llama.cpp's, which rounds between products: {rough:.1e}")
    gap = check_logprobs(args.file, rows)
    print(f"largest difference of log-probabilities from transformers', in f32: {gap:.1e}")
    if gap > args.largest_gap:
        sys.exit(f"expected at most {args.largest_gap}")


if __name__ == "__main__":
    main()
