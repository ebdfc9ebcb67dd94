"""Whether transformers loads a model folder written by this project and computes the same numbers from it.

usage: check_with_transformers.py MODEL_DIR [REFERENCE_DIR]
Needs: torch, transformers, safetensors (any recent release; version 4 and 5 of transformers alike).

MODEL_DIR is loaded in f32 and generates eight greedy tokens. With REFERENCE_DIR (a folder of testdata/fixtures/models:
expected.json and expected.safetensors) the logits of its prompts are compared: the largest difference is printed, and
must be at most 1e-5 for f32 weights and 1 for weights rounded to 16 bits (a loader that drops a tensor is far beyond).
Exit code 0: loaded without missing or unexpected tensors, and within the bound.
"""
import json, os, sys

os.environ["HF_HUB_OFFLINE"] = "1"
import torch, transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

folder = sys.argv[1]
reference = sys.argv[2] if len(sys.argv) > 2 else None
config = AutoConfig.from_pretrained(folder)
model, info = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
model.eval()
problems = [f"{kind}: {names}" for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs") if (names := info.get(kind))]
stored = str(getattr(config, "dtype", None) or config.torch_dtype)
print(f"transformers {transformers.__version__}: {type(model).__name__}, {sum(p.numel() for p in model.parameters())} parameters, stored as {stored}, "
      f"eos {model.generation_config.eos_token_id}")
if os.path.exists(os.path.join(folder, "tokenizer.json")):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template([{"role": "user", "content": "What is 3 + 4?"}], tokenize=False, add_generation_prompt=True) if tokenizer.chat_template else "What is 3 + 4?"
    ids = tokenizer(text, return_tensors="pt").input_ids
    new = model.generate(ids, max_new_tokens=8, do_sample=False)[0, ids.shape[1]:]
    print(f"prompt {text!r} continues {tokenizer.decode(new)!r}")
if reference:
    bound = 1e-5 if stored == "torch.float32" else 1.0
    if "bfloat16" in stored and "bf16" in reference:
        # No weight was rounded, as the reference is computed from bf16 weights. make_fixtures.py turned the whole module
        # to bf16 and back, and with it the rotary frequencies, which transformers keeps in f32 when it loads a folder.
        bound = 1e-5
        model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq.bfloat16().float()
    expected = load_file(os.path.join(reference, "expected.safetensors"))
    for i, case in enumerate(json.load(open(os.path.join(reference, "expected.json")))):
        with torch.no_grad():
            logits = model(torch.tensor([case["input_ids"]])).logits[0]
        gap = float((logits - expected[f"{i}.logits"]).abs().max())
        print(f"prompt {i}: {len(case['input_ids'])} tokens, largest difference of a logit {gap:.3g}")
        if not gap <= bound:
            problems.append(f"prompt {i}: difference {gap} above {bound}")
print("\n".join(problems) or "ok")
sys.exit(bool(problems))
