//! Hugging Face model folders, in and out: `config.json`, safetensors weights in one file or in shards with an index,
//! tokenizer files as they are.
//!
//! A folder is checked completely before a single weight is read: every tensor of
//! [`Config::tensors`](crate::Config::tensors) is there, once, with its shape and a known number format, and there is
//! none that the decoder would ignore. Headers are parsed here rather than by the `safetensors` crate so that a refusal
//! names the tensor and both numbers; that crate is the oracle of the tests. Where a folder has checksums, as a
//! checkpoint has, every file of it is compared with them as it is read, and what they list is there. The price:
//! weights are read, not mapped, so what a file holds is copied once, even where it holds f32; and weights with a
//! checksum are read twice, as their tensors are not read in the file's order.

mod adapter;
mod load;
mod merge;
mod read;
mod weight_file;
mod write;

pub use crate::files::{
    CHECKSUMS, Checksums, Companions, DIFFERS, broken_checkpoint, checksums, is_there, read_file,
};
pub use adapter::{AdapterFolder, AdapterNote, open_adapter, write_adapter};
pub use load::{LoadedModel, load, load_frozen};
pub use merge::{Form, merge};
pub use read::{
    Fingerprint, ModelFolder, is_model, open, read_chat_files, read_config, read_tokenizer_files,
    read_weights,
};
pub use write::{Layout, Summed, write, write_file, write_gguf};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";
const TOKENIZER: &str = "tokenizer.json";
const ADAPTER: &str = "adapter_config.json";
const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";

/// Files that belong to a model and are copied as they are, byte by byte; of the last one, which may be absent, all but the
/// special tokens.
pub const TOKENIZER_FILES: &[&str] = &[
    TOKENIZER,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    GENERATION,
];

/// True if a name stays inside its folder on every system.
fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', ':', '\0'])
}
