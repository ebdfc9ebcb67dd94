//! Decoder-only language models: their shape, their weights on disk, their arithmetic.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod batch;
mod config;
pub mod config_json;
pub mod decode;
mod families;
mod fields;
mod files;
pub mod flops;
pub mod folder;
mod gguf;
mod gradients;
mod head;
mod independence;
mod layer;
mod linear;
mod lora;
mod model;
mod param_layout;
mod text;
mod train;

pub use batch::{PackedBatch, Segment, Target};
pub use config::decoder::{
    Decoder, LayerKind, Llama3Scaling, LongScaling, Multipliers, Norms, QkNorm, Rope, Scaling,
    YarnScaling,
};
pub use config::dtype::Dtype;
pub use config::{Config, TensorSpec};
pub use decode::{
    CacheFull, GenerationRows, KvCache, NextToken, PREFILL_TOKENS, PartialPrompt, Prefill,
    PromptSlot, REREAD_TOKENS, SeqSlot, generation_bytes, kv_bytes_per_token, workspace_bytes,
};
pub use families::{FAMILIES, Family, check_run};
pub use folder::{LoadedModel, ModelFolder, load, load_frozen};
pub use gradients::Gradients;
pub use head::{Outputs, keeps_logits};
pub use lora::LoraShape;
pub use model::{Model, WeightsCopy};
pub use param_layout::{Param, ParamLayout, Projection};
pub use text::chat::{ChatFiles, chat_files, with_chat_template};
pub use text::tokenizer::Tokenizer;
pub use train::{ActivationCheckpointing, Moments, Reading, Tape};
