//! Decoder-only language models: their shape, their weights on disk, their arithmetic.

mod batch;
mod chat;
mod compute_error;
mod config;
pub mod config_json;
mod decode;
mod dtype;
mod error;
mod files;
pub mod flops;
pub mod folder;
mod gradients;
mod head;
mod layer;
mod linear;
mod lora;
mod model;
mod places;
mod rope;
mod tokenizer;
mod train;

pub use batch::{PackedBatch, Segment, Target};
pub use chat::{ChatFiles, chat_files};
pub use compute_error::ComputeError;
pub use config::{Architecture, Config, Llama3Scaling, Rope, TensorSpec};
pub use decode::{
    GenerationRows, KvCache, NextToken, PREFILL_TOKENS, PartialPrompt, Prefill, PromptSlot,
    REREAD_TOKENS, SeqSlot, generation_bytes, kv_bytes_per_token, workspace_bytes,
};
pub use dtype::Dtype;
pub use error::{Error, FieldProblem};
pub use folder::{LoadError, LoadedModel, ModelFolder, load, load_frozen};
pub use gradients::Gradients;
pub use head::{Outputs, keeps_logits};
pub use lora::LoraShape;
pub use model::{Model, WeightsCopy};
pub use places::{Param, ParamLayout, Projection};
pub use tokenizer::Tokenizer;
pub use train::{ActivationCheckpointing, Moments, Tape};
