"""A GGUF file as a Hugging Face folder: weights dequantised by gguf, tokenizer and chat template by transformers."""

import json
import pathlib
import sys

import torch
import transformers

transformers.logging.disable_progress_bar()


def convert(gguf: pathlib.Path, folder: pathlib.Path) -> None:
    at = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(**at, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**at)
    # What was read from GGUF refuses to be saved; a model of the same shape with the same weights does not.
    del model.config.quantization_config
    plain = transformers.AutoModelForCausalLM.from_config(model.config, dtype=torch.bfloat16)
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    template = folder / "chat_template.jinja"
    config = json.loads((folder / "config.json").read_text())
    print(
        f"{config['model_type']}, {sum(it.numel() for it in model.parameters())} parameters, "
        f"{len(tokenizer)} tokens, chat template: {'yes' if template.exists() else 'in the configuration'}"
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: convert.py FILE.gguf FOLDER")
    convert(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
