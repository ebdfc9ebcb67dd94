"""Tiny GGUF files: blocks of each number format, a model of each of four families, and what others read of them.

usage: make_gguf.py (in the root of the repository; needs gguf 0.19.0, transformers 5.23.0, torch 2.15.0, tokenizers,
sentencepiece 0.2.2)

blocks.gguf has each format beside its numbers in f32 as gguf makes them. NAME.gguf is written by gguf from a random
model of transformers. expected.json has of each the SHA-256 of every tensor in f32, by gguf and with the changes of
llama.cpp's converter undone, and the ids and log-probabilities that transformers has of texts, from the same file.
"""

import hashlib
import io
import json
import pathlib

import gguf
import numpy as np
import sentencepiece
import tokenizers
import torch
import transformers
from gguf import GGMLQuantizationType as Kind

FOLDER = pathlib.Path("testdata/gguf")
TEXTS = [
    "What is 12 * 34? It's 408, isn't it?\n\nYes:  12 * 34 = 408.",
    "Zürich, 你好 ½ — 👩‍👩‍👧 and\tso  on\r\n",
    "<|im_start|>user\nHi<|im_end|>\n",
]
SIZES = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=256, initializer_range=0.15, attn_implementation="eager",
)  # fmt: skip
FAMILIES = {
    "llama": (Kind.Q8_0, dict(rope_parameters=dict(rope_type="default", rope_theta=1e4), tie_word_embeddings=False)),
    "qwen2": (Kind.Q4_1, dict(rope_parameters=dict(rope_type="default", rope_theta=1e6), tie_word_embeddings=True)),
    "qwen3": (
        Kind.BF16,
        dict(rope_parameters=dict(rope_type="default", rope_theta=1e6), head_dim=16, tie_word_embeddings=True),
    ),
    "gemma3": (
        Kind.Q5_0,
        dict(head_dim=16, sliding_window=20, query_pre_attn_scalar=16, tie_word_embeddings=True,
             rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=1e4),
                                  full_attention=dict(rope_type="default", rope_theta=1e6))),
    ),
}  # fmt: skip
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CORPUS = [f"What is {a} * {b}? {a} * {b} = {a * b}, isn't it?\n" for a in range(12) for b in range(12)]


def write_blocks() -> None:
    rng = np.random.default_rng(64)
    writer = gguf.GGUFWriter(FOLDER / "blocks.gguf", "llama")
    halves = {Kind.Q4_0: 1, Kind.Q4_1: 2, Kind.Q5_0: 1, Kind.Q5_1: 2, Kind.Q8_0: 1, Kind.Q4_K: 2, Kind.Q5_K: 2}
    for kind in (*halves, Kind.Q6_K, Kind.F16, Kind.BF16):
        numbers, size = gguf.GGML_QUANT_SIZES[kind]
        count = 3 if numbers > 1 else 32
        data = rng.integers(0, 256, (count, size), dtype=np.uint8)
        factors = rng.normal(size=(count, 2)).astype(np.float16).view(np.uint8)
        if kind in halves:
            data[:, : 2 * halves[kind]] = factors[:, : 2 * halves[kind]]
        elif kind == Kind.Q6_K:
            data[:, -2:] = factors[:, :2]
        elif kind == Kind.F16:
            data = rng.normal(size=32).astype(np.float16).view(np.uint8)
        else:
            data = gguf.quantize(rng.normal(size=32).astype(np.float32), kind).view(np.uint8)
        data = data.reshape(1, -1)
        typed = data.view(np.float16) if kind == Kind.F16 else data
        writer.add_tensor(kind.name, typed, raw_dtype=kind)
        writer.add_tensor(f"{kind.name}.f32", gguf.dequantize(typed, kind).astype(np.float32).reshape(1, -1))
    close(writer)


