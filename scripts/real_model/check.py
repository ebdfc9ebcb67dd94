"""Compare log-probabilities of `hapo logprobs` with those of transformers on the same folder, in f32."""

import argparse
import json
import subprocess
import sys

import torch
import transformers

TEXTS = [
    "The capital of France is Paris, and the capital of Italy is Rome.",
    "Natalia sold 48 clips in April and half as many in May. How many did she sell altogether?",
    "def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return a\n",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--hapo", default="target/release/hapo")
    parser.add_argument("--largest-gap", type=float, default=1e-4)
    args = parser.parse_args()
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32)
    chat = [{"role": "user", "content": TEXTS[1]}]
    rendered = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    rows = [tokenizer(it, add_special_tokens=False)["input_ids"] for it in [*TEXTS, rendered]]
    lines = "".join(json.dumps({"input_ids": it}) + "\n" for it in rows)
    command = [args.hapo, "logprobs", "--model", args.folder, "--input", "-"]
    output = subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout
    gap = 0.0
    for ids, line in zip(rows, output.splitlines(), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, :-1]
        theirs = torch.log_softmax(logits, -1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
        ours = torch.tensor(json.loads(line)["logprobs"])
        gap = max(gap, (ours - theirs).abs().max().item())
    tokens = sum(map(len, rows))
    print(f"{tokens} tokens of {len(rows)} texts: largest difference of log-probabilities {gap:.1e}")
    if gap > args.largest_gap:
        sys.exit(f"expected at most {args.largest_gap}")


if __name__ == "__main__":
    main()
