//! Decoder-only language models: their shape, their weights on disk, their arithmetic.

mod batch;
mod chat;
mod compute_error;
mod config;
pub mod config_json;
mod dtype;
mod error;
pub mod folder;
mod kv_cache;
mod load;
pub mod memory;
mod model;
mod optim;
mod packed;
mod params;
mod rope;
mod tape;
mod tokenizer;

pub use batch::{PackedBatch, Segment, Target};
pub use chat::{ChatFiles, chat_files};
pub use compute_error::ComputeError;
pub use config::{Architecture, Config, Llama3Scaling, Rope, TensorSpec};
pub use dtype::Dtype;
pub use error::Error;
pub use folder::ModelFolder;
pub use kv_cache::{KvCache, PartialPrompt, Prefill, PromptSlot, SeqSlot};
pub use load::{LoadError, LoadedModel, load};
pub use model::Model;
pub use optim::Moments;
pub use packed::Packed;
pub use params::{Param, ParamLayout};
pub use rope::rope_frequencies;
pub use tape::{ActivationCheckpointing, Gradients, Outputs, Tape};
pub use tokenizer::Tokenizer;