def close(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def byte_level(writer: gguf.GGUFWriter) -> int:
    """A byte-pair vocabulary cut as Qwen2's, with its special tokens behind and one id of padding."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(QWEN2), "isolated")
    letters = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    model.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, letters])
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=290, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    model.train_from_iterator(CORPUS, trainer)
    state = json.loads(model.to_str())["model"]
    tokens = [*sorted(state["vocab"], key=state["vocab"].get), "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>"]
    kinds = [1] * len(state["vocab"]) + [3, 3, 3, 4, 5]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*tokens, "[PAD]"])
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(it) for it in state["merges"]])
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}")
    return len(kinds)


def sentence_piece(writer: gguf.GGUFWriter, *, prefix: bool) -> int:
    """Pieces with scores; in the manner of Llama's, or of Gemma's without a space in front."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=out, model_type="bpe", vocab_size=320, byte_fallback=True,
        character_coverage=1.0, user_defined_symbols=["<start_of_turn>", "<end_of_turn>"], minloglevel=2,
        add_dummy_prefix=prefix, remove_extra_whitespaces=False, normalization_rule_name="identity",
        num_threads=1,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    ids = range(model.vocab_size())

    def kind_of(id: int) -> int:
        if model.id_to_piece(id).endswith("_of_turn>"):
            return 3
        return 2 if model.is_unknown(id) else 3 if model.is_control(id) else 6 if model.is_byte(id) else 1

    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([model.id_to_piece(it) for it in ids])
    writer.add_token_scores([model.get_score(it) for it in ids])
    writer.add_token_types([kind_of(it) for it in ids])
    writer.add_unk_token_id(model.unk_id())
    writer.add_bos_token_id(model.bos_id())
    writer.add_eos_token_id(model.eos_id())
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(prefix)
    return len(ids)


def write_model(name: str, index: int) -> dict[str, object]:
    kind, settings = FAMILIES[name]
    path = FOLDER / f"{name}.gguf"
    writer = gguf.GGUFWriter(path, name)
    writer.add_name(f"tiny {name}")
    is_qwen = name.startswith("qwen")
    vocabulary = byte_level(writer) if is_qwen else sentence_piece(writer, prefix=name == "llama")
    family = "gemma3_text" if name == "gemma3" else name
    config = transformers.AutoConfig.for_model(family, **SIZES | settings, vocab_size=vocabulary)
    torch.manual_seed(index)
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if name == "llama":
        writer.add_rope_dimension_count(width)
    if name in ("qwen3", "gemma3"):
        writer.add_key_length(width)
        writer.add_value_length(width)
    if name == "gemma3":
        writer.add_sliding_window(config.sliding_window)
    names = gguf.get_tensor_name_map(writer_arch(name), config.num_hidden_layers)
    hashes = {}
    for ours, tensor in model.state_dict().items():
        if ours == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = (tensor + 0.1 * torch.randn(tensor.shape) if tensor.dim() == 1 else tensor).numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        count = heads.get(ours.split(".")[-2]) if name == "llama" else None
        if count:
            values = interleaved(values, (count, 2, values.shape[0] // count // 2))
        values = values + np.float32(name == "gemma3" and ours.endswith("norm.weight"))
        stored = kind if values.ndim == 2 else Kind.F32
        data = gguf.quantize(np.ascontiguousarray(values), stored)
        writer.add_tensor(names.get_name(ours, (".weight", ".bias")), data, raw_dtype=stored)
        values = gguf.dequantize(data, stored).astype(np.float32)
        if count:
            values = interleaved(values, (count, values.shape[0] // count // 2, 2))
        values = values - np.float32(name == "gemma3" and ours.endswith("norm.weight"))
        hashes[ours] = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
    close(writer)
    at = dict(pretrained_model_name_or_path=FOLDER, gguf_file=path.name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**at)
    model = transformers.AutoModelForCausalLM.from_pretrained(**at, config=config, dtype=torch.float32)
    rows = [tokenizer(it, add_special_tokens=False)["input_ids"] for it in TEXTS]
    logprobs = []
    for ids in rows:
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, :-1]
        of_targets = torch.log_softmax(logits, -1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0]
        logprobs.append([round(it, 6) for it in of_targets.tolist()])
    return {"ids": rows, "logprobs": logprobs, "tensors": hashes}


def writer_arch(name: str) -> gguf.MODEL_ARCH:
    return next(it for it, known in gguf.MODEL_ARCH_NAMES.items() if known == name)


def interleaved(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Rows of heads as llama.cpp's converter orders them, or back."""
    return values.reshape(*shape, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def main() -> None:
    write_blocks()
    expected = {name: write_model(name, index) for index, name in enumerate(FAMILIES)}
    text = json.dumps({"texts": TEXTS, **expected}, ensure_ascii=False)
    (FOLDER / "expected.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
