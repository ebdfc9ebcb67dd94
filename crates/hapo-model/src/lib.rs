//! Decoder-only language models: their shape, their weights on disk, their arithmetic.

mod config;
pub mod config_json;
mod dtype;
mod error;
pub mod folder;
mod tokenizer;

pub use config::{Config, Family, Llama3Scaling, Rope, TensorSpec};
pub use dtype::Dtype;
pub use error::Error;
pub use folder::ModelFolder;
pub use tokenizer::Tokenizer;
