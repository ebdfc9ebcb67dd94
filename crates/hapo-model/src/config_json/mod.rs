//! `config.json` and `generation_config.json`, in and out.
//!
//! Both dialects are read: transformers 4 writes `rope_theta`, `rope_scaling` and `torch_dtype`;
//! transformers 5 writes `rope_parameters` and `dtype`. The first is written, because transformers
//! 4, transformers 5 and vLLM all read it.
//!
//! The price of never ignoring a field: a key that is neither understood nor known to leave the
//! arithmetic alone is refused by name, so a folder with a private key of someone's tool must be
//! cleaned of it once. Keys that are `null` or begin with `_` are always let through.

mod check;
mod fields;
mod keys;
mod parse;
mod render;

pub use check::{MAX_PARAMETERS, check};
pub use parse::parse;
pub use render::{render, render_generation};
