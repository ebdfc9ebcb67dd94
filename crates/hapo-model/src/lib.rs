//! Decoder-only language models: their shape, their weights on disk, their arithmetic.

mod batch;
mod config;
mod engine_error;
mod kv_cache;
mod model;
mod optim;
mod params;
mod rope;
mod tape;

pub use batch::{PackedBatch, Segment, Target};
pub use config::{Config, Family, Llama3Scaling, Rope, TensorSpec};
pub use engine_error::EngineError;
pub use kv_cache::{KvCache, Prefill, PromptSlot, SeqSlot};
pub use model::Model;
pub use optim::Moments;
pub use params::{Param, ParamLayout};
pub use rope::rope_frequencies;
pub use tape::{Gradients, Outputs, Recompute, Tape};
