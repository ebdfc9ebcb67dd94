//! Decoder-only language models: their shape, their weights on disk, their arithmetic.

mod config;

pub use config::{Config, Family, Llama3Scaling, Rope, TensorSpec};
